//! Sessions that are recorded, and replayed where nothing of them is left.

use std::{path::Path, sync::Arc, time::Duration};

use cellar_engine::{
    Bridges, Cell, Event, EventKind, Language, Session, SessionConfig,
    bridges::{Call, CallFuture, Caller, Response, denied},
    config::KernelMode,
    replay::Replayed,
};
use futures::StreamExt;

use super::snapshots::{host, on_runtime, text};
use crate::support::{cellar_with_guests, run};

/// Tools that take a while, and an agent that runs a cell in the session it serves.
struct Slow;

impl Bridges for Slow {
    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        match call {
            Call::Tool { arguments, .. } => Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(30)).await;
                Ok(Response::Json(arguments))
            }),
            Call::Agent(_) => Box::pin(async move {
                let session = caller.session.for_agent(caller.depth + 1);
                let cell = Cell::new(Language::Python, "shared = 'from the agent'; print('at work')");
                let run = session.run(vec![cell]).expect("a run");
                Ok(Response::Text(run.collect_result().await.text().to_owned()))
            }),
            other => {
                let error = denied(&other);
                Box::pin(async move { Err(error) })
            }
        }
    }
}

fn recorded(file: &Path) -> SessionConfig {
    SessionConfig { bridges: Arc::new(Slow), record: Some(file.to_owned()), ..SessionConfig::default() }
}

async fn events(session: &Session, language: Language, code: &str) -> Vec<Event> {
    session.run(vec![Cell::new(language, code)]).expect("a run").collect().await
}

/// Replays a recording, and returns the events of each run.
async fn replayed(file: &Path) -> Vec<Vec<Event>> {
    let mut replay = host().replay(file).expect("a recording");
    let mut runs = Vec::new();
    while let Some(Replayed { run, event }) = replay.next().await.expect("a replay that does not diverge") {
        runs.resize(runs.len().max(run as usize), Vec::new());
        runs[run as usize - 1].push(event);
    }
    runs
}

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("recording");
    (folder, file)
}

#[test]
fn interleaved_runs_and_agents_interleave_again() {
    on_runtime(async {
        let (_folder, file) = place();
        let session = host().session(recorded(&file)).expect("a session");
        let waits = "import time, random\nfor n in range(3):\n    print(n, time.time_ns(), random.random(), await tool.echo.aio(n=n))";
        let waits_too = "for (const n of [0, 1, 2]) console.log(n, Date.now(), Math.random(), await tool.echo({n}))";
        let asks = "print(await agent.aio('do it'), shared)";
        let heard = tokio::join!(
            events(&session, Language::Python, waits),
            events(&session, Language::JavaScript, waits_too),
            events(&session, Language::Python, asks),
            events(&session, Language::Python, waits),
        );
        session.end_recording().expect("a recording");
        drop(session);
        let played = replayed(&file).await;
        assert_eq!(played.len(), 5, "four runs, and that of the agent");
        for heard in [heard.0, heard.1, heard.2, heard.3] {
            assert!(heard.len() > 4 && played.contains(&heard), "no run of {played:?} is {heard:?}");
        }
    });
}

#[test]
fn a_waiting_cell_that_the_host_ended_ends_there_again() {
    on_runtime(async {
        let (_folder, file) = place();
        let session = host().session(recorded(&file)).expect("a session");
        let mut waiting = Cell::new(Language::Python, "import asyncio\nprint('waits')\nawait asyncio.sleep(1000)");
        waiting.timeout = Some(Duration::from_secs(1));
        let waiting = session.run(vec![waiting]).expect("a run").collect::<Vec<Event>>();
        let computes = "for _ in range(200_000_000):\n    pass\nimport time\nprint('computed', time.time_ns())";
        let computing = Cell { timeout: Some(Duration::from_secs(600)), ..Cell::new(Language::Python, computes) };
        let computing = session.run(vec![computing]).expect("a run").collect::<Vec<Event>>();
        let (waited, computed) = tokio::join!(waiting, computing);
        session.end_recording().expect("a recording");
        drop(session);
        assert!(format!("{waited:?}").contains("another cell was running"), "{waited:?}");
        let played = replayed(&file).await;
        assert_eq!(played.len(), 2);
        for heard in [waited, computed] {
            assert!(played.contains(&heard), "no run of {played:?} is {heard:?}");
        }
    });
}

#[test]
fn a_recording_begins_in_the_middle_of_a_session() {
    on_runtime(async {
        let host = host();
        let before = host.session(SessionConfig::default()).expect("a session");
        text(&before, Language::Python, "rows = iter(range(10)); import random; random.seed(1); next(rows)").await;
        let snapshot = before.snapshot().await.expect("a snapshot");
        drop(before);
        // The second draws numbers of its own, and those are played again.
        for snapshot in [snapshot.clone(), snapshot.forked()] {
            let (_folder, file) = place();
            let session = host.restore(&snapshot, recorded(&file)).expect("a session");
            let heard = events(&session, Language::Python, "print(next(rows), random.random())").await;
            session.end_recording().expect("a recording");
            drop(session);
            assert_eq!(replayed(&file).await, [heard]);
        }
    });
}

