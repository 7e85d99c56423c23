//! Many sessions on few kernels: those that wait sleep, wake in order, and lose nothing.
//!
//! `CELLAR_MANY_SESSIONS` chooses another number of them.

#![allow(clippy::print_stdout, reason = "the figures are for who runs it by hand")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use cellar_engine::{
    Bridges, Cell, EventKind, Host, HostConfig, HostFolders, Language, Limits, RunResult, Session, SessionConfig,
    bridges::{Call, CallFuture, Caller, Response},
    outcome::FailureCode,
};
use futures::{StreamExt, future::join_all};
use tokio::sync::watch;

use super::snapshots::cache;
use crate::{output::resident, support::root};

/// Sessions, unless the environment says otherwise.
const SESSIONS: usize = 300;
const KERNELS: u32 = 16;
/// Memory that a session which sleeps may take, with all that the test itself keeps of it.
const SESSION_BYTES_MAX: u64 = 512 << 10;
/// Memory that a kernel which is awake may take, with the copies that are made of it when it falls asleep and wakes.
const KERNEL_BYTES_MAX: u64 = 32 << 20;

fn host(kernels_max: u32) -> Host {
    let folders = HostFolders { guests: root().join("target/guests"), cache: cache() };
    Host::open(HostConfig { kernels_max, ..HostConfig::new(folders) }).expect("a host")
}

/// A tool whose calls are answered when the gate opens.
struct Gate(watch::Sender<bool>);

impl Bridges for Gate {
    fn call(&self, _call: Call, _caller: Caller) -> CallFuture {
        let mut open = self.0.subscribe();
        Box::pin(async move {
            let _ = open.wait_for(|open| *open).await;
            Ok(Response::Json("7".to_owned()))
        })
    }
}

/// Returns the cells of a session: one that makes state, one that waits in the middle, one that checks.
fn cells(number: usize) -> [Cell; 3] {
    let (language, sources) = match number % 2 {
        0 => (
            Language::Python,
            [
                format!("import asyncio\nn = {number}\nheld = iter(range(n, n + 9))"),
                "a = next(held)\nawait asyncio.sleep(0.05)\nb = await tool.gate.aio()\nawait asyncio.sleep(0.05)\na + b".to_owned(),
                "print(n, next(held), b)".to_owned(),
            ],
        ),
        _ => (
            Language::JavaScript,
            [
                format!("let n = {number}; const held = [n, n + 1][Symbol.iterator](); const pause = () => new Promise((done) => setTimeout(done, 50));"),
                "let a = held.next().value; await pause(); let b = await tool.gate({}); await pause(); a + b".to_owned(),
                "console.log(n, held.next().value, b)".to_owned(),
            ],
        ),
    };
    sources.map(|code| Cell { timeout: Some(Duration::from_secs(600)), ..Cell::new(language, code) })
}

async fn text(session: &Session, cell: Cell) -> String {
    session.run(vec![cell]).expect("a run").collect_result().await.text()
}

#[test]
fn sessions_that_await_at_once_all_come_back_on_few_kernels() {
    let count = std::env::var("CELLAR_MANY_SESSIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(SESSIONS);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let host = host(KERNELS);
        let (open, _) = watch::channel(false);
        let gate = Arc::new(Gate(open.clone()));
        let config = || SessionConfig { bridges: gate.clone(), ..SessionConfig::default() };
        let before = resident();
        let began = Instant::now();
        let waiting = Arc::new(tokio::sync::Semaphore::new(0));
        let work = (0..count).map(|number| {
            let session = host.session(config()).expect("a session");
            let waiting = waiting.clone();
            tokio::spawn(async move {
                let [first, second, third] = cells(number);
                assert_eq!(text(&session, first).await, "(no output)", "session {number}");
                let mut run = session.run(vec![second]).expect("a run");
                let mut result = RunResult::default();
                while let Some(event) = run.next().await {
                    if let EventKind::CallStarted { .. } = event.kind {
                        waiting.add_permits(1);
                    }
                    result.apply(&event);
                }
                assert_eq!(result.text(), (number + 7).to_string(), "session {number}");
                let expected = format!("{number} {} 7", number + 1);
                assert_eq!(text(&session, third).await.trim_end(), expected, "session {number}");
                session
            })
        });
        let work: Vec<_> = work.collect();
        let all = waiting.acquire_many(u32::try_from(count).expect("a number")).await.expect("open");
        let all_wait = began.elapsed();
        assert!(host.kernels() <= KERNELS as usize, "{} kernels are awake", host.kernels());
        let grown = resident().saturating_sub(before);
        open.send_replace(true);
        let sessions = join_all(work).await;
        drop(all);
        println!(
            "{count} sessions wait after {:.1} s with {} MiB, and have come back after {:.1} s",
            all_wait.as_secs_f64(),
            grown >> 20,
            began.elapsed().as_secs_f64()
        );
        let bound = count as u64 * SESSION_BYTES_MAX + u64::from(KERNELS) * KERNEL_BYTES_MAX;
        assert!(grown < bound, "{} MiB for {count} sessions", grown >> 20);
        assert!(sessions.into_iter().all(|session| session.is_ok()), "a session lost something");
    });
}

