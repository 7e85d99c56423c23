//! Threads of the Python guest when its state is captured: a daemon thread is there between two cells.

use cellar_engine::{Cell, Error, EventKind, Language, Session, SessionConfig, event::Scalar};
use futures::StreamExt;

use super::snapshots::{host, on_runtime, text};

/// Leaves a thread behind that sleeps again and again.
const DAEMON: &str = "
import threading, time
going, lock = True, threading.Lock()
def beat():
    while going:
        time.sleep(0.001)
daemon = threading.Thread(target=beat, name='beat', daemon=True)
daemon.start()
";

async fn python(session: &Session, code: &str) -> String {
    text(session, Language::Python, code).await
}

/// The names of the threads that a cell was told are lost, and its output.
async fn lost(session: &Session, code: &str) -> (Option<String>, String) {
    let mut run = session.run(vec![Cell::new(Language::Python, code)]).expect("a run");
    let (mut names, mut shown) = (None, String::new());
    while let Some(event) = run.next().await {
        match event.kind {
            EventKind::Status { op, fields, .. } if op == "threads_lost" => {
                names = fields.into_iter().find_map(|(field, value)| match value {
                    Scalar::Text(names) if field == "names" => Some(names),
                    _ => None,
                });
            }
            EventKind::Stdout { text, .. } => shown.push_str(&text),
            _ => {}
        }
    }
    (names, shown)
}

#[test]
fn no_snapshot_is_taken_while_there_are_threads() {
    on_runtime(async {
        let session = host().session(SessionConfig::default()).expect("a session");
        assert_eq!(python(&session, DAEMON).await, "(no output)");
        assert!(matches!(session.snapshot().await, Err(Error::Threads { language: Language::Python, count: 1 })));
        assert!(matches!(session.fork(None).await, Err(Error::Threads { .. })));
        assert_eq!(python(&session, "going = False\ndaemon.join()\nthreading.active_count()").await, "1");
        session.snapshot().await.expect("a snapshot");
    });
}

#[test]
fn a_session_that_sleeps_loses_its_threads_and_says_so() {
    on_runtime(async {
        let session = host().session(SessionConfig::default()).expect("a session");
        for _ in 0..2 {
            assert_eq!(python(&session, DAEMON).await, "(no output)");
            session.hibernate().await.expect("asleep");
            let told = lost(&session, "print(daemon.is_alive(), threading.active_count(), lock.locked())").await;
            assert_eq!(told, (Some("beat".to_owned()), "False 1 False\n".to_owned()));
            let again = "thread = threading.Thread(target=print, args=('on',))\nthread.start()\nthread.join()";
            assert_eq!(lost(&session, again).await, (None, "on\n".to_owned()));
            assert_eq!(python(&session, "daemon.join()\nlock.acquire(), threading.active_count()").await, "(True, 1)");
        }
    });
}

/// Starts threads, of which some never wait and the others do nothing else, and waits for them.
const CROWD: &str = "
import threading, time
def spin():
    while True:
        pass
threads = [threading.Thread(target=work) for work in (spin, threading.Event().wait, lambda: time.sleep(600), spin)]
for thread in threads:
    thread.start()
print('on', flush=True)
for thread in threads:
    thread.join()
";

#[test]
fn a_run_that_is_dropped_stops_its_threads() {
    on_runtime(async {
        let session = host().session(SessionConfig::default()).expect("a session");
        let mut run = session.run(vec![Cell::new(Language::Python, CROWD)]).expect("a run");
        while let Some(event) = run.next().await {
            if matches!(event.kind, EventKind::Stdout { .. }) {
                break;
            }
        }
        drop(run);
        let left = "threading.active_count(), any(thread.is_alive() for thread in threads)";
        assert_eq!(python(&session, left).await, "(1, False)");
    });
}
