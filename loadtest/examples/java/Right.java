import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.concurrent.Executors;

/** A shop that checks and deducts in one statement. */
public class Right {
    static final String DATABASE = String.format("jdbc:mariadb://%s:%s/%s?user=%s&password=%s",
        System.getenv("MYSQL_HOST"), System.getenv("MYSQL_PORT"), System.getenv("MYSQL_DATABASE"),
        System.getenv("MYSQL_USER"), System.getenv("MYSQL_PASSWORD"));

    static boolean buy(long item, long quantity) throws SQLException {
        try (Connection connection = DriverManager.getConnection(DATABASE);
                var write = connection.prepareStatement(
                    "UPDATE products SET quantity = quantity - ? WHERE id = ? AND quantity >= ?")) {
            write.setLong(1, quantity);
            write.setLong(2, item);
            write.setLong(3, quantity);
            return write.executeUpdate() == 1;
        }
    }

    static void answer(HttpExchange exchange) { // POST /items/ITEM/buy
        int status = 500;
        try {
            String body = new String(exchange.getRequestBody().readAllBytes()); // {"quantity": 1}
            long quantity = Long.parseLong(body.replaceAll("\\D", ""));
            status = buy(Long.parseLong(exchange.getRequestURI().getPath().split("/")[2]), quantity) ? 200 : 409;
        } catch (Exception e) {
            e.printStackTrace();
        }
        try (exchange) {
            exchange.sendResponseHeaders(status, -1);
        } catch (java.io.IOException e) {
            e.printStackTrace();
        }
    }

    public static void main(String[] args) throws Exception {
        String[] listen = System.getenv("LISTEN").split(":");
        HttpServer server = HttpServer.create(new InetSocketAddress(listen[0], Integer.parseInt(listen[1])), 100);
        server.createContext("/items/", Right::answer);
        server.setExecutor(Executors.newFixedThreadPool(20));
        server.start();
    }
}
