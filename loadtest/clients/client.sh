#!/bin/sh
# Sells units of an item, each with a key of its own: sh client.sh URL ITEM SALES
url=${1:-http://localhost:8000} item=${2:-1} sales=${3:-1}

# sell KEY sends a sale until it is answered. After a minute it gives up, and the outcome is unknown.
sell() {
	deadline=$(($(date +%s) + 60)) cap=100 outcome= # cap: milliseconds
	while :; do
		# $2 is the status, empty without an answer; $3 is Retry-After, 0 if it is a date.
		set -- "$1" $(curl -s -m 20 --suppress-connect-headers -D - -o /dev/null -X POST -H "Idempotency-Key: $1" \
			"$url/stock/deduct?goods_id=$item&count=1" |
			awk '/^HTTP/ && $2 >= 200 { s = $2 + 0 } tolower($1) == "retry-after:" { r = int($2) } END { print s, r }')
		case ${2:-}/${3:-} in
		2*) echo "$1 sold" && return ;;
		503/*) ;;                                # it did not sell: send it again
		/ | 50[024]/* | */?*) outcome=unknown ;; # it may have sold: send it again
		409/) echo "$1 refused 409" && return ;; # the answer of the key
		*) echo "$1 ${outcome:-refused $2}" && return ;;
		esac
		delay=$((${3:-0} * 1000 + $(od -An -N2 -tu2 /dev/urandom) % (cap + 1)))
		[ $(($(date +%s) + delay / 1000)) -lt $deadline ] || { echo "$1 unknown" && return; }
		sleep $(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))
		cap=$((cap < 2500 ? cap * 2 : 5000))
	done
}

while [ $((sales -= 1)) -ge 0 ]; do
	# A shop stores the key with the order before it sends anything.
	sell "$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')"
done
