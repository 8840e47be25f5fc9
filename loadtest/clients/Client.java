// Sells units of an item, each with a key of its own: java Client.java URL ITEM SALES
import java.io.IOException;
import java.net.URI;
import java.net.http.*;
import java.time.*;
import java.util.*;
import java.util.concurrent.ThreadLocalRandom;

class Client {
    static final HttpClient HTTP = HttpClient.newHttpClient();

    public static void main(String[] args) throws InterruptedException {
        var url = URI.create(args[0] + "/stock/deduct?goods_id=" + args[1] + "&count=1");
        for (int sales = Integer.parseInt(args[2]); sales > 0; sales--) {
            var key = UUID.randomUUID().toString(); // a shop stores it with the order before it sends anything
            System.out.println(key + " " + sell(url, key));
        }
    }

    // Sends a sale until it is answered. After a minute it gives up, and the outcome is unknown.
    static String sell(URI url, String key) throws InterruptedException {
        var request = HttpRequest.newBuilder(url).POST(HttpRequest.BodyPublishers.noBody())
            .header("Idempotency-Key", key).timeout(Duration.ofSeconds(20)).build();
        var deadline = Instant.now().plusSeconds(60);
        var unknown = false;
        for (long cap = 100;; cap = Math.min(2 * cap, 5000)) {
            long wait = ThreadLocalRandom.current().nextLong(cap + 1);
            try {
                var reply = HTTP.send(request, HttpResponse.BodyHandlers.discarding());
                var status = reply.statusCode();
                var after = reply.headers().firstValue("Retry-After");
                if (status / 100 == 2) return "sold";
                if (after.isEmpty() && !Set.of(500, 502, 503, 504).contains(status)) {
                    // 409 is the answer of the key, all others are of this attempt.
                    return unknown && status != 409 ? "unknown" : "refused " + status;
                }
                unknown |= status != 503;
                var seconds = after.filter(s -> s.matches("\\d{1,9}")).orElse("0"); // 0 if it is a date
                wait += 1000 * Long.parseLong(seconds);
            } catch (IOException e) {
                unknown = true; // no answer: send it again
            }
            if (Instant.now().plusMillis(wait).isAfter(deadline)) return "unknown";
            Thread.sleep(wait);
        }
    }
}
