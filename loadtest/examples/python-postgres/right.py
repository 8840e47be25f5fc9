"""A shop that checks and deducts in one statement."""
import contextlib, json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg2


def buy(item, quantity):
    connection = psycopg2.connect("")  # as PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE say
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE products SET quantity = quantity - %s WHERE id = %s AND quantity >= %s", (quantity, item, quantity))
        connection.commit()
        return cursor.rowcount == 1


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
