<?php
// A shop in PHP: `shop.php right` locks the row that it reads, `shop.php wrong` reads it in the same transaction without
// a lock. The program starts PHP's own web server, which runs this file again for each request.
if (PHP_SAPI === 'cli') {
    if (!in_array($argv[1] ?? '', ['right', 'wrong'], true)) {
        fwrite(STDERR, "usage: shop.php right|wrong\n");
        exit(1);
    }
    putenv('SHOP=' . $argv[1]);
    pcntl_exec(PHP_BINARY, ['-S', getenv('LISTEN'), __FILE__]);
}

$order = json_decode(file_get_contents('php://input'));
$db = new PDO(
    sprintf('mysql:host=%s;port=%s;dbname=%s', getenv('MYSQL_HOST'), getenv('MYSQL_PORT'), getenv('MYSQL_DATABASE')),
    getenv('MYSQL_USER'), getenv('MYSQL_PASSWORD'), [PDO::ATTR_EMULATE_PREPARES => false]);
$db->beginTransaction();
$lock = getenv('SHOP') === 'right' ? ' FOR UPDATE' : '';
$read = $db->prepare("SELECT stock FROM good_stock WHERE goods_id = ?$lock");
$read->execute([$order->goods_id]);
$stock = $read->fetchColumn();
if ($stock < $order->count) {
    $db->rollBack();
    http_response_code(409);
    return;
}
$write = $db->prepare('UPDATE good_stock SET stock = ? WHERE goods_id = ?');
$write->execute([$stock - $order->count, $order->goods_id]);
$db->commit();