#[test]
fn a_kernel_that_dies_dies_again_and_goes_on_from_its_checkpoint() {
    on_runtime(async {
        let (_folder, file) = place();
        let mut config = recorded(&file);
        config.limits.grace = Duration::from_millis(50);
        let session = host().session(config).expect("a session");
        let mut heard = vec![events(&session, Language::JavaScript, "let n = Math.random(); n").await];
        session.hibernate().await.expect("it falls asleep");
        // No poll for a stop is in it.
        let stubborn = Cell {
            timeout: Some(Duration::from_secs(1)),
            ..Cell::new(
                Language::JavaScript,
                "console.log(n); ('a' + '\\u0300\\u0316'.repeat(2 ** 20)).normalize('NFD')",
            )
        };
        let killed: Vec<Event> = session.run(vec![stubborn]).expect("a run").collect().await;
        let is_restored =
            |event: &Event| matches!(&event.kind, EventKind::Status { op, .. } if op == "kernel_restored");
        assert!(killed.iter().any(is_restored), "{killed:?}");
        heard.push(killed);
        heard.push(events(&session, Language::JavaScript, "console.log(n, Date.now())").await);
        session.end_recording().expect("a recording");
        drop(session);
        assert_eq!(replayed(&file).await, heard);
    });
}

#[test]
fn fuel_and_kernels_of_one_call_are_replayed() {
    on_runtime(async {
        for mode in [KernelMode::Session, KernelMode::PerCall] {
            let (_folder, file) = place();
            let mut config = recorded(&file);
            config.kernels.mode = mode;
            config.limits.fuel = Some(200_000_000);
            let session = host().session(config).expect("a session");
            let mut heard = Vec::new();
            for (language, code) in [
                (Language::Python, "import random; n = random.random(); print(n)"),
                (Language::JavaScript, "let n = Math.random(); n"),
                (Language::Python, "while True: pass"),
                (Language::JavaScript, "for (;;);"),
                (Language::Python, "print('n' in globals())"),
            ] {
                heard.push(events(&session, language, code).await);
            }
            session.end_recording().expect("a recording");
            drop(session);
            assert_eq!(replayed(&file).await, heard, "{mode:?}");
        }
    });
}

#[test]
fn the_command_line_records_and_replays() {
    let (folder, file) = place();
    let workspace = folder.path().join("workspace");
    std::fs::create_dir(&workspace).expect("a folder");
    std::fs::write(workspace.join("data.txt"), "from a file").expect("a file");
    let (file, place) = (file.to_str().expect("text"), workspace.to_str().expect("text"));
    let code = "import time, uuid; print(open('data.txt').read(), time.time(), uuid.uuid4(), tool)";
    let code = code.replace(", tool", "");
    let recorded =
        run(&mut cellar_with_guests(["eval", "-l", "py", "--events", "--workspace", place, "--record", file, &code]));
    assert_eq!((recorded.code, recorded.stderr.as_str()), (0, ""));
    assert!(recorded.stdout.contains("from a file"), "{}", recorded.stdout);
    std::fs::remove_dir_all(&workspace).expect("it was there");
    let replayed = run(&mut cellar_with_guests(["replay", file, "--events"]));
    assert_eq!((replayed.code, replayed.stdout), (0, recorded.stdout));
    let result = run(&mut cellar_with_guests(["replay", file, "--json"]));
    assert!(result.code == 0 && result.stdout.contains("from a file"), "{}", result.stdout);
    let none = run(&mut cellar_with_guests(["replay", file, "--run", "2"]));
    assert_eq!((none.code, none.stderr.contains("the recording has 1 runs, no run 2")), (2, true), "{}", none.stderr);

    let bytes = std::fs::read(file).expect("a recording");
    std::fs::write(file, &bytes[..bytes.len() - 5]).expect("room");
    let cut = run(&mut cellar_with_guests(["replay", file]));
    assert_eq!((cut.code, cut.stderr.contains("the recording is cut off")), (2, true), "{}", cut.stderr);
    std::fs::write(file, "something else").expect("room");
    let other = run(&mut cellar_with_guests(["replay", file]));
    assert_eq!((other.code, other.stderr.as_str()), (2, "error: this is not a recording\n"));
    let nowhere = run(&mut cellar_with_guests(["eval", "-l", "py", "--record", "/nowhere/at/all", "1"]));
    assert_eq!((nowhere.code, nowhere.stdout.as_str()), (2, ""), "{}", nowhere.stderr);
}
