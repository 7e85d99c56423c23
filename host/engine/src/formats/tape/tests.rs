//! Tests of reading recordings, recordings that were changed, and bytes that never were any.

use std::{path::PathBuf, sync::Arc};

use cellar_core::limits::Limits;
use cellar_results::artifacts::ArtifactKey;
use proptest::prelude::*;

use super::{Cursor, End, Head, OpenError, RECORDING, ReplayError, TapeFile, Writer};
use crate::formats::header::FormatError;

fn head() -> Head {
    Head {
        session: "s".to_owned(),
        began: 1,
        world: "0.0.0".to_owned(),
        limits: Limits::default(),
        artifacts: ArtifactKey::random(),
    }
}

fn end() -> End {
    End { guests: vec![("py".to_owned(), "digest".to_owned())], is_full: false }
}

/// A folder, and the file of a recording in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("recording");
    (folder, path)
}

/// The bytes of a recording of these items.
fn recording(items: &[(u32, Vec<u8>)], bytes_max: u64) -> Vec<u8> {
    let (_folder, path) = place();
    let mut writer = Writer::create(&path, &head(), bytes_max).expect("a file");
    for (stream, item) in items {
        let (body, more) = item.split_at(item.len() / 2);
        writer.add(*stream, body, more).expect("room");
    }
    let written = writer.end(&end()).expect("room");
    let bytes = std::fs::read(&path).expect("a recording");
    assert_eq!(bytes.len() as u64, written);
    bytes
}

fn open(bytes: &[u8]) -> Result<TapeFile, ReplayError> {
    let (_folder, path) = place();
    std::fs::write(&path, bytes).expect("room");
    TapeFile::open(&path).map_err(|error| match error {
        OpenError::Replay(error) => error,
        OpenError::Io(error) => panic!("{error}"),
    })
}

fn items_of(tape: TapeFile) -> Vec<(u32, Vec<u8>)> {
    let mut cursor = Cursor::new(Arc::new(tape));
    let mut items = Vec::new();
    while let Some((stream, item)) = cursor.next().expect("items") {
        items.push((stream, item.to_vec()));
    }
    items
}

/// Items of several frames: those that compress, and those that do not.
fn many_items() -> Vec<(u32, Vec<u8>)> {
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..400)
        .map(|n| (n % 5, if n % 2 == 0 { vec![n as u8; 2_000] } else { (0..3_000).map(|_| noise()).collect() }))
        .collect()
}

#[test]
fn what_is_written_is_read() {
    let items = many_items();
    let tape = open(&recording(&items, u64::MAX)).expect("a recording");
    assert_eq!((tape.head.session.as_str(), &tape.end), ("s", &end()));
    assert!(tape.frames() > 3, "several frames");
    let mut cursor = Cursor::new(Arc::new(tape));
    let mut third = Vec::new();
    while let Some(item) = cursor.next_of(3).expect("items") {
        third.push(item);
    }
    let wanted: Vec<Vec<u8>> = items.iter().filter(|(stream, _)| *stream == 3).map(|(_, item)| item.clone()).collect();
    assert_eq!(third, wanted);
    assert_eq!(items_of(open(&recording(&items, u64::MAX)).expect("a recording")), items);
}

#[test]
fn one_that_becomes_too_large_keeps_its_beginning() {
    let items = many_items();
    let tape = open(&recording(&items, 500_000)).expect("a recording");
    assert!(tape.end.is_full);
    let kept = items_of(tape);
    assert!(!kept.is_empty() && kept.len() < items.len());
    assert_eq!(kept, items[..kept.len()]);
}

#[test]
fn errors_name_what_is_wrong() {
    let bytes = recording(&many_items(), u64::MAX);
    let error = |bytes: &[u8]| open(bytes).expect_err("an error");
    assert_eq!(error(b"hello, this is not one"), FormatError::Other(RECORDING).into());
    assert_eq!(error(b""), ReplayError::CutOff { bytes: 0 });
    let mut newer = bytes.clone();
    newer[8] = 200;
    assert_eq!(error(&newer), FormatError::Version { kind: RECORDING, found: 200 }.into());
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(error(&longer), RECORDING.corrupt("there is more after its end").into());
    assert_eq!(error(&bytes[..bytes.len() - 1]), ReplayError::CutOff { bytes: bytes.len() as u64 - 1 });
}

#[test]
fn one_without_an_end_is_cut_off() {
    let (_folder, path) = place();
    let mut writer = Writer::create(&path, &head(), u64::MAX).expect("a file");
    many_items().iter().for_each(|(stream, item)| writer.add(*stream, item, &[]).expect("room"));
    // As if its process had been killed.
    drop(writer);
    let bytes = std::fs::read(&path).expect("a recording");
    assert!(bytes.len() > 100_000, "what was recorded is on disk");
    assert_eq!(open(&bytes).expect_err("an error"), ReplayError::CutOff { bytes: bytes.len() as u64 });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_byte_is_noticed(place in any::<prop::sample::Index>(), change in 1_u8..) {
        let mut bytes = recording(&[(1, vec![7; 100]), (2, vec![8; 50])], u64::MAX);
        let place = place.index(bytes.len());
        bytes[place] ^= change;
        open(&bytes).expect_err("an error");
    }

    #[test]
    fn an_early_end_is_noticed(place in any::<prop::sample::Index>()) {
        let bytes = recording(&[(1, vec![7; 100]), (2, vec![8; 50])], u64::MAX);
        let length = place.index(bytes.len());
        prop_assert_eq!(open(&bytes[..length]).expect_err("an error"), ReplayError::CutOff { bytes: length as u64 });
    }

    #[test]
    fn no_bytes_upset_the_reader(mut bytes in prop::collection::vec(any::<u8>(), 0..600), is_named in any::<bool>()) {
        if is_named && bytes.len() >= 16 {
            bytes[..12].copy_from_slice(b"cellar\x1ar\x01\0\0\0");
        }
        open(&bytes).expect_err("an error");
    }
}
