//! Sessions that wait for input: asleep, past the time of their cells, and not for ever.

use std::time::Duration;

use cellar_engine::{
    Cell, EventKind, Host, HostConfig, HostFolders, Language, Limits, Run, RunResult, Session, SessionConfig,
    config::Rests,
};
use futures::StreamExt;

use super::snapshots::{cache, on_runtime, text};
use crate::support::root;

/// Cells that ask for input, in both languages, awaited or not, with their results for `Ada`.
const ASKING: [(Language, &str, &str); 4] = [
    (Language::Python, "kept = 1\nname = input('name? ')\nname[::-1]", "'adA'"),
    (Language::Python, "kept = 1\nname = await input.aio('name? ')\nname[::-1]", "'adA'"),
    (Language::JavaScript, "let kept = 1; const name = await input('name? '); name + '!'", "Ada!"),
    (
        Language::JavaScript,
        "let kept = 1; const name = await new Promise((good) => input('name? ').then(good)); name",
        "Ada",
    ),
];

/// A host with room for one kernel.
fn host(rests: Rests) -> Host {
    let folder = root().join("target/guests");
    Host::open(HostConfig { rests, kernels_max: 1, ..HostConfig::new(HostFolders { guests: folder, cache: cache() }) })
        .expect("a host")
}

/// A session whose cells may take a second, and whose requests wait for so long.
fn open(host: &Host, idle: Duration) -> Session {
    let limits = Limits { timeout: Duration::from_secs(1), ..Limits::default() };
    host.session(SessionConfig { input: Some(idle), limits, ..SessionConfig::default() }).expect("a session")
}

/// Runs a cell as far as its request for input.
async fn ask(session: &Session, language: Language, code: &str) -> (Run, RunResult, String) {
    let mut run = session.run(vec![Cell::new(language, code)]).expect("a run");
    let mut result = RunResult::default();
    while let Some(event) = run.next().await {
        result.apply(&event);
        if let EventKind::InputRequest { request_id, .. } = event.kind {
            return (run, result, request_id);
        }
    }
    panic!("nothing was asked: {}", result.text());
}

async fn finish((mut run, mut result, _): (Run, RunResult, String)) -> RunResult {
    while let Some(event) = run.next().await {
        result.apply(&event);
    }
    result
}

/// Runs something in the only kernel there is room for, as soon as it is free.
async fn use_the_room(host: &Host) {
    let other = host.session(SessionConfig::default()).expect("a session");
    while text(&other, Language::Python, "6 * 7").await != "42" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_session_that_waits_sleeps_and_wakes_for_what_comes() {
    on_runtime(async {
        let host = host(Rests::default());
        for (language, code, expected) in ASKING {
            let session = open(&host, Duration::from_secs(300));
            let asked = ask(&session, language, code).await;
            session.hibernate().await.expect("asleep");
            use_the_room(&host).await;
            // Longer than the cell may take.
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            session.submit_input(&asked.2, "Ada".to_owned()).expect("still open");
            let result = finish(asked).await;
            assert_eq!((result.text().as_str(), result.is_error), (expected, false), "{code}");
            assert_eq!(text(&session, language, "kept").await, "1");
        }
    });
}

#[test]
fn checkpoints_and_looks_do_not_end_the_rest_of_a_cell_that_waits() {
    on_runtime(async {
        let soon = Some(Duration::from_millis(20));
        let host = host(Rests { checkpoint_after: soon, ..Rests::default() });
        for (language, code, expected) in ASKING {
            let session = open(&host, Duration::from_secs(300));
            let asked = ask(&session, language, code).await;
            let names = session.variables(language).await.expect("a list");
            assert!(names.iter().any(|variable| variable.name == "kept"));
            // Longer than the cell may take.
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            session.submit_input(&asked.2, "Ada".to_owned()).expect("still open");
            assert_eq!(finish(asked).await.text(), expected, "{code}");
        }
    });
}

#[test]
fn a_session_that_waits_falls_asleep_by_itself() {
    on_runtime(async {
        let host = host(Rests { hibernate_after: Some(Duration::from_millis(1)), ..Rests::default() });
        for (language, code, expected) in ASKING {
            let session = open(&host, Duration::from_secs(300));
            let asked = ask(&session, language, code).await;
            use_the_room(&host).await;
            session.submit_input(&asked.2, "Ada".to_owned()).expect("still open");
            assert_eq!(finish(asked).await.text(), expected, "{code}");
        }
    });
}

#[test]
fn a_sleeping_session_hears_that_nobody_answered() {
    on_runtime(async {
        let host = host(Rests::default());
        for (language, code, _) in ASKING {
            let session = open(&host, Duration::from_millis(300));
            let asked = ask(&session, language, code).await;
            session.hibernate().await.expect("asleep");
            let result = finish(asked).await;
            assert!(result.is_error && result.text().contains("no input came within"), "{}", result.text());
            assert_eq!(text(&session, language, "kept").await, "1");
        }
    });
}

/// Code between the cell and the request holds the guest: it has nothing to wake up to.
#[test]
fn a_request_within_a_function_keeps_the_session_awake_until_it_is_answered() {
    on_runtime(async {
        let host = host(Rests { hibernate_after: Some(Duration::from_millis(1)), ..Rests::default() });
        // Where the cell stands in the middle of its code, sleep is refused; where it holds the kernel, sleep has to wait.
        for (language, code, holds) in [
            (
                Language::Python,
                "class Form:\n    name = property(lambda self: input('name? '))\nForm().name[::-1]",
                false,
            ),
            (Language::JavaScript, "const ask = () => input.sync('name? '); [...ask()].reverse().join('')", true),
        ] {
            let session = open(&host, Duration::from_secs(300));
            let asked = ask(&session, language, code).await;
            let asleep = tokio::spawn({
                let session = session.clone();
                async move { session.hibernate().await }
            });
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            assert_eq!(asleep.is_finished(), !holds, "{code}");
            session.submit_input(&asked.2, "Ada".to_owned()).expect("still open");
            let result = finish(asked).await;
            assert!(!result.is_error && result.text().contains("adA"), "{}", result.text());
            let asleep = asleep.await.expect("no panic");
            assert_eq!(asleep.is_ok(), holds, "{asleep:?}");
            session.hibernate().await.expect("asleep at last");
        }
    });
}
