import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** A server whose shutdown hook waits for its workers: "in-time", or "too-slow". */
public class Server {
    public static void main(String[] args) throws Exception {
        long seconds = args[0].equals("too-slow") ? 100_000 : 2;
        ExecutorService workers = Executors.newFixedThreadPool(2);
        HttpServer http = HttpServer.create(new InetSocketAddress(8080), 0);
        http.setExecutor(workers);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            workers.submit(() -> {
                TimeUnit.SECONDS.sleep(seconds);
                return null;
            });
            workers.shutdown();
            try {
                workers.awaitTermination(1, TimeUnit.DAYS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        http.start();
    }
}
