//! Cells that write without end, in both languages: their readers decide how fast, and none of it piles up.

#![allow(clippy::print_stdout, reason = "the figures are for who runs it by hand")]

use std::time::{Duration, Instant};

use cellar_engine::{
    Cell, EventKind, Language, Limits, Run, RunResult, Session, SessionConfig,
    artifacts::{ArtifactQuota, ArtifactStore},
    config::OutputOptions,
    outcome::FailureKind,
};
use futures::StreamExt;

use super::snapshots::{host, on_runtime, text};
use crate::output::{disk, resident};

/// Bytes that may be queued, gathered and allocated on the way while a guest floods.
const GROWTH_BYTES_MAX: u64 = 96 << 20;

/// Loops without end, by what they write.
const FLOODS: [(Language, &str, &str); 13] = [
    (Language::Python, "print", "while True: print('x' * 1000)"),
    (Language::Python, "single characters", "import sys\nwhile True: sys.stdout.write('y'); sys.stdout.flush()"),
    (Language::Python, "stderr", "import sys\nwhile True: sys.stderr.write('e' * 5000 + '\\n')"),
    (Language::Python, "both streams in turn", "import sys\nwhile True: print('o'); print('e', file=sys.stderr)"),
    (Language::Python, "displays", "from IPython.display import HTML\nwhile True: display(HTML('<b>x</b>' * 100))"),
    (
        Language::Python,
        "large displays",
        "from IPython.display import HTML\nbig = 'z' * 4_000_000\nwhile True: display(HTML(big))",
    ),
    (
        Language::Python,
        "updates",
        "handle = display('first', display_id=True)\nwhile True: handle.update('next' * 1000)",
    ),
    (Language::Python, "status events", "while True: write('f.txt', 'x')"),
    (Language::JavaScript, "console.log", "while (true) console.log('x'.repeat(1000));"),
    (Language::JavaScript, "console.error", "while (true) console.error('e'.repeat(5000));"),
    (
        Language::JavaScript,
        "every console method",
        "while (true) { console.info(1); console.warn({ a: [1] }); console.debug('d'); console.table([[1]]); }",
    ),
    (
        Language::JavaScript,
        "displays and updates",
        "const shown = display.handle({ n: 1 }); while (true) { display({ n: [1, 2, 3] }); shown.update({ n: 2 }); }",
    ),
    (Language::JavaScript, "status events", "while (true) await write('f.txt', 'x');"),
];

fn start(session: &Session, language: Language, code: &str) -> Run {
    session.run(vec![Cell::new(language, code)]).expect("a run")
}

/// A session whose cells stop for no cap but for their deadline.
fn patient() -> SessionConfig {
    let limits = Limits { output_bytes: 1 << 40, timeout: Duration::from_secs(120), ..Limits::default() };
    SessionConfig { limits, ..SessionConfig::default() }
}

fn is_written(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Stdout { .. }
            | EventKind::Stderr { .. }
            | EventKind::Background { .. }
            | EventKind::Display { .. }
            | EventKind::UpdateDisplay { .. }
            | EventKind::Status { .. }
    )
}

/// Reads until something was written.
async fn until_written(run: &mut Run, what: &str) {
    while let Some(event) = run.next().await {
        if let EventKind::CellFinished { outcome, .. } = &event.kind {
            panic!("{what}: ended as {outcome:?}");
        }
        if is_written(&event.kind) {
            return;
        }
    }
    panic!("{what}: nothing was written");
}

#[test]
fn a_reader_that_stops_reading_stops_the_cell_and_dropping_the_run_ends_it() {
    on_runtime(async {
        let host = host();
        for (language, what, code) in FLOODS {
            let session = host.session(patient()).expect("a session");
            let mut run = start(&session, language, code);
            until_written(&mut run, what).await;
            let before = resident();
            tokio::time::sleep(Duration::from_millis(300)).await;
            let grown = resident().saturating_sub(before);
            assert!(grown < GROWTH_BYTES_MAX, "{language} {what}: {} MiB are queued", grown >> 20);
            drop(run);
            assert_eq!(text(&session, language, "40 + 2").await, "42", "{language} {what}: the session goes on");
        }
    });
}

