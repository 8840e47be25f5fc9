#!/usr/bin/python3
"""A shop in Python: `shop.py right` deducts with one conditional UPDATE, `shop.py wrong` reads the stock and writes it."""
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pymysql


def connect():
    return pymysql.connect(
        host=os.environ["MYSQL_HOST"], port=int(os.environ["MYSQL_PORT"]), user=os.environ["MYSQL_USER"],
        password=os.environ["MYSQL_PASSWORD"], database=os.environ["MYSQL_DATABASE"],
        client_flag=pymysql.constants.CLIENT.FOUND_ROWS)


def right(cursor, item, count):
    return cursor.execute(
        "UPDATE good_stock SET stock = stock - %s WHERE goods_id = %s AND stock >= %s", (count, item, count)) == 1


def wrong(cursor, item, count):
    cursor.execute("SELECT stock FROM good_stock WHERE goods_id = %s", (item,))
    stock = cursor.fetchone()[0]
    if stock < count:
        return False
    cursor.execute("UPDATE good_stock SET stock = %s WHERE goods_id = %s", (stock - count, item))
    return True


ways = {"right": right, "wrong": wrong}
if len(sys.argv) != 2 or sys.argv[1] not in ways:
    sys.exit("usage: shop.py right|wrong")


class Shop(BaseHTTPRequestHandler):
    deduct = staticmethod(ways[sys.argv[1]])

    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with connect() as connection, connection.cursor() as cursor:
            sold = self.deduct(cursor, order["goods_id"], order["count"])
            connection.commit()
        self.send_response(200 if sold else 409)
        self.end_headers()


host, port = os.environ["LISTEN"].split(":")
ThreadingHTTPServer((host, int(port)), Shop).serve_forever()
