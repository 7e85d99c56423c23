//! Files that a stranger wrote, or that are none: each is refused soon, in little memory, and says why.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use twox_hash::XxHash3_128;

use crate::support::{Ended, cellar_with_guests, run};

/// Longest time that a refusal takes, on a busy machine as well.
const SOON: Duration = Duration::from_secs(20);
/// Memory that reading a file may take, in KiB.
const MEMORY_KIB_MAX: u64 = 400 << 10;

/// A command line with a store of its own, which ends soon and stays small.
fn ends_soon(store: &TempDir, arguments: &[&str]) -> Ended {
    let command = cellar_with_guests([&["--store", store.path().to_str().expect("text")], arguments].concat());
    let began = Instant::now();
    // The system bounds what is written to; what reads a file and wants more fails in another way than it should.
    let bound =
        if arguments.first() == Some(&"restore") { format!("ulimit -d {MEMORY_KIB_MAX} && ") } else { String::new() };
    let mut bounded = Command::new("timeout");
    bounded.arg("--signal=KILL").arg(SOON.as_secs().to_string()).arg("sh").arg("-c");
    bounded.arg(format!("{bound}exec \"$0\" \"$@\""));
    bounded.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    bounded.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = run(&mut bounded);
    assert!(began.elapsed() < SOON, "{arguments:?}");
    ended
}

/// A store with a session that has a state, and the state.
fn stored() -> (TempDir, Vec<u8>) {
    let store = tempfile::tempdir().expect("a folder");
    let path = store.path().to_str().expect("text").to_owned();
    let made = run(&mut cellar_with_guests(["--store", &path, "eval", "--session", "a", "-l", "py", "n = 20"]));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let state = fs::read(store.path().join("a/state")).expect("a state");
    (store, state)
}

fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(made.success());
}

#[test]
fn a_store_whose_files_are_pipes_or_devices_hangs_nobody() {
    for (name, device) in [("state", None), ("state", Some("/dev/zero")), ("lock", None), ("lock", Some("/dev/zero"))] {
        let (store, state) = stored();
        let file = store.path().join("a").join(name);
        fs::remove_file(&file).expect("it was there");
        match device {
            Some(device) => symlink(device, &file).expect("a link"),
            None => make_pipe(&file),
        }
        let used = ends_soon(&store, &["eval", "--session", "a", "-l", "py", "n"]);
        assert!(used.code != 0 && used.stderr.contains("no plain file"), "{name} {device:?}: {used:?}");
        let listed = ends_soon(&store, &["session", "list"]);
        assert_eq!(listed.code, 0, "{name} {device:?}: {listed:?}");
        // What is a file again is a session again.
        fs::remove_file(&file).expect("it is there");
        if name == "state" {
            fs::write(&file, &state).expect("written");
        }
        let mended = ends_soon(&store, &["eval", "--session", "a", "-l", "py", "n + 1"]);
        assert_eq!((mended.code, mended.stdout.as_str()), (0, "21\n"), "{mended:?}");
    }
}

#[test]
fn what_is_no_snapshot_is_not_read_to_its_end() {
    let (store, _) = stored();
    let restored = ends_soon(&store, &["session", "restore", "/dev/zero", "b"]);
    assert!(restored.code == 2 && restored.stderr.contains("no plain file"), "{restored:?}");
    let pipe = store.path().join("pipe");
    make_pipe(&pipe);
    let restored = ends_soon(&store, &["session", "restore", pipe.to_str().expect("text"), "b"]);
    assert!(restored.code == 2 && restored.stderr.contains("no plain file"), "{restored:?}");
    // Large, and not there: a file with a hole.
    let hole = store.path().join("hole");
    fs::File::create(&hole).and_then(|file| file.set_len(40 << 30)).expect("a hole");
    let restored = ends_soon(&store, &["session", "restore", hole.to_str().expect("text"), "b"]);
    assert!(restored.code == 2 && restored.stderr.contains("not a snapshot"), "{restored:?}");
    let replayed = ends_soon(&store, &["replay", pipe.to_str().expect("text")]);
    assert!(replayed.code != 0 && replayed.stderr.contains("no plain file"), "{replayed:?}");
    let configured = ends_soon(&store, &["eval", "--config", "/dev/zero", "-l", "py", "1"]);
    assert!(configured.code == 2 && configured.stderr.contains("no plain file"), "{configured:?}");
}

