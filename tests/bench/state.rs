//! Time to capture and restore a session, against the size of its state.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use cellar_engine::{GuestName, Language, Session, SessionConfig, Snapshot, store::SessionStore};

use crate::{
    Offer,
    lab::{LANGUAGES, Lab, Plan, trivial},
    machine::disk_usage,
    native,
    table::{Line, Samples, Unit},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[
    ("snapshot and restore", snapshot_and_restore),
    ("sleep and wake", sleep),
    ("pickle in native CPython", pickle),
    ("stored sessions", stored),
];

/// Millions of bytes of data that a session holds.
const SIZES: [u32; 4] = [0, 1, 10, 100];
/// The size that there are targets for.
const TARGET_SIZE: u32 = 10;

/// A cell that makes so many millions of bytes of objects, next to nothing of them alike.
fn data(language: Language, megabytes: u32) -> String {
    match language {
        Language::Python => format!("data = [n * 1.1 for n in range({})]", u64::from(megabytes) * 50_000),
        _ => format!("data = Array.from({{length: {}}}, (_, n) => [n * 1.1]); 1", u64::from(megabytes) * 10_000),
    }
}

fn session_with(lab: &Lab, megabytes: u32) -> Session {
    let session = lab.session();
    lab.run(&session, &data(lab.language, megabytes));
    session
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let began = Instant::now();
    let result = work();
    (began.elapsed(), result)
}

fn snapshot_and_restore(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for language in LANGUAGES {
        for megabytes in plan.pick(SIZES.as_slice(), &[0, TARGET_SIZE]) {
            let lab = Lab::open(plan, language);
            let session = session_with(&lab, *megabytes);
            let take = || lab.block_on(session.snapshot()).expect("a snapshot");
            let snapshot = take();
            let bytes = snapshot.to_bytes();
            let kept = snapshot.changed_bytes() as f64 / 1e6;
            let title = format!("{}, {kept:.1} MB changed", language.title());
            let (take_target, restore_target) =
                if *megabytes == TARGET_SIZE { (Some(10_000.0), Some(5_000.0)) } else { (None, None) };
            let what = format!("{title}: snapshot");
            lines.push(Line::time(what.clone(), &plan.sample(&what, || timed(take).0), take_target));
            let what = format!("{title}: to bytes");
            lines.push(Line::time(what.clone(), &plan.sample(&what, || timed(|| snapshot.to_bytes()).0), None));
            let restored = |snapshot: &Snapshot| {
                let restore = || lab.host.restore(snapshot, SessionConfig::default()).expect("a session");
                let (time, session) = timed(|| {
                    let session = restore();
                    lab.run(&session, trivial(language));
                    session
                });
                drop(session);
                lab.wait(Duration::from_millis(1));
                time
            };
            let what = format!("{title}: restore, and a cell");
            lines.push(Line::time(what.clone(), &plan.sample(&what, || restored(&snapshot)), restore_target));
            let what = format!("{title}: restore from bytes, and a cell");
            let from_bytes = || {
                let (time, snapshot) = timed(|| Snapshot::from_bytes(&bytes).expect("a snapshot"));
                time + restored(&snapshot)
            };
            lines.push(Line::time(what.clone(), &plan.sample(&what, from_bytes), restore_target));
            let fork = || {
                let (time, fork) = timed(|| {
                    let fork = lab.block_on(session.fork(None)).expect("a fork");
                    lab.run(&fork, trivial(language));
                    fork
                });
                drop(fork);
                lab.wait(Duration::from_millis(1));
                time
            };
            let what = format!("{title}: fork, and a cell");
            lines.push(Line::time(what.clone(), &plan.sample(&what, fork), None));
            let size = bytes.len() as f64 / 1e6;
            let target = (*megabytes == 0).then_some(0.2);
            lines.push(Line::new(format!("{title}: bytes of a snapshot"), Unit::Megabytes, size, size, target));
        }
    }
    lines
}

fn sleep(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for language in LANGUAGES {
        for megabytes in plan.pick(SIZES.as_slice(), &[1]) {
            let lab = Lab::open(plan, language);
            let session = session_with(&lab, *megabytes);
            let title = format!("{}, {megabytes} MB of data", language.title());
            let mut asleep = Samples::default();
            let what = format!("{title}: wake, and a cell");
            let awake = plan.sample(&what, || {
                asleep.push(timed(|| lab.block_on(session.hibernate()).expect("asleep")).0);
                // What it fell asleep with is compressed meanwhile, on another thread.
                lab.wait(Duration::from_millis(u64::from(*megabytes) / 2 + 2));
                lab.time(&session, trivial(language))
            });
            lines.push(Line::time(format!("{title}: fall asleep"), &asleep, None));
            lines.push(Line::time(what, &awake, (*megabytes <= TARGET_SIZE).then_some(5_000.0)));
        }
    }
    lines
}

/// Measures pickle on the same data, where it can be pickled at all.
fn pickle(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for megabytes in plan.pick(SIZES.as_slice(), &[TARGET_SIZE]) {
        let rounds = plan.pick(9, 3);
        let program = format!(
            "import pickle, time\n{}\nfor _ in range({rounds}):\n    a = time.perf_counter()\n    \
             bytes = pickle.dumps(data, 5)\n    b = time.perf_counter()\n    pickle.loads(bytes)\n    \
             print(b - a, time.perf_counter() - b, len(bytes))",
            data(Language::Python, *megabytes)
        );
        let (mut dumps, mut loads, mut size) = (Samples::default(), Samples::default(), 0.0);
        for line in native::output(GuestName::Python, &program).lines() {
            let figures: Vec<f64> = line.split(' ').filter_map(|figure| figure.parse().ok()).collect();
            let [dump, load, bytes] = figures[..] else { panic!("three figures, not `{line}`") };
            dumps.push(Duration::from_secs_f64(dump));
            loads.push(Duration::from_secs_f64(load));
            size = bytes / 1e6;
        }
        let title = format!("native CPython, {megabytes} MB of data");
        lines.push(Line::time(format!("{title}: pickle"), &dumps, None));
        lines.push(Line::time(format!("{title}: unpickle"), &loads, None));
        lines.push(Line::new(format!("{title}: bytes of a pickle"), Unit::Megabytes, size, size, None));
    }
    lines
}

/// Many sessions on disk: what they take there, and how soon one answers.
fn stored(plan: &Plan) -> Vec<Line> {
    let count = plan.pick(10_000, 200);
    let mut lines = Vec::new();
    for language in LANGUAGES {
        let lab = Lab::open(plan, language);
        let folder = tempfile::tempdir().expect("a folder");
        let store = SessionStore::open(folder.path()).expect("a store");
        let name = |number: usize| format!("session-{number}");
        let open = |number: usize| {
            let home = store.claim(&name(number)).expect("nobody else has it");
            lab.host.open_stored(home, SessionConfig::default()).expect("a session")
        };
        let session = open(0);
        lab.run(&session, trivial(language));
        let title = language.title();
        let what = format!("{title}: store a session");
        lines.push(Line::time(
            what.clone(),
            &plan.sample(&what, || {
                lab.run(&session, trivial(language));
                timed(|| lab.block_on(session.save()).expect("stored")).0
            }),
            None,
        ));
        drop(session);
        // All alike: a disk that syncs each would be what is measured.
        let state = std::fs::read(folder.path().join(name(0)).join("state")).expect("a state");
        for number in 1..count {
            let copy = folder.path().join(name(number));
            std::fs::create_dir_all(copy.join("workspace")).expect("a folder");
            std::fs::write(copy.join("lock"), "").expect("a file");
            std::fs::write(copy.join("state"), &state).expect("a file");
        }
        let used = disk_usage(folder.path());
        let what = format!("{title}: disk of {count} stored sessions");
        lines.push(Line::new(what, Unit::Megabytes, used, used, plan.pick(Some(3_000.0), None)));
        let mut turn = 0;
        let mut wake = || {
            // One after the other, all over the disk.
            turn = (turn + 7_919) % count;
            let (time, session) = timed(|| {
                let session = open(turn);
                lab.run(&session, trivial(language));
                session
            });
            drop(session);
            lab.wait(Duration::from_millis(1));
            time
        };
        let what = format!("{title}: wake one of {count} stored sessions, and a cell");
        lines.push(Line::time(what.clone(), &plan.sample(&what, &mut wake), 5_000.0));
        let what = format!("{title}: the same while every core runs cells");
        let samples = under_load(&lab, || plan.sample(&what, &mut wake));
        lines.push(Line::time(what, &samples, None));
    }
    lines
}

/// Does something while as many threads as there are cores run cells on the same host.
fn under_load<T>(lab: &Lab, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let busy = Lab::on(lab.host.clone(), lab.language);
                let session = busy.session();
                while !is_over.load(Ordering::Relaxed) {
                    busy.run(&session, trivial(lab.language));
                }
            });
        }
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}
