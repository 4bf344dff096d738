import java.util.ArrayList;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;

/** Curator's recipes. "shared" says what the arguments and the lines of input mean. The lease is ZooKeeper's session. */
public class Shared {
    private static CuratorFramework client;

    private static Crowd.Lock of(InterProcessLock lock) {
        return new Crowd.Lock() {
            public void lock() throws Exception {
                lock.acquire();
            }

            public void unlock() throws Exception {
                lock.release();
            }
        };
    }

    private static Crowd.Lock permit(InterProcessSemaphoreV2 semaphore) {
        return new Crowd.Lock() {
            private final ThreadLocal<Lease> lease = new ThreadLocal<>();

            public void lock() throws Exception {
                lease.set(semaphore.acquire());
            }

            public void unlock() {
                semaphore.returnLease(lease.get());
            }
        };
    }

    private static Crowd.Lock make(String kind, String name, int count) {
        String path = "/" + name.replace(':', '-');
        switch (kind) {
            case "read":
                return of(new InterProcessReadWriteLock(client, path).readLock());
            case "write":
                return of(new InterProcessReadWriteLock(client, path).writeLock());
            case "permit":
                return permit(new InterProcessSemaphoreV2(client, path, count));
            default:
                List<String> paths = new ArrayList<>();
                for (int i = 0; i < count; i++) {
                    paths.add(path + "-" + i);
                }
                return of(new InterProcessMultiLock(client, paths));
        }
    }

    public static void main(String[] args) throws Exception {
        int lease = Integer.parseInt(args[2]);
        client = CuratorFrameworkFactory.newClient(args[1], lease, lease, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        Crowd.main(args, (name) -> make(args[0], name, Integer.parseInt(args[3])));
    }
}
