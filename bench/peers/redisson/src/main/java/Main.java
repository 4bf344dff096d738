import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's RLock, with threads. "run" says what the arguments and the lines of input mean.
 *
 * <p>As its documentation says: {@code lock()} without a lease, so that the watchdog renews it; a waiter sleeps until the
 * release is published. The length of the lease is the watchdog's setting.
 */
public class Main {
    private static final long GRACE_MS = 2000;
    private static final long WARM_UP_MS = 3000;
    private static final int NESTED_BATCH = 10;

    private final RedissonClient redisson;
    private final int count;
    private final double seconds;

    Main(RedissonClient redisson, int count, double seconds) {
        this.redisson = redisson;
        this.count = count;
        this.seconds = seconds;
    }

    private static void increment(FileChannel file) throws Exception {
        ByteBuffer bytes = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
        file.read(bytes, 0);
        long next = bytes.getLong(0) + 1;
        file.write(bytes.clear().putLong(0, next), 0);
    }

    private void contend(RLock lock, FileChannel file, AtomicBoolean over, AtomicIntegerArray acquires, int number) {
        try {
            while (!over.get()) {
                lock.lock();
                try {
                    if (over.get()) {
                        return;
                    }
                    if (file != null) {
                        increment(file);
                    }
                    acquires.incrementAndGet(number);
                } finally {
                    lock.unlock();
                }
            }
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    /** Gives up when none of them has ended for GRACE_MS. Returns how many have not. */
    private static long awaitEnd(Thread[] threads) throws InterruptedException {
        long left = threads.length;
        for (long limit = System.currentTimeMillis() + GRACE_MS; left > 0 && System.currentTimeMillis() < limit;) {
            long alive = Arrays.stream(threads).filter(Thread::isAlive).count();
            if (alive < left) {
                limit = System.currentTimeMillis() + GRACE_MS;
            }
            left = alive;
            Thread.sleep(10);
        }
        return left;
    }

    private void crowd(String[] words) throws Exception {
        FileChannel file = words.length < 2 ? null
                : FileChannel.open(Path.of(words[1]), StandardOpenOption.READ, StandardOpenOption.WRITE);
        AtomicBoolean over = new AtomicBoolean();
        AtomicIntegerArray acquires = new AtomicIntegerArray(count);
        Thread[] threads = new Thread[count];
        long start = System.nanoTime();
        for (int i = 0; i < count; i++) {
            int number = i;
            RLock lock = redisson.getLock(file == null ? words[0] + ":" + i : words[0]);
            threads[i] = new Thread(() -> contend(lock, file, over, acquires, number));
            threads[i].setDaemon(true);
            threads[i].start();
        }
        Thread.sleep((long) (seconds * 1000));
        over.set(true);
        double taken = (System.nanoTime() - start) / 1e9;
        long stuck = awaitEnd(threads);
        System.out.printf("{\"seconds\": %f, \"gave_up\": 0, \"stuck\": %d, \"acquires\": %s}%n", taken, stuck, acquires);
        if (stuck > 0) {
            Runtime.getRuntime().halt(0);
        }
        if (file != null) {
            file.close();
        }
    }

    /** So that what is measured is compiled. */
    private void warmUp() throws Exception {
        Thread[] threads = new Thread[16];
        long end = System.nanoTime() + WARM_UP_MS * 1_000_000;
        for (int i = 0; i < threads.length; i++) {
            RLock lock = redisson.getLock("warm-up:" + ProcessHandle.current().pid() + ":" + i);
            threads[i] = new Thread(() -> {
                while (System.nanoTime() < end) {
                    lock.lock();
                    lock.unlock();
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void nested(String name) {
        RLock lock = redisson.getLock(name);
        lock.lock();
        long start = System.nanoTime();
        long ns = 0;
        long pairs = 0;
        for (; ns < seconds * 1e9; ns = System.nanoTime() - start, pairs += NESTED_BATCH) {
            for (int i = 0; i < NESTED_BATCH; i++) {
                lock.lock();
                lock.unlock();
            }
        }
        lock.unlock();
        System.out.printf("{\"seconds\": %f, \"pairs\": %d}%n", ns / 1e9, pairs);
    }

    private void hold(String name, boolean take) {
        long called = System.nanoTime();
        for (int i = 0; i < count; i++) {
            RLock lock = redisson.getLock(name + ":" + i);
            if (take) {
                lock.lock();
            } else {
                lock.unlock();
            }
        }
        System.out.println(take ? System.nanoTime() : called);
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(args[1]);
        config.setLockWatchdogTimeout(Long.parseLong(args[2]));
        Main main = new Main(Redisson.create(config), Integer.parseInt(args[3]), Double.parseDouble(args[4]));
        main.warmUp();
        System.out.println("ready");
        Scanner lines = new Scanner(System.in);
        for (boolean odd = true; lines.hasNextLine(); odd = !odd) {
            String[] words = lines.nextLine().split(" ");
            switch (args[0]) {
                case "crowd" -> main.crowd(words);
                case "nested" -> main.nested(words[0]);
                default -> main.hold(words[0], odd);
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
