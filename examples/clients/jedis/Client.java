// Jedis with its defaults: pipelines, transactions, messages and a queue. Takes the server's port.

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;

public class Client {
    static void expect(Object got, Object wanted) {
        if (!wanted.equals(got)) {
            throw new AssertionError(got + ", and not " + wanted);
        }
    }

    /** Lowers a number that others lower at the same time. */
    static void buy(JedisPool pool) {
        try (Jedis own = pool.getResource()) {
            List<Object> replies = null;
            while (replies == null) {
                own.watch("stock");
                long left = Long.parseLong(own.get("stock"));
                Transaction transaction = own.multi();
                transaction.set("stock", Long.toString(left - 1));
                replies = transaction.exec();
            }
        }
    }

    static void keys(Jedis client) {
        client.setex("visits", 60, "41");
        expect(client.incr("visits"), 42L);
        client.hset("user:1", Map.of("name", "Ada", "language", "en"));
        expect(client.hgetAll("user:1"), Map.of("name", "Ada", "language", "en"));
        client.zadd("board", Map.of("ada", 3.0, "bob", 5.0));
        expect(client.zrevrange("board", 0, 0), List.of("bob"));
        Pipeline pipeline = client.pipelined();
        Response<Long> last = null;
        for (int number = 0; number < 1000; number++) {
            last = pipeline.rpush("jobs", Integer.toString(number));
        }
        pipeline.sync();
        expect(last.get(), 1000L);
    }

    static void transactions(JedisPool pool, Jedis client) throws InterruptedException {
        client.set("stock", "10");
        List<Thread> buyers = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            buyers.add(new Thread(() -> buy(pool)));
        }
        buyers.forEach(Thread::start);
        for (Thread buyer : buyers) {
            buyer.join();
        }
        expect(client.get("stock"), "5");
    }

    static void messages(JedisPool pool, Jedis client) throws InterruptedException {
        CountDownLatch subscribed = new CountDownLatch(1);
        List<String> heard = new ArrayList<>();
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                subscribed.countDown();
            }

            @Override
            public void onMessage(String channel, String message) {
                heard.add(message);
                unsubscribe();
            }
        };
        Thread listening = new Thread(() -> {
            try (Jedis own = pool.getResource()) {
                own.subscribe(listener, "news");
            }
        });
        listening.start();
        subscribed.await();
        expect(client.publish("news", "hello"), 1L);
        listening.join();
        expect(heard, List.of("hello"));
    }

    static void queue(JedisPool pool, Jedis client) throws InterruptedException {
        client.del("jobs");
        List<String> done = new ArrayList<>();
        Thread worker = new Thread(() -> {
            try (Jedis own = pool.getResource()) {
                for (String job = ""; !job.equals("stop"); done.add(job)) {
                    job = own.blpop(10, "jobs").get(1);
                }
            }
        });
        worker.start();
        for (String job : List.of("a", "b", "c", "stop")) {
            client.rpush("jobs", job);
        }
        worker.join();
        expect(done, List.of("a", "b", "c", "stop"));
    }

    public static void main(String[] args) throws InterruptedException {
        int port = args.length > 0 ? Integer.parseInt(args[0]) : 6379;
        try (JedisPool pool = new JedisPool("localhost", port); Jedis client = pool.getResource()) {
            client.del("visits", "user:1", "board", "stock", "jobs");
            keys(client);
            transactions(pool, client);
            messages(pool, client);
            queue(pool, client);
        }
        System.out.println("Jedis is served");
    }
}
