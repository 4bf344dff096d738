//! rslock, with tokio's tasks on as many threads as there are cores. "run" says what the arguments and the lines of
//! input mean.
//!
//! As its documentation says: `LockManager::using`, which tries for ever and extends the lock by itself. The defaults
//! stand: 3 tries, up to 200 ms apart, again and again.

use rslock::LockManager;
use std::error::Error;
use std::fs::File;
use std::io::BufRead;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

const GRACE: Duration = Duration::from_secs(2);

struct Crowd {
    lease: Duration,
    file: Option<File>,
    over: AtomicBool,
    gave_up: AtomicU64,
    ended: AtomicUsize,
    acquires: Vec<AtomicU64>,
}

fn increment(file: &File) {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0).expect("the counter");
    let count = u64::from_le_bytes(bytes) + 1;
    file.write_all_at(&count.to_le_bytes(), 0).expect("the counter");
}

async fn contend(locks: LockManager, name: String, crowd: Arc<Crowd>, number: usize) {
    while !crowd.over.load(SeqCst) {
        let entered = async || {
            if crowd.over.load(SeqCst) {
                return;
            }
            if let Some(file) = &crowd.file {
                increment(file);
            }
            crowd.acquires[number].fetch_add(1, SeqCst);
        };
        if locks.using(name.as_bytes(), crowd.lease, entered).await.is_err() {
            crowd.gave_up.fetch_add(1, SeqCst);
        }
    }
    crowd.ended.fetch_add(1, SeqCst);
}

async fn run_crowd(locks: &LockManager, lease: Duration, count: usize, seconds: f64, words: &[&str]) {
    let open = |path: &&str| File::options().read(true).write(true).open(path).expect("the counter");
    let crowd = Arc::new(Crowd {
        lease,
        file: words.get(1).map(open),
        over: AtomicBool::new(false),
        gave_up: AtomicU64::new(0),
        ended: AtomicUsize::new(0),
        acquires: (0..count).map(|_| AtomicU64::new(0)).collect(),
    });
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for i in 0..count {
        let own = || format!("{}:{i}", words[0]);
        let name = crowd.file.as_ref().map_or_else(own, |_| words[0].to_string());
        tasks.spawn(contend(locks.clone(), name, crowd.clone(), i));
    }
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    crowd.over.store(true, SeqCst);
    let taken = start.elapsed().as_secs_f64();
    // Gives up when none of them has ended for GRACE.
    while let Ok(Some(_)) = tokio::time::timeout(GRACE, tasks.join_next()).await {}
    let stuck = count - crowd.ended.load(SeqCst);
    let gave_up = crowd.gave_up.load(SeqCst);
    let acquires: Vec<u64> = crowd.acquires.iter().map(|count| count.load(SeqCst)).collect();
    println!(r#"{{"seconds": {taken}, "gave_up": {gave_up}, "stuck": {stuck}, "acquires": {acquires:?}}}"#);
    if stuck > 0 {
        std::process::exit(0);
    }
}

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_nanos()
}

/// Holding means being inside of `using`: its routine waits until the sender is dropped.
async fn take(locks: &LockManager, lease: Duration, count: usize, name: &str) -> (watch::Sender<()>, Vec<JoinHandle<()>>) {
    let (sender, gone) = watch::channel(());
    let (entered, mut entries) = mpsc::channel(count);
    let mut held = Vec::new();
    for i in 0..count {
        let (locks, name, entered, mut gone) = (locks.clone(), format!("{name}:{i}"), entered.clone(), gone.clone());
        held.push(tokio::spawn(async move {
            let inside = async || {
                entered.send(()).await.expect("somebody who waits");
                let _ = gone.changed().await;
            };
            let _ = locks.using(name.as_bytes(), lease, inside).await;
        }));
    }
    for _ in 0..count {
        entries.recv().await;
    }
    println!("{}", now());
    (sender, held)
}

async fn release((sender, held): (watch::Sender<()>, Vec<JoinHandle<()>>)) {
    let called = now();
    drop(sender);
    for one in held {
        let _ = one.await;
    }
    println!("{called}");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let lease = Duration::from_millis(args[3].parse()?);
    let (count, seconds) = (args[4].parse()?, args[5].parse()?);
    let locks = LockManager::new(vec![args[2].as_str()]);
    locks.acquire(b"ready".as_slice(), lease).await?.release().await;
    println!("ready");
    let mut held = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        if args[1] == "crowd" {
            run_crowd(&locks, lease, count, seconds, &words).await;
        } else if let Some(held) = held.take() {
            release(held).await;
        } else {
            held = Some(take(&locks, lease, count, words[0]).await);
        }
    }
    Ok(())
}