/// A number as postcard writes it.
fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A snapshot whose head has another piece in the place of one, with lengths and checksum to match.
fn forged(state: &[u8], place: usize, old: &[u8], new: &[u8]) -> Vec<u8> {
    assert_eq!(&state[place..place + old.len()], old);
    let body = &state[..state.len() - 16];
    let mut forged = [&body[..place], new, &body[place + old.len()..]].concat();
    let head = u32::from_le_bytes(state[12..16].try_into().expect("four bytes"));
    let head = u32::try_from(head as usize + new.len() - old.len()).expect("a small head");
    forged[12..16].copy_from_slice(&head.to_le_bytes());
    let checksum = XxHash3_128::oneshot(&forged).to_le_bytes();
    forged.extend(checksum);
    forged
}

/// Returns the offset of the notes of a snapshot without notes: behind its name, its time, a number, its disk use and a flag.
fn place_of_notes(state: &[u8]) -> usize {
    let mut place = 16;
    place += 1 + usize::from(state[place]);
    for _ in 0..4 {
        while state[place] >= 0x80 {
            place += 1;
        }
        place += 1;
    }
    place + 1
}

#[test]
fn counts_are_bounded_before_anything_is_made_of_them() {
    let (store, state) = stored();
    let place = place_of_notes(&state);
    assert_eq!(state[place], 0, "no notes");
    let file = store.path().join("forged");
    let path = file.to_str().expect("text").to_owned();
    for count in [1_001_usize, 20_000_000] {
        let notes = [varint(count), vec![0; 2 * count]].concat();
        fs::write(&file, forged(&state, place, &[0], &notes)).expect("written");
        let restored = ends_soon(&store, &["session", "restore", &path, "b"]);
        assert!(restored.code == 2 && restored.stderr.contains("damaged"), "{count}: {restored:?}");
    }
    fs::write(&file, forged(&state, place, &[0], &[0])).expect("written");
    let restored = ends_soon(&store, &["session", "restore", &path, "b"]);
    assert_eq!(restored.code, 0, "{restored:?}");
    // A file that is open without end, in the state of the kernel.
    let language = state.windows(3).position(|bytes| bytes == b"\x02py").expect("a kernel of Python");
    let eviler = [&varint(20)[..], b"py\x1b]0;EVIL\x07\xc2\x9b31337H\n"].concat();
    let eviler = [&varint(eviler.len() - 1)[..], &eviler[1..]].concat();
    fs::write(store.path().join("a/state"), forged(&state, language, b"\x02py", &eviler)).expect("written");
    let used = ends_soon(&store, &["eval", "--session", "a", "-l", "py", "n"]);
    assert!(used.code == 2 && used.stderr.contains("py\\u{1b}]0;EVIL\\u{7}\\u{9b}31337H\n  `"), "{used:?}");
    let shown = ends_soon(&store, &["eval", "--session", "b", "-l", "py", "n + 1"]);
    assert_eq!((shown.code, shown.stdout.as_str()), (0, "21\n"), "{shown:?}");
}

#[test]
fn times_of_a_recording_are_bounded() {
    let store = tempfile::tempdir().expect("a folder");
    let file = store.path().join("recording");
    let path = file.to_str().expect("text").to_owned();
    let recorded = ends_soon(&store, &["eval", "--record", &path, "-l", "py", "6 * 7"]);
    assert_eq!(recorded.code, 0, "{recorded:?}");
    let bytes = fs::read(&file).expect("a recording");
    let head_bytes = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    // The default limits: 30 s, 600 s and 1 s, each with no nanoseconds.
    let limits = [30, 0, 0xd8, 0x04, 0, 1, 0];
    let place = bytes[..16 + head_bytes].windows(limits.len()).position(|bytes| bytes == limits).expect("the limits");
    let longest = varint(usize::MAX);
    for new in
        [[&[30, 0, 0xd8, 0x04, 0][..], &longest, &[0]].concat(), [&longest[..], &[0], &longest, &[0, 1, 0]].concat()]
    {
        let mut forged = [&bytes[..place], &new, &bytes[place + limits.len()..16 + head_bytes]].concat();
        let head = u32::try_from(head_bytes + new.len() - limits.len()).expect("a small head");
        forged[12..16].copy_from_slice(&head.to_le_bytes());
        let checksum = XxHash3_128::oneshot(&forged).to_le_bytes();
        forged.extend(checksum);
        forged.extend(&bytes[16 + head_bytes + 16..]);
        fs::write(&file, &forged).expect("written");
        let replayed = ends_soon(&store, &["replay", &path]);
        assert!(replayed.code == 2 && replayed.stderr.contains("damaged: the limit"), "{replayed:?}");
    }
}
