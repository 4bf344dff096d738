import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's read-write lock, its semaphore whose permits expire, and its lock of several. "shared" says what the arguments
 * and the lines of input mean. The watchdog renews all but permits.
 */
public class Shared {
    private static RedissonClient redisson;
    private static long lease;

    private static Crowd.Lock of(RLock lock) {
        return new Crowd.Lock() {
            public void lock() {
                lock.lock();
            }

            public void unlock() {
                lock.unlock();
            }
        };
    }

    private static Crowd.Lock permit(RPermitExpirableSemaphore semaphore) {
        return new Crowd.Lock() {
            private final ThreadLocal<String> id = new ThreadLocal<>();

            public void lock() throws Exception {
                id.set(semaphore.acquire(lease, TimeUnit.MILLISECONDS));
            }

            public void unlock() {
                semaphore.release(id.get());
            }
        };
    }

    private static Crowd.Lock make(String kind, String name, int count) {
        switch (kind) {
            case "read":
                return of(redisson.getReadWriteLock(name).readLock());
            case "write":
                return of(redisson.getReadWriteLock(name).writeLock());
            case "permit":
                RPermitExpirableSemaphore semaphore = redisson.getPermitExpirableSemaphore(name);
                semaphore.trySetPermits(count);
                return permit(semaphore);
            default:
                RLock[] locks = new RLock[count];
                for (int i = 0; i < count; i++) {
                    locks[i] = redisson.getLock(name + ":" + i);
                }
                return of(redisson.getMultiLock(locks));
        }
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(args[1]);
        lease = Long.parseLong(args[2]);
        config.setLockWatchdogTimeout(lease);
        redisson = Redisson.create(config);
        Crowd.main(args, (name) -> make(args[0], name, Integer.parseInt(args[3])));
    }
}
