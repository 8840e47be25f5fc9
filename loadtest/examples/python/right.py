"""A shop that checks and deducts in one statement."""
import json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pymysql


def buy(item, quantity):
    connection = pymysql.connect(
        host=os.environ["MYSQL_HOST"], port=int(os.environ["MYSQL_PORT"]), user=os.environ["MYSQL_USER"],
        password=os.environ["MYSQL_PASSWORD"], database=os.environ["MYSQL_DATABASE"])
    with connection, connection.cursor() as cursor:
        sold = cursor.execute(
            "UPDATE products SET quantity = quantity - %s WHERE id = %s AND quantity >= %s", (quantity, item, quantity)) == 1
        connection.commit()
        return sold


class Shop(BaseHTTPRequestHandler):
    def do_POST(self):  # /items/ITEM/buy
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        sold = buy(int(self.path.split("/")[2]), order["quantity"])
        self.send_response(200 if sold else 409)
        self.end_headers()

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 100


host, port = os.environ["LISTEN"].split(":")
Server((host, int(port)), Shop).serve_forever()
