"""A shop that oversells: it reads the stock and writes what should be left, and another buyer may do so meanwhile."""
import contextlib, json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg2


def buy(item, quantity):
    connection = psycopg2.connect("")  # as PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE say
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("SELECT quantity FROM products WHERE id = %s", (item,))
        left = cursor.fetchone()[0] - quantity
        if left < 0:
            return False
        cursor.execute("UPDATE products SET quantity = %s WHERE id = %s", (left, item))
        connection.commit()
        return True


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
