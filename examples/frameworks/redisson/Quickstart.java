// Redisson's quick start: a map, a counter and a lock, from several threads.
//
//   java -cp 'target/dependency/*' Quickstart.java PORT [TURNS]
//
// A lock that was given is still held after a crash of the server, and the counter has every step whose
// answer came.

import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

public class Quickstart {
    static final AtomicInteger inside = new AtomicInteger();
    static final AtomicInteger answered = new AtomicInteger();
    static final AtomicInteger lost = new AtomicInteger();
    static volatile Throwable failure;

    public static void main(String[] arguments) throws Exception {
        int turns = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 100;
        Config config = new Config();
        config.useSingleServer()
            .setAddress("redis://127.0.0.1:" + arguments[0])
            .setRetryAttempts(0)
            .setTimeout(1000)
            .setConnectionMinimumIdleSize(2)
            .setConnectionPoolSize(8);
        RedissonClient client = Redisson.create(config);
        Thread[] threads = new Thread[4];
        for (int at = 0; at < threads.length; at++) {
            threads[at] = new Thread(() -> takeTurns(client, turns / 4));
            threads[at].setUncaughtExceptionHandler((thread, thrown) -> failure = thrown);
            threads[at].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure != null) {
            throw new AssertionError(failure);
        }
        long steps = 0;
        for (boolean isRead = false; !isRead; ) {
            try {
                steps = client.getAtomicLong("steps").get();
                isRead = true;
            } catch (RuntimeException error) {
                Thread.sleep(50);
            }
        }
        if (steps < answered.get()) {
            throw new AssertionError(steps + " steps of " + answered.get());
        }
        System.out.println("served: " + turns / 4 * 4 + " turns, " + lost.get() + " releases without an answer");
        client.shutdown();
    }

    static void takeTurns(RedissonClient client, int left) {
        while (left > 0) {
            RLock lock = client.getLock("turn");
            try {
                if (!lock.tryLock(1, 2, TimeUnit.SECONDS)) {
                    continue;
                }
            } catch (InterruptedException | RuntimeException error) {
                pause(20);
                continue;
            }
            if (inside.incrementAndGet() != 1) {
                throw new AssertionError("two have the lock");
            }
            left--;
            pause(5);
            inside.decrementAndGet();
            try {
                client.getAtomicLong("steps").incrementAndGet();
                answered.incrementAndGet();
                lock.unlock();
            } catch (RuntimeException error) {
                lost.incrementAndGet();
            }
        }
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }
}
