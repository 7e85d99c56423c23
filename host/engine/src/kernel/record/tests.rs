//! Guests that do something else than they did.

use std::{path::Path, sync::Arc, time::Duration};

use cellar_core::{event::EventKind, limits::Limits};
use cellar_results::artifacts::ArtifactKey;
use tokio::sync::mpsc;

use super::{Fall, Import, Item, Playback, Progress, Recorder, RunRecord, Tape, mark};
use crate::formats::tape::{Cursor, Head, ReplayError, TapeFile};

fn event(text: &str) -> EventKind {
    EventKind::Stdout { index: 0, text: text.to_owned() }
}

/// Records a kernel that draws random bytes, says something and comes back; then one that was killed.
fn record(path: &Path) {
    let head = Head {
        session: "s".to_owned(),
        began: 0,
        world: "0.0.0".to_owned(),
        limits: Limits::default(),
        artifacts: ArtifactKey::random(),
    };
    let recorder = Arc::new(Recorder::create(path, &head, u64::MAX).expect("a file"));
    let run: RunRecord = recorder.run();
    let mut kernel = recorder.kernel();
    let mut killed = recorder.kernel();
    if let (Tape::Recording(kernel), Tape::Recording(killed)) = (&kernel, &killed) {
        kernel.answer(Import::Random, &4_u32, &vec![1_u8, 2, 3, 4]);
        killed.answer(Import::WallClock, &(), &7_u64);
        kernel.said(Some(&run), &event("hello"));
    }
    kernel.left(1, Ok(mark(&"report")));
    killed.left(1, Err(Fall { was_killed: true, message: "too late" }));
    drop((kernel, killed));
    recorder.end().expect("a recording");
}

/// The side of a replay that one of the kernels sees.
fn playback(stream: u32) -> (Playback, mpsc::Receiver<Progress>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    record(&path);
    let tape = Arc::new(TapeFile::open(&path).expect("a recording"));
    let (progress, heard) = mpsc::channel(4);
    (Playback::new(Cursor::new(tape), stream, progress, Duration::from_secs(600)), heard)
}

fn diverged(playback: &mut Playback) -> String {
    let error = playback.error().expect("an error");
    assert!(matches!(error, ReplayError::Diverged { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_guest_that_does_the_same_is_told_the_same() {
    let (mut playback, mut heard) = playback(1);
    assert_eq!(playback.answer::<Vec<u8>>(1, Import::Random, &4_u32).expect("an answer"), [1, 2, 3, 4]);
    playback.said(1, event("hello")).await;
    assert!(matches!(heard.recv().await, Some(Progress::Said(said)) if said == event("hello")));
    playback.left(1, Ok(mark(&"report")));
    assert!(playback.has_left() && playback.error().is_none());
    assert_eq!(playback.take().map(|(item, _)| item), Some(Item::Gone));
}

#[tokio::test]
async fn what_a_guest_does_otherwise_is_named() {
    let (mut other_import, _heard) = playback(1);
    other_import.answer::<u64>(3, Import::WallClock, &()).expect_err("an end");
    assert_eq!(
        diverged(&mut other_import),
        "the replay diverged in <cell 3>: the recording has a call of control.random, \
         the guest called control.wall-clock"
    );
    let (mut other_arguments, _heard) = playback(1);
    other_arguments.answer::<Vec<u8>>(1, Import::Random, &8_u32).expect_err("an end");
    assert!(diverged(&mut other_arguments).ends_with("the guest called control.random with other arguments"));

    let (mut other_words, mut heard) = playback(1);
    other_words.answer::<Vec<u8>>(1, Import::Random, &4_u32).expect("an answer");
    other_words.said(1, event("goodbye")).await;
    assert!(diverged(&mut other_words).contains("goodbye"));
    heard.try_recv().expect_err("nothing is heard of it");

    let (mut early, _heard) = playback(1);
    early.left(1, Ok(mark(&"report")));
    assert!(diverged(&mut early).ends_with("the guest came back"));
    let (mut dead, _heard) = playback(1);
    dead.left(0, Err(Fall { was_killed: false, message: "the interpreter crashed" }));
    assert!(diverged(&mut dead).contains("code of no cell"));
}

#[tokio::test]
async fn a_guest_that_was_killed_is_killed_where_the_recording_ends() {
    let (mut playback, _heard) = playback(2);
    assert!(!playback.is_over(1));
    assert_eq!(playback.answer::<u64>(1, Import::WallClock, &()).expect("an answer"), 7);
    assert!(playback.is_over(1), "nothing more is known of it");
    playback.answer::<u64>(1, Import::WallClock, &()).expect_err("an end");
    // It may even come back.
    playback.left(1, Ok(0));
    assert!(playback.has_left() && playback.error().is_none());
}
