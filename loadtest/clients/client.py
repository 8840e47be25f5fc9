#!/usr/bin/env python3
"""Sells units of an item, each with a key of its own: client.py URL ITEM SALES"""
import http.client, random, sys, time, urllib.error, urllib.request, uuid


def sell(url, key):
    """Sends a sale until it is answered. After a minute it gives up, and the outcome is unknown."""
    request = urllib.request.Request(url, method="POST", headers={"Idempotency-Key": key})
    deadline, cap, unknown = time.monotonic() + 60, 0.1, False
    while True:
        wait = random.uniform(0, cap)
        try:
            urllib.request.urlopen(request, timeout=20).close()
            return "sold"
        except urllib.error.HTTPError as reply:
            after = reply.headers["Retry-After"]
            if not after and reply.code not in (500, 502, 503, 504):
                # 409 is the answer of the key, all others are of this attempt.
                return "unknown" if unknown and reply.code != 409 else f"refused {reply.code}"
            unknown = unknown or reply.code != 503
            wait += int(after) if after and after.isdecimal() else 0  # 0 if it is a date
        except (OSError, http.client.HTTPException):
            unknown = True  # no answer: send it again
        if time.monotonic() + wait > deadline:
            return "unknown"
        time.sleep(wait)
        cap = min(2 * cap, 5)


url, item, sales = sys.argv[1:]
for _ in range(int(sales)):
    key = str(uuid.uuid4())  # a shop stores it with the order before it sends anything
    print(key, sell(f"{url}/stock/deduct?goods_id={item}&count=1", key))
