<?php
// A shop that oversells: its transaction reads the stock without a lock, and another buyer may do so meanwhile. The
// program starts PHP's own web server, which runs this file again for each request.
if (PHP_SAPI === 'cli') {
    putenv('PHP_CLI_SERVER_WORKERS=8'); // processes: one alone would answer one request after the other
    pcntl_exec(PHP_BINARY, ['-S', getenv('LISTEN'), __FILE__]);
}

$item = (int) explode('/', $_SERVER['REQUEST_URI'])[2]; // POST /items/ITEM/buy
$quantity = json_decode(file_get_contents('php://input'))->quantity;
$db = new PDO(
    sprintf('mysql:host=%s;port=%s;dbname=%s', getenv('MYSQL_HOST'), getenv('MYSQL_PORT'), getenv('MYSQL_DATABASE')),
    getenv('MYSQL_USER'), getenv('MYSQL_PASSWORD'), [PDO::ATTR_EMULATE_PREPARES => false]);
$db->beginTransaction();
$read = $db->prepare('SELECT quantity FROM products WHERE id = ?');
$read->execute([$item]);
$left = $read->fetchColumn() - $quantity;
if ($left < 0) {
    $db->rollBack();
    http_response_code(409);
    return;
}
$db->prepare('UPDATE products SET quantity = ? WHERE id = ?')->execute([$left, $item]);
$db->commit();
