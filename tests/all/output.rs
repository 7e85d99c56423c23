//! Output of a cell, on the probe guest: ordered, gathered, slowed down by its reader, and bounded.

use std::{path::Path, time::Duration};

use cellar_engine::{
    Event, EventKind, Limits, RunResult, SessionConfig,
    artifacts::{ArtifactQuota, ArtifactStore},
    config::OutputOptions,
    outcome::FailureKind,
    results::{LIVE_TAIL_BYTES, OutputPolicy, WINDOW_BYTES},
};
use futures::StreamExt;
use tempfile::TempDir;

use crate::{
    sessions::{host, kind, on_one_thread, open, outcome, result, run, until_started},
    support::PATIENCE,
};

/// A session with a store of its own.
fn stored(quota: ArtifactQuota) -> (TempDir, ArtifactStore, SessionConfig) {
    let folder = TempDir::new().expect("a folder");
    let store = ArtifactStore::open(folder.path(), quota).expect("a store");
    let config = SessionConfig {
        outputs: OutputOptions { artifacts: Some(store.clone()), ..OutputOptions::default() },
        ..SessionConfig::default()
    };
    (folder, store, config)
}

fn text_of(event: &Event) -> &str {
    match &event.kind {
        EventKind::Stdout { text, .. } | EventKind::Stderr { text, .. } => text,
        _ => "",
    }
}

/// Resident memory that this process has to itself, in bytes. What it maps of files, such as the images that kernels start
/// from, is shared, and counts again for each kernel that looks at it.
pub(crate) fn resident() -> u64 {
    let sizes = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: Vec<u64> = sizes.split_whitespace().skip(1).take(2).flat_map(str::parse).collect();
    (pages[0] - pages[1]) * 4096
}

/// Bytes of all files below a folder.
pub(crate) fn disk(folder: &Path) -> u64 {
    std::fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

#[test]
fn a_burst_leaves_in_few_events_and_in_order() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        let mut run = run(&session, "flood 20000\nerr between\nput a\nput b\nstatus done\nput c");
        let mut events = Vec::new();
        while let Some(event) = run.next().await {
            assert_eq!(event.seq, events.len() as u64, "numbered without gaps");
            events.push(event);
        }
        let (before, after): (Vec<_>, Vec<_>) = events
            .iter()
            .partition(|event| event.seq < events.iter().find(|event| text_of(event) == "between\n").expect("it").seq);
        let flood: String = before.iter().map(|event| text_of(event)).collect();
        assert_eq!((flood.lines().count(), flood.lines().last()), (20_000, Some("line 20000")));
        assert!(before.len() < 200, "{} events", before.len());
        let after: Vec<_> =
            after.iter().map(|event| (text_of(event), matches!(event.kind, EventKind::Status { .. }))).collect();
        assert_eq!(after[..4], [("between\n", false), ("ab", false), ("", true), ("c", false)]);
    });
}

#[test]
fn text_is_not_held_back_while_the_cell_goes_on() {
    on_one_thread(async {
        for go_on in ["spin", "spin-hard", "block 1000000", "sleep 1000000", "call hang {}"] {
            // Its end is further away than anybody waits.
            let limits = Limits { timeout: 5 * PATIENCE, ..Limits::default() };
            let session = open(&host(), SessionConfig { limits, ..SessionConfig::default() });
            let mut run = run(&session, &format!("put early\n{go_on}"));
            let early =
                async { while text_of(&run.next().await.expect("the text comes before the end")) != "early" {} };
            tokio::time::timeout(PATIENCE, early).await.unwrap_or_else(|_| panic!("no text before `{go_on}`"));
        }
    });
}

#[test]
fn a_reader_that_stops_reading_stops_the_guest() {
    on_one_thread(async {
        let session = open(&host(), SessionConfig::default());
        let mut flooding = run(&session, "flood 100000000");
        until_started(&mut flooding).await;
        let before = resident();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let grown = resident().saturating_sub(before);
        assert!(grown < 64 << 20, "{grown} bytes were queued");
        // And the guest has not gone on: it is the same cell that ends.
        drop(flooding);
        assert_eq!(result(&session, "emit alive").await.text(), "alive");
    });
}

#[test]
fn a_long_text_is_kept_whole_and_found_by_the_result() {
    on_one_thread(async {
        let (_folder, store, config) = stored(ArtifactQuota::default());
        let session = open(&host(), config);
        let result = result(&session, "flood 50000").await;
        let kept = result.kept_text().expect("kept").clone();
        assert!(kept.is_complete && kept.path.is_none());
        let artifact = store.get(&kept.id).expect("stored");
        let whole = std::fs::read_to_string(&artifact.path).expect("text");
        assert_eq!((whole.lines().count(), whole.lines().last()), (50_000, Some("line 50000")));
        assert_eq!(artifact.sessions, [session.id()]);
        let text = result.text();
        assert!(text.len() <= WINDOW_BYTES && text.contains(&format!("; all of it is artifact://{} …]", kept.id)));
        let tail = result.live_tail();
        assert!(tail.len() <= LIVE_TAIL_BYTES && whole.ends_with(&tail) && tail.len() > WINDOW_BYTES);
    });
}

