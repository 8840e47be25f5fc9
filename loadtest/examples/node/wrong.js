// A shop that oversells: it reads the stock and then deducts, and another buyer may deduct between the two.
const http = require('http');
const mysql = require('mysql'); // Debian's package node-mysql

const env = process.env;
const pool = mysql.createPool({
  host: env.MYSQL_HOST, port: env.MYSQL_PORT, user: env.MYSQL_USER, password: env.MYSQL_PASSWORD,
  database: env.MYSQL_DATABASE, connectionLimit: 10,
});
const query = (sql, values) => new Promise((resolve, reject) => {
  pool.query(sql, values, (error, result) => (error ? reject(error) : resolve(result)));
});

async function buy(item, quantity) {
  const rows = await query('SELECT quantity FROM products WHERE id = ?', [item]);
  if (rows[0].quantity < quantity) return false;
  await query('UPDATE products SET quantity = quantity - ? WHERE id = ?', [quantity, item]);
  return true;
}

const [host, port] = env.LISTEN.split(':');
http.createServer(async (request, response) => { // POST /items/ITEM/buy
  let body = '';
  for await (const part of request) body += part;
  try {
    const sold = await buy(request.url.split('/')[2], JSON.parse(body).quantity);
    response.writeHead(sold ? 200 : 409).end();
  } catch (error) {
    console.error(error);
    response.writeHead(500).end(String(error));
  }
}).listen(port, host);