#[test]
fn a_cell_waits_for_room_as_long_as_it_may_and_says_so() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let host = host(1);
        let open = || host.session(SessionConfig::default()).expect("a session");
        let (holder, other) = (open(), open());
        // It holds the only kernel, because it does not await.
        let mut holding =
            holder.run(vec![Cell::new(Language::Python, "import time\nprint('on')\ntime.sleep(60)")]).expect("a run");
        while !matches!(holding.next().await.expect("an event").kind, EventKind::Stdout { .. }) {}
        let hurried = Cell { timeout: Some(Duration::from_secs(1)), ..Cell::new(Language::JavaScript, "1") };
        let events: Vec<_> = other.run(vec![hurried]).expect("a run").map(|event| event.kind).collect().await;
        let told = |kind: &EventKind| matches!(kind, EventKind::Status { op, .. } if op == "kernel_awaited");
        assert!(events.iter().any(told), "{events:?}");
        let failure = events.iter().find_map(|kind| match kind {
            EventKind::CellFinished { outcome, .. } => outcome.failure(),
            _ => None,
        });
        assert_eq!(failure.and_then(|failure| failure.code), Some(FailureCode::Busy), "{events:?}");
        // One that is cancelled while it waits ends at once.
        let run = other.run(vec![Cell::new(Language::JavaScript, "1")]).expect("a run");
        let canceller = run.canceller();
        let ended = tokio::spawn(run.collect_result());
        tokio::task::yield_now().await;
        canceller.cancel();
        assert!(ended.await.expect("no panic").text().contains("CellInterrupted"));
        // One that may wait has its turn.
        let patient = tokio::spawn({
            let other = other.clone();
            async move { text(&other, Cell::new(Language::JavaScript, "40 + 2")).await }
        });
        drop(holding);
        assert_eq!(patient.await.expect("no panic"), "42");
    });
}

#[test]
fn a_cell_that_is_stopped_while_its_kernel_sleeps_without_room_keeps_its_state() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let host = host(1);
        let limits = Limits { grace: Duration::from_millis(100), ..Limits::default() };
        let open = || host.session(SessionConfig { limits: limits.clone(), ..SessionConfig::default() }).expect("a session");
        let (sleeper, holder) = (open(), open());
        let source = "import asyncio\nleft = []\nkept = 5\nprint('on')\ntry:\n    await asyncio.sleep(600)\nfinally:\n    left.append('cleaned')";
        let mut waiting = sleeper.run(vec![Cell::new(Language::Python, source)]).expect("a run");
        let canceller = waiting.canceller();
        let mut result = RunResult::default();
        loop {
            let event = waiting.next().await.expect("an event");
            result.apply(&event);
            if matches!(event.kind, EventKind::Stdout { .. }) {
                break;
            }
        }
        let waiting = tokio::spawn(async move {
            while let Some(event) = waiting.next().await {
                result.apply(&event);
            }
            result
        });
        // The kernel is given back for the holder's, who keeps it.
        let mut holding = holder.run(vec![Cell::new(Language::Python, "import time\nprint('on')\ntime.sleep(60)")]).expect("a run");
        while !matches!(holding.next().await.expect("an event").kind, EventKind::Stdout { .. }) {}
        canceller.cancel();
        let stopped = waiting.await.expect("no panic");
        assert!(stopped.text().contains("CellInterrupted"), "{}", stopped.text());
        drop(holding);
        assert_eq!(text(&sleeper, Cell::new(Language::Python, "kept, left")).await, "(5, ['cleaned'])");
    });
}
