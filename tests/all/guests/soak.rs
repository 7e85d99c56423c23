//! Thousands of mixed runs over hundreds of sessions, a few at a time, some given up at any moment: each is accounted
//! for, and nothing of them stays.
//!
//! `CELLAR_SOAK_RUNS` and `CELLAR_SOAK_SEED` choose another soak; a failure names the seed.

#![allow(clippy::print_stdout, reason = "the figures are for who runs it by hand")]

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use cellar_engine::{
    Bridges, Cell, EventKind, Host, HostConfig, HostFolders, Language, Limits, Run, Session, SessionConfig,
    artifacts::ArtifactStore,
    audit::{Audit, AuditEntry, AuditKind, AuditSink},
    bridges::{Call, CallError, CallErrorKind, CallFuture, Caller, Response},
    config::{KernelMode, OutputOptions, Rests},
};
use futures::{StreamExt, future::join_all};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::snapshots::cache;
use crate::{
    output::resident,
    support::{root, stops},
};

const SESSIONS: usize = 200;
/// Runs at the same time.
const WORKERS: usize = 16;
/// Kernels that may be awake: fewer than the sessions need, so that they fall asleep and wake all the time.
const AWAKE_MAX: usize = 48;
/// Before this share of the runs memory still gets warm: kernels of all sizes are made and kept for the next session.
const WARM_SHARE: f64 = 0.4;
/// By how much the median of resident memory may differ between the halves of what follows: the allocator's slack, and
/// what cells have kept in their sessions since. The median, because a cell may hold 64 MiB for a moment.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// Cells to run, each with its weight and the required end of the first cell, if that is certain.
const HABITS: &[(u32, Language, &str, Ends)] = &[
    (60, Language::Python, "print('hello', 40 + 2)", Ends::Well),
    (60, Language::JavaScript, "console.log('hello', 40 + 2)", Ends::Well),
    (20, Language::Python, "n = globals().get('n', 0) + 1\nn", Ends::Well),
    (20, Language::JavaScript, "globalThis.n = (globalThis.n ?? 0) + 1", Ends::Well),
    (10, Language::Python, "kept = [i * i for i in range(5000)]\nsum(kept)", Ends::Well),
    (10, Language::JavaScript, "var kept = Array.from({ length: 5000 }, (_, i) => i * i); kept.length", Ends::Well),
    (10, Language::Python, "1 / 0", Ends::Badly),
    (10, Language::JavaScript, "throw new Error('on purpose')", Ends::Badly),
    (5, Language::Python, "def broken(:", Ends::Badly),
    (5, Language::JavaScript, "let let = ;", Ends::Badly),
    (10, Language::Python, "tool.echo(a=1)", Ends::Well),
    (10, Language::JavaScript, "await tool.echo({ a: 1 })", Ends::Well),
    (5, Language::Python, "tool.fail()", Ends::Badly),
    (5, Language::JavaScript, "tool.fail.sync()", Ends::Badly),
    (5, Language::Python, "await parallel([lambda: tool.slow.aio()] * 3)", Ends::Anyhow),
    (5, Language::Python, "import asyncio\nawait asyncio.gather(*(tool.slow.aio() for _ in range(3)))", Ends::Well),
    (5, Language::JavaScript, "await Promise.all([1, 2, 3].map(() => tool.slow()))", Ends::Well),
    (5, Language::Python, "import asyncio\nawait asyncio.sleep(0.01)", Ends::Well),
    (5, Language::JavaScript, "await new Promise((done) => setTimeout(done, 10))", Ends::Well),
    (3, Language::Python, "import asyncio\nleft = asyncio.create_task(tool.slow.aio())", Ends::Well),
    (3, Language::JavaScript, "void tool.slow()", Ends::Well),
    (2, Language::Python, "await tool.hang.aio()", Ends::Badly),
    (2, Language::JavaScript, "await tool.hang()", Ends::Badly),
    (1, Language::Python, "tool.hang()", Ends::Badly),
    (1, Language::Python, "while True: pass", Ends::Badly),
    (1, Language::JavaScript, "while (true);", Ends::Badly),
    (2, Language::Python, "while True: print('flood' * 100)", Ends::Badly),
    (2, Language::JavaScript, "while (true) console.log('flood'.repeat(100));", Ends::Badly),
    (2, Language::Python, "print('long\\n' * 30_000)", Ends::Well),
    (2, Language::Python, "for i in range(200): display({'i': i})", Ends::Well),
    (4, Language::Python, "open('f.txt', 'w').write('x' * 10_000); f = open('f.txt'); f.read(3)", Ends::Well),
    (4, Language::JavaScript, "await write('g.txt', 'x'.repeat(10_000)); (await read('g.txt')).length", Ends::Well),
    (2, Language::Python, "x = 'm' * (100 << 20)", Ends::Badly),
    (2, Language::JavaScript, "new Uint8Array(100 << 20).fill(1)", Ends::Badly),
    (1, Language::Python, "import os\nos.abort()", Ends::Badly),
    (2, Language::Python, "raise SystemExit(3)", Ends::Badly),
    (
        3,
        Language::Python,
        "import asyncio\ntry:\n    await asyncio.sleep(100)\nfinally:\n    print('on the way out')",
        Ends::Badly,
    ),
];

