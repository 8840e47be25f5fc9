"""Services with habits that the explorer must see through: its argument is the name of one."""
import json, os, socket, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pymysql


def connect():
    return pymysql.connect(
        host=os.environ["MYSQL_HOST"], port=int(os.environ["MYSQL_PORT"]), user=os.environ["MYSQL_USER"],
        password=os.environ["MYSQL_PASSWORD"], database=os.environ["MYSQL_DATABASE"])


def look_for_work():
    """Has nothing to do with requests."""
    connection = connect()
    while True:
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM job")
        connection.commit()
        time.sleep(0.02)


class Renamed:
    """Has an id of its own for each item, and one connection, which it keeps."""

    def __init__(self):
        self.connection = connect()
        threading.Thread(target=look_for_work, daemon=True).start()

    def deduct(self, item, count):
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT id FROM product WHERE sku = %s", (item,))
            product = cursor.fetchone()[0]
            cursor.execute("SELECT units FROM inventory WHERE product_id = %s", (product,))
            units = cursor.fetchone()[0]
            if units >= count:
                cursor.execute("UPDATE inventory SET units = %s WHERE product_id = %s", (units - count, product))
            self.connection.commit()
            return units >= count


class Sleeps:
    """Takes a lock in Redis, and sleeps between two tries. It keeps the stock in Redis, too."""

    def redis(self, *words):
        text = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        self.connection.write(f"*{len(words)}\r\n{text}".encode())
        line = self.connection.readline()
        if line[:1] != b"$":
            return line[1:].strip().decode()
        return None if line == b"$-1\r\n" else self.connection.readline().strip().decode()

    def deduct(self, item, count):
        host, port = os.environ["REDIS_ADDR"].split(":")
        self.connection = socket.create_connection((host, int(port))).makefile("rwb", 0)
        while self.redis("SET", f"lock:{item}", "me", "NX", "PX", "30000") is None:
            time.sleep(0.03)
        units = int(self.redis("GET", f"stock:{item}"))
        if units >= count:
            self.redis("SET", f"stock:{item}", str(units - count))
        self.redis("DEL", f"lock:{item}")
        return units >= count


class Rereads:
    """Asks for the stock again and again, which a buyer who waits would do, too."""

    def deduct(self, item, count):
        with connect() as connection, connection.cursor() as cursor:
            connection.autocommit(True)
            for _ in range(3):
                cursor.execute("SELECT stock FROM good_stock WHERE goods_id = %s", (item,))
                if cursor.fetchone()[0] < count:
                    return False
            cursor.execute("UPDATE good_stock SET stock = stock - %s WHERE goods_id = %s", (count, item))
            return True


class Usual:
    """Is asked as the service of this repository, and has the same table."""

    def deduct(self, item, count):
        with connect() as connection, connection.cursor() as cursor:
            sold = cursor.execute(
                "UPDATE good_stock SET stock = stock - %s WHERE goods_id = %s AND stock >= %s", (count, item, count))
            connection.commit()
            return sold == 1


class Defers:
    """Answers, and deducts some milliseconds later."""

    def deduct(self, item, count):
        with connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT stock FROM good_stock WHERE goods_id = %s", (item,))
            if cursor.fetchone()[0] < count:
                return False
        threading.Timer(0.02, Usual().deduct, (item, count)).start()
        return True


if sys.argv[1] == "migrate":
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE good_stock (goods_id BIGINT PRIMARY KEY, stock BIGINT NOT NULL)")
    sys.exit()


class Shop(BaseHTTPRequestHandler):
    shop = {
        "renamed": Renamed, "rereads": Rereads, "sleeps": Sleeps, "usual": Usual, "defers": Defers,
    }[sys.argv[1]]()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/stock/deduct":
            order = json.loads(body)
            self.send_response(200 if self.shop.deduct(order["goods_id"], order["count"]) else 409)
            self.end_headers()
            return
        _, item, count = self.path[1:].split("/")
        if self.headers["Authorization"] != "secret":
            self.send_response(401)
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"sold": self.shop.deduct(item, int(count))}).encode())
            return
        self.end_headers()


host, port = os.environ["LISTEN"].split(":")
ThreadingHTTPServer((host, int(port)), Shop).serve_forever()
