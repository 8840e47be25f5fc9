"""A shop that answers an Idempotency-Key once: right, or with the flaw that its argument names."""
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pymysql

flaw = sys.argv[1]


def buy(item, quantity, key):
    """Returns the status of the answer, which is recorded with the sale."""
    connection = pymysql.connect(
        host=os.environ["MYSQL_HOST"], port=int(os.environ["MYSQL_PORT"]), user=os.environ["MYSQL_USER"],
        password=os.environ["MYSQL_PASSWORD"], database=os.environ["MYSQL_DATABASE"])
    asked = f"{item} {quantity}"
    with connection, connection.cursor() as cursor:
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


class Shop(BaseHTTPRequestHandler):
    def do_POST(self):  # /items/ITEM/buy
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(buy(int(self.path.split("/")[2]), order["quantity"], self.headers["Idempotency-Key"]))
        self.end_headers()

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 100


host, port = os.environ["LISTEN"].split(":")
Server((host, int(port)), Shop).serve_forever()