/// Required end of a run that is neither dropped nor cancelled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    Well,
    Badly,
    Anyhow,
}

/// Tools; how many of their calls are under way.
#[derive(Default)]
struct Tools(Arc<AtomicUsize>);

struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn new(count: &Arc<AtomicUsize>) -> UnderWay {
        count.fetch_add(1, Ordering::SeqCst);
        UnderWay(count.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Bridges for Tools {
    fn call(&self, call: Call, _caller: Caller) -> CallFuture {
        let count = self.0.clone();
        Box::pin(async move {
            let _under_way = UnderWay::new(&count);
            match &call {
                Call::Tool { name, .. } if name == "slow" => tokio::time::sleep(Duration::from_millis(5)).await,
                Call::Tool { name, .. } if name == "hang" => std::future::pending().await,
                Call::Tool { name, .. } if name == "echo" => {}
                _ => return Err(CallError::new(CallErrorKind::Failed, "it failed on purpose")),
            }
            Ok(Response::Json("{}".to_owned()))
        })
    }
}

/// Audit log in memory: by run, its start and its outcome.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<HashMap<String, Vec<String>>>>);

impl AuditSink for Ledger {
    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let word = match &entry.kind {
            AuditKind::RunStarted(_) => "started".to_owned(),
            AuditKind::RunFinished(run) => run.outcome.clone(),
            _ => return Ok(()),
        };
        let run = entry.run.clone().expect("a run");
        self.0.lock().expect("the ledger").entry(run).or_default().push(word);
        Ok(())
    }
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Came {
    Complete,
    Error,
    /// Dropped by its reader.
    Dropped,
}

/// One soak.
struct Soak {
    host: Host,
    sessions: Vec<Mutex<Session>>,
    config: SessionConfig,
    calls: Arc<AtomicUsize>,
    ledger: Ledger,
}

impl Soak {
    fn new(store: &Path) -> Soak {
        let rests = Rests { awake_max: AWAKE_MAX, ..Rests::default() };
        let kernels_max = AWAKE_MAX as u32 + 2 * WORKERS as u32;
        let host = HostConfig {
            kernels_max,
            rests,
            stops: stops(),
            ..HostConfig::new(HostFolders { guests: root().join("target/guests"), cache: cache() })
        };
        let host = Host::open(host).expect("a host");
        let (tools, ledger) = (Tools::default(), Ledger::default());
        let calls = tools.0.clone();
        let limits = Limits {
            timeout: Duration::from_secs(1),
            grace: Duration::from_secs(5),
            memory_bytes: 96 << 20,
            output_bytes: 512 << 10,
            ..Limits::default()
        };
        let artifacts = ArtifactStore::open(store, Default::default()).expect("a store");
        let outputs = OutputOptions { artifacts: Some(artifacts), ..OutputOptions::default() };
        let config = SessionConfig {
            limits,
            bridges: Arc::new(tools),
            outputs,
            audit: Some(Audit::to(ledger.clone())),
            ..SessionConfig::default()
        };
        let soak = Soak { host, sessions: Vec::new(), config, calls, ledger };
        let sessions = (0..SESSIONS).map(|number| Mutex::new(soak.open(number))).collect();
        Soak { sessions, ..soak }
    }

    /// A session; one in ten has a kernel for each cell.
    fn open(&self, number: usize) -> Session {
        let mut config = self.config.clone();
        config.kernels.mode = if number.is_multiple_of(10) { KernelMode::PerCall } else { KernelMode::Session };
        self.host.session(config).expect("a session")
    }

    /// Does something, and then makes a run.
    async fn step(&self, rng: &mut StdRng) -> (String, Came) {
        let place = rng.random_range(0..SESSIONS);
        let session = self.sessions[place].lock().expect("a session").clone();
        match rng.random_range(0..100) {
            0..2 => session.reset(if rng.random() { Language::Python } else { Language::JavaScript }),
            2..4 => drop(session.hibernate().await),
            4..6 => {
                // The fork takes the place of its origin, which goes when the last run in it has ended.
                if let Ok(fork) = session.fork(None).await {
                    *self.sessions[place].lock().expect("a session") = fork;
                }
            }
            6 => *self.sessions[place].lock().expect("a session") = self.open(place),
            7 => {
                if let Ok(snapshot) = session.snapshot().await {
                    drop(session.rewind(&snapshot));
                }
            }
            8 => drop(session.variables(Language::Python).await),
            _ => {}
        }
        let (habits, cells) = cells(rng);
        let run = session.run(cells).expect("a run");
        let id = run.id().to_string();
        let came = follow(run, rng).await;
        // What others did to the session meanwhile may have ended it, but nothing makes it succeed.
        if let Ends::Badly = habits[0] {
            assert_ne!(came, Came::Complete, "{id}");
        }
        (id, came)
    }
}

/// One to three cells, and how each ends.
fn cells(rng: &mut StdRng) -> (Vec<Ends>, Vec<Cell>) {
    let total: u32 = HABITS.iter().map(|(often, ..)| often).sum();
    let count = if rng.random_bool(0.2) { rng.random_range(2..=3) } else { 1 };
    let pick = |rng: &mut StdRng| {
        let mut place = rng.random_range(0..total);
        let habit = HABITS.iter().find(|(often, ..)| {
            let is_it = place < *often;
            place = place.saturating_sub(*often);
            is_it
        });
        let (_, language, code, ends) = habit.expect("a habit");
        let cell = Cell { reset: rng.random_bool(0.02), ..Cell::new(*language, *code) };
        (*ends, cell)
    };
    (0..count).map(|_| pick(rng)).unzip()
}

/// Reads a run, in one way or another, and checks that it tells of all and in order.
async fn follow(mut run: Run, rng: &mut StdRng) -> Came {
    let drop_at = rng.random_bool(0.1).then(|| rng.random_range(0..12_u64));
    let drop_after = rng.random_bool(0.03).then(|| Duration::from_millis(rng.random_range(0..50)));
    let cancel_at = rng.random_bool(0.05).then(|| rng.random_range(0..6_u64));
    let is_slow = rng.random_bool(0.02);
    let began = Instant::now();
    let (mut next, mut open, mut finished) = (0, None, None);
    loop {
        if drop_at == Some(next) {
            return Came::Dropped;
        }
        if cancel_at == Some(next) {
            run.cancel();
        }
        let event = match drop_after {
            Some(after) => match tokio::time::timeout(after.saturating_sub(began.elapsed()), run.next()).await {
                Ok(event) => event,
                Err(_) => return Came::Dropped,
            },
            None => run.next().await,
        };
        let Some(event) = event else { break };
        assert_eq!(event.seq, next, "numbered without gaps");
        assert_eq!(finished, None, "{:?} behind the last", event.kind);
        next += 1;
        match event.kind {
            EventKind::CellStarted { index, .. } => assert_eq!(open.replace(index), None, "one cell at a time"),
            EventKind::CellFinished { index, .. } => {
                assert!(open.take().is_none_or(|started| started == index), "the cell that began");
            }
            EventKind::RunFinished { is_error, .. } => finished = Some(is_error),
            _ => {}
        }
        if is_slow && next < 100 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert_eq!(open, None, "a cell has no end");
    match finished.expect("an end") {
        true => Came::Error,
        false => Came::Complete,
    }
}

/// Returns the targets of this process's open file descriptors.
fn descriptors() -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").expect("proc").flatten();
    let mut targets: Vec<String> =
        open.filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.display().to_string())).collect();
    targets.retain(|target| !target.starts_with("/proc/"));
    targets.sort_unstable();
    targets
}

