import java.util.Scanner;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;

/** What the programs in Java share that "shared" runs. It says what the arguments and the lines of input mean. */
class Crowd {
    interface Lock {
        void lock() throws Exception;

        void unlock() throws Exception;
    }

    private static final long GRACE_MS = 5000;

    private static void pairs(Lock lock, AtomicBoolean over, AtomicLong done) {
        try {
            while (!over.get()) {
                lock.lock();
                lock.unlock();
                done.incrementAndGet();
            }
        } catch (Exception error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(Lock lock, int threads, double seconds) throws Exception {
        AtomicBoolean over = new AtomicBoolean();
        AtomicLong done = new AtomicLong();
        Thread[] all = new Thread[threads];
        long start = System.nanoTime();
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> pairs(lock, over, done));
            all[i].setDaemon(true);
            all[i].start();
        }
        Thread.sleep((long) (seconds * 1000));
        over.set(true);
        double taken = (System.nanoTime() - start) / 1e9;
        long pairs = done.get(), stuck = 0, limit = System.currentTimeMillis() + GRACE_MS;
        for (Thread thread : all) {
            thread.join(Math.max(1, limit - System.currentTimeMillis()));
            stuck += thread.isAlive() ? 1 : 0;
        }
        System.out.printf("{\"seconds\": %f, \"pairs\": %d, \"stuck\": %d}%n", taken, pairs, stuck);
        if (stuck > 0) {
            Runtime.getRuntime().halt(0);
        }
    }

    static void main(String[] args, Function<String, Lock> make) throws Exception {
        int threads = args[0].equals("several") ? 1 : Integer.parseInt(args[3]);
        System.out.println("ready");
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine();) {
            String[] words = lines.nextLine().split(" ");
            Lock lock = make.apply(words[1]);
            if (words[0].equals("go")) {
                run(lock, threads, Double.parseDouble(args[4]));
            } else {
                lock.lock();
                System.out.println("held");
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
