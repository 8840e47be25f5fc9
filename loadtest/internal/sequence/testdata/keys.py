"""A shop that answers an Idempotency-Key once: right, or with the flaw that its argument names."""
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pymysql

flaw = sys.argv[1]


def connect():
    return pymysql.connect(
        host=os.environ["MYSQL_HOST"], port=int(os.environ["MYSQL_PORT"]), user=os.environ["MYSQL_USER"],
        password=os.environ["MYSQL_PASSWORD"], database=os.environ["MYSQL_DATABASE"])


def buy(item, quantity, key):
    """Returns the status of the answer, which is recorded with the sale."""
    asked = f"{item} {quantity}"
    with connect() as connection, connection.cursor() as cursor:
        new = cursor.execute("INSERT IGNORE INTO answers (name, asked, status) VALUES (%s, %s, 0)", (key, asked)) == 1
        if not new:
            cursor.execute("SELECT asked, status FROM answers WHERE name = %s FOR UPDATE", (key,))
            first, status = cursor.fetchone()
            if first == asked:
                return status
            if flaw != "sells-for-a-used-key":
                return 422
        sold = cursor.execute(
            "UPDATE products SET quantity = quantity - %s WHERE id = %s AND quantity >= %s", (quantity, item, quantity)) == 1
        status = 200 if sold else 409
        if flaw == "forgets-refusals" and not sold:
            cursor.execute("DELETE FROM answers WHERE name = %s", (key,))
        elif new:
            cursor.execute("UPDATE answers SET status = %s WHERE name = %s", (status, key))
        connection.commit()
        return status


def cancel(key):
    """Puts back what was sold, once, and returns the status of the answer."""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT asked, status, cancelled FROM answers WHERE name = %s FOR UPDATE", (key,))
        found = cursor.fetchone()
        if found is None or found[1] != 200:
            return 404
        if not found[2] or flaw == "cancels-twice":
            item, quantity = found[0].split()
            cursor.execute("UPDATE products SET quantity = quantity + %s WHERE id = %s", (quantity, item))
            cursor.execute("UPDATE answers SET cancelled = 1 WHERE name = %s", (key,))
        connection.commit()
        return 204


class Shop(BaseHTTPRequestHandler):
    def do_POST(self):  # /items/ITEM/buy or /sales/KEY/cancel
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "null")
        _, _, name, action = self.path.split("/")
        self.send_response(
            cancel(name) if action == "cancel" else buy(int(name), order["quantity"], self.headers["Idempotency-Key"]))
        self.end_headers()

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 100


host, port = os.environ["LISTEN"].split(":")
Server((host, int(port)), Shop).serve_forever()