/// Names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Waits until `what` is nothing any more.
async fn until_nothing<T: std::fmt::Debug + PartialEq + Default>(name: &str, what: impl Fn() -> T) {
    let began = Instant::now();
    while what() != T::default() {
        assert!(began.elapsed() < Duration::from_secs(60), "{name} stay: {:?}", what());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn mixed_runs_are_all_accounted_for_and_leave_nothing() {
    let runs = usize::try_from(setting("CELLAR_SOAK_RUNS", 2_000)).expect("a number");
    let seed = setting("CELLAR_SOAK_SEED", 6);
    println!("CELLAR_SOAK_SEED={seed} CELLAR_SOAK_RUNS={runs}");
    let (temporary, store) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    tempfile::env::override_temp_dir(temporary.path()).expect("nobody else has");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        // Whatever is opened once and kept is open now.
        drop(soak(store.path(), seed, WORKERS).await);
        let (open_before, tasks_before) = (descriptors(), tasks());
        let began = Instant::now();
        let (came, memory) = soak(store.path(), seed, runs).await;
        println!("{runs} runs in {:.1} s: {came:?}", began.elapsed().as_secs_f64());
        let shown: Vec<u64> = memory.chunks(memory.len().div_ceil(10)).map(|tenth| median(tenth) >> 20).collect();
        println!("resident: {shown:?} MiB in each tenth, {} MiB after", resident() >> 20);
        let warm = &memory[(memory.len() as f64 * WARM_SHARE) as usize..];
        let (early, late) = warm.split_at(warm.len() / 2);
        let growth = median(late).saturating_sub(median(early));
        assert!(growth < GROWTH_BYTES_MAX, "{} MiB grown", growth >> 20);
        assert!(Came::ALL.iter().all(|each| came.contains_key(each)), "{came:?}");
        until_nothing("tasks", || tasks().saturating_sub(tasks_before)).await;
        until_nothing("descriptors", || {
            let mut open = descriptors();
            open_before.iter().for_each(|known| {
                if let Some(place) = open.iter().position(|each| each == known) {
                    open.swap_remove(place);
                }
            });
            open
        })
        .await;
        until_nothing("temporary files", || names(temporary.path())).await;
    });
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

impl Came {
    const ALL: [Came; 3] = [Came::Complete, Came::Error, Came::Dropped];
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// Runs a soak to its end. Returns what runs came to, and resident memory after each of them.
async fn soak(store: &Path, seed: u64, runs: usize) -> (HashMap<Came, usize>, Vec<u64>) {
    let soak = Arc::new(Soak::new(store));
    let memory = Arc::new(Mutex::new(Vec::with_capacity(runs)));
    let work = (0..WORKERS).map(|worker| {
        let (soak, memory) = (soak.clone(), memory.clone());
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1_000) + worker as u64);
            let mut made = Vec::new();
            for _ in 0..runs / WORKERS {
                made.push(soak.step(&mut rng).await);
                memory.lock().expect("the samples").push(resident());
            }
            made
        })
    });
    let made: Vec<_> = join_all(work).await.into_iter().flat_map(|made| made.expect("no run broke a rule")).collect();
    let memory = std::mem::take(&mut *memory.lock().expect("the samples"));
    let mut held = (0, 0);
    for session in &soak.sessions {
        let session = session.lock().expect("a session").clone();
        if let Ok(snapshot) = session.snapshot().await {
            held = (held.0 + snapshot.changed_bytes(), held.1 + snapshot.to_bytes().len() as u64);
        }
    }
    println!("sessions: {} MiB changed, {} MiB packed", held.0 >> 20, held.1 >> 20);
    // The session's own runs are over; what their cells left running goes with the sessions.
    let Soak { host, sessions, config, calls, ledger, .. } = Arc::into_inner(soak).expect("nobody else has it");
    drop((sessions, config));
    until_nothing("kernels", || host.kernels()).await;
    until_nothing("calls", || calls.load(Ordering::SeqCst)).await;
    let mut came = HashMap::new();
    let mut ledger = std::mem::take(&mut *ledger.0.lock().expect("the ledger"));
    for (id, each) in made {
        *came.entry(each).or_default() += 1;
        let entries = ledger.remove(&id).unwrap_or_default();
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        let is_told = match each {
            Came::Complete => entries == ["started", "complete"],
            Came::Error => entries == ["started", "error"],
            // One that was dropped before its first entry has none; the last may have been written before it was read.
            Came::Dropped => matches!(entries[..], [] | ["started", _] | [_, "started"]),
        };
        assert!(is_told, "{id} came to {each:?}, and is logged as {entries:?}");
    }
    assert!(ledger.is_empty(), "runs that nobody made: {ledger:?}");
    (came, memory)
}