#[test]
fn a_slow_reader_gets_all_of_it_in_order_at_its_own_pace() {
    on_runtime(async {
        let host = host();
        for (language, what, code) in FLOODS {
            let session = host.session(patient()).expect("a session");
            let mut run = start(&session, language, code);
            until_written(&mut run, what).await;
            let (before, mut peak, mut next) = (resident(), 0, None);
            for _ in 0..100 {
                let event = run.next().await.expect("it goes on");
                assert_eq!(event.seq, *next.get_or_insert(event.seq), "{language} {what}: events are missing");
                assert!(is_written(&event.kind), "{language} {what}: {:?}", event.kind);
                next = Some(event.seq + 1);
                peak = peak.max(resident());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let grown = peak.saturating_sub(before);
            assert!(grown < GROWTH_BYTES_MAX, "{language} {what}: {} MiB were queued", grown >> 20);
        }
    });
}

/// A cell that prints for ever is stopped at its cap, and what it costs until then does not grow with it.
/// `CELLAR_FLOOD_MIB` makes it 10 GiB.
#[test]
fn what_a_cell_may_print_is_all_that_it_costs() {
    let mib = std::env::var("CELLAR_FLOOD_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(256_u64);
    for (language, code) in [
        (Language::Python, "line = 'x' * 10_000\nwhile True: print(line)"),
        (Language::JavaScript, "const line = 'x'.repeat(10_000); while (true) console.log(line);"),
    ] {
        on_runtime(async {
            let folder = tempfile::tempdir().expect("a folder");
            let quota = ArtifactQuota { artifact_bytes: 32 << 20, session_bytes: 48 << 20, ..ArtifactQuota::default() };
            let artifacts = Some(ArtifactStore::open(folder.path(), quota).expect("a store"));
            let limits = Limits { output_bytes: mib << 20, timeout: Duration::from_secs(600), ..Limits::default() };
            let session = host().session(SessionConfig {
                limits,
                outputs: OutputOptions { artifacts, ..OutputOptions::default() },
                ..SessionConfig::default()
            });
            let session = session.expect("a session");
            let mut run = start(&session, language, code);
            let mut result = RunResult::default();
            let (mut bytes, mut peak, mut before, began) = (0, 0, None, Instant::now());
            while let Some(event) = run.next().await {
                result.apply(&event);
                if let EventKind::Stdout { text, .. } = &event.kind {
                    bytes += text.len() as u64;
                }
                if event.seq % 64 == 0 {
                    before = before.or((bytes > 0).then(resident));
                    peak = peak.max(resident());
                }
            }
            let took = began.elapsed().as_secs_f64();
            println!("{language}: {mib} MiB in {took:.1} s, {:.0} MiB/s", mib as f64 / took);
            assert_eq!(result.cells[0].failure.as_ref().map(|failure| failure.kind), Some(FailureKind::Output));
            assert_eq!(bytes, mib << 20, "exactly what it may print");
            let grown = peak.saturating_sub(before.expect("it printed"));
            assert!(grown < GROWTH_BYTES_MAX, "{language}: {} MiB grown", grown >> 20);
            let kept = disk(folder.path());
            assert!(kept < 100 << 20, "{language}: {} MiB on disk", kept >> 20);
            assert_eq!(text(&session, language, "40 + 2").await, "42");
        });
    }
}

#[test]
fn the_usual_cap_is_64_mebibytes() {
    on_runtime(async {
        let host = host();
        for (language, code) in [
            (Language::Python, "while True: print('x' * 100_000)"),
            (Language::JavaScript, "while (true) console.log('x'.repeat(100_000));"),
        ] {
            let session = host.session(SessionConfig::default()).expect("a session");
            let result = start(&session, language, code).collect_result().await;
            let failure = result.cells[0].failure.clone().expect("stopped");
            assert_eq!((failure.kind, failure.state_kept), (FailureKind::Output, true), "{language}");
            let output = result.cells[0].output().truncation.expect("cut");
            assert_eq!(output.total_bytes, 64 << 20, "{language}");
        }
    });
}