#[test]
fn a_text_that_a_result_shows_whole_is_not_stored() {
    on_one_thread(async {
        let (_folder, store, config) = stored(ArtifactQuota::default());
        let session = open(&host(), config);
        assert_eq!(result(&session, "flood 2000").await.kept_text(), None);
        assert_eq!(result(&session, "flood 20000\nclear\nemit short").await.text(), "short");
        assert_eq!(store.list().expect("a list"), []);
    });
}

#[test]
fn several_cells_keep_each_its_text_and_all_of_it_together() {
    on_one_thread(async {
        let (_folder, store, config) = stored(ArtifactQuota::default());
        let session = open(&host(), config);
        let cells = ["flood 20000", "emit short", "raise oops"]
            .map(|code| cellar_engine::Cell::new(cellar_engine::Language::Probe, code));
        let result = session.run(cells.to_vec()).expect("a run").collect_result().await;
        let read = |id: &str| std::fs::read_to_string(store.get(id).expect("stored").path).expect("text");
        let first = read(&result.cells[0].kept.as_ref().expect("kept").id);
        let all = read(&result.kept_text().expect("kept").id);
        assert!(result.cells[1].kept.is_none());
        assert!(
            all.starts_with("[1/3]\nline 1\n") && all.contains(&first) && all.contains("\n[2/3]\nshort\n[3/3]\n"),
            "{}",
            &all[all.len() - 200..]
        );
        assert!(all.contains("oops"), "the failure is told");
    });
}

#[test]
fn the_token_policy_shows_the_first_tokens_and_a_reminder() {
    on_one_thread(async {
        let (_folder, _store, config) = stored(ArtifactQuota::default());
        let session = open(
            &host(),
            SessionConfig { outputs: OutputOptions { policy: OutputPolicy::Tokens, ..config.outputs }, ..config },
        );
        let short = result(&session, "flood 4000").await;
        assert_eq!((short.shown().truncation, short.text().lines().count()), (None, 4_000));
        let long = result(&session, "flood 20000").await;
        let (text, kept) = (long.text(), long.kept_text().expect("kept").id.clone());
        assert!(
            text.starts_with("line 1\nline 2\n") && text.ends_with("</system-reminder>"),
            "{}",
            &text[text.len() - 300..]
        );
        assert!(text.contains(&format!("artifact://{kept}\n")) && text.contains("more than 20000 tokens"));
        assert!(text.contains(&format!("tool.read(path=\"artifact://{kept}\", offset=1, limit=200)")), "{text}");
        assert!(text.len() < 30_000, "{} bytes", text.len());
    });
}

/// A guest that prints for ever costs bounded memory and disk. `CELLAR_FLOOD_MIB` makes it 10 GiB.
#[test]
fn a_flood_costs_bounded_memory_and_disk() {
    let mib = std::env::var("CELLAR_FLOOD_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(256_u64);
    on_one_thread(async {
        let quota = ArtifactQuota { artifact_bytes: 32 << 20, session_bytes: 48 << 20, ..ArtifactQuota::default() };
        let (folder, _store, mut config) = stored(quota);
        config.limits = Limits { output_bytes: mib << 20, timeout: Duration::from_secs(600), ..Limits::default() };
        let session = open(&host(), config);
        let mut flooding = run(&session, "flood 100000000000");
        let mut folded = RunResult::default();
        let (mut bytes, mut peak, mut peak_disk, before) = (0, 0, 0, resident());
        while let Some(event) = flooding.next().await {
            folded.apply(&event);
            if let EventKind::Stderr { text, .. } = &event.kind {
                panic!("standard error has {text:?}");
            }
            bytes += text_of(&event).len() as u64;
            if event.seq % 64 == 0 {
                peak = peak.max(resident());
                peak_disk = peak_disk.max(disk(folder.path()));
            }
        }
        assert_eq!(bytes, mib << 20, "exactly the limit");
        assert_eq!(folded.cells[0].failure.as_ref().map(|failure| failure.kind), Some(FailureKind::Output));
        assert!(peak.saturating_sub(before) < 96 << 20, "{} MiB grown", (peak - before) >> 20);
        assert!(peak_disk.max(disk(folder.path())) < 100 << 20, "{} MiB on disk", peak_disk >> 20);
        let kept = folded.kept_text().expect("kept");
        assert_eq!((kept.is_complete, kept.bytes <= 32 << 20), (false, true));
        assert_eq!(folded.cells[0].output().truncation.expect("cut").total_bytes, bytes);
        assert_eq!(kind(&outcome(run(&session, "emit alive")).await), None);
    });
}
