//! States of a session that is at work, one after another. A file that takes the place of another one must be synced, and then its
//! folder: two waits for the disk, and the second for the file system's own journal. Here two files are written in turn, over what
//! was there, and synced once.
//!
//! Each file begins with a hash of the rest, a hash of the `state` that it comes after, and a number. A state follows, and perhaps the
//! remains of a longer one. A file counts if its hash matches, and if it comes after the very `state` that lies beside it. So a file that
//! was being written when the machine stopped does not count, and the other one has the last state whose storing was confirmed. When
//! `state` is stored anew, both are outdated, whether their removal reaches the disk or not.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use cellar_core::files::open_plain;
use twox_hash::XxHash3_128;

/// Bytes of a state that is stored so. Of a larger one the writing takes more than the waiting.
pub(super) const BYTES_MAX: usize = 8 << 20;

const NAMES: [&str; 2] = ["recent-0", "recent-1"];
const MAGIC: &[u8; 8] = b"CELLARR1";
const HEAD_BYTES: usize = 56;
/// Number of times that the states are read, if one was being written.
const LOOKS: usize = 4;

/// A state that was found.
pub(super) struct Recent {
    pub(super) state: Vec<u8>,
    pub(super) stored_at: Option<SystemTime>,
    /// The `state` that it comes after.
    after: u128,
    number: u64,
}

/// Position of the state that is stored next: the `state` that it comes after, and its number.
#[derive(Debug)]
pub(super) struct Chain {
    after: u128,
    number: u64,
}

impl Chain {
    /// Begins a chain after a `state` with this content.
    pub(super) fn after(state: &[u8]) -> Chain {
        Chain { after: XxHash3_128::oneshot(state), number: 1 }
    }

    /// Continues the chain after the latest state in a folder whose `state` has this content.
    pub(super) fn of(folder: &Path, state: &[u8]) -> Chain {
        let chain = Chain::after(state);
        let number = latest(look(folder), chain.after).map_or(1, |latest| latest.number.saturating_add(1));
        Chain { number, ..chain }
    }

    /// Stores the next state. When this returns, no crash loses it; until then, none loses the one before.
    pub(super) fn store(&mut self, folder: &Path, state: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES.saturating_add(state.len()));
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.after.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&(state.len() as u64).to_le_bytes());
        bytes.extend_from_slice(state);
        let (hash, hashed) = bytes.split_at_mut(16);
        hash.copy_from_slice(&XxHash3_128::oneshot(hashed).to_le_bytes());

        let path = place(folder, self.number);
        if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
            // A stranger's link would have something else written over.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let open = |is_new| open_plain(&path, File::options().write(true).create_new(is_new).mode(0o600));
        let (mut file, is_new) = match open(false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (open(true)?, true),
            opened => (opened?, false),
        };
        file.write_all(&bytes)?;
        file.sync_data()?;
        if is_new {
            File::open(folder)?.sync_all()?;
        }
        self.number = self.number.saturating_add(1);
        Ok(())
    }
}

fn place(folder: &Path, number: u64) -> PathBuf {
    folder.join(NAMES[usize::from(!number.is_multiple_of(2))])
}

/// Removes both. That need not reach the disk.
pub(super) fn remove(folder: &Path) {
    for name in NAMES {
        let _ = fs::remove_file(folder.join(name));
    }
}

/// Reads the states in a folder that are whole.
pub(super) fn look(folder: &Path) -> Vec<Recent> {
    for _ in 1..LOOKS {
        let found = NAMES.map(|name| read(&folder.join(name)));
        if found.iter().all(Result::is_ok) {
            return found.into_iter().flatten().flatten().collect();
        }
    }
    NAMES.iter().filter_map(|name| read(&folder.join(name)).ok().flatten()).collect()
}

/// The last of them that comes after this `state`.
pub(super) fn latest_after(found: Vec<Recent>, state: &[u8]) -> Option<Recent> {
    if found.is_empty() { None } else { latest(found, XxHash3_128::oneshot(state)) }
}

fn latest(found: Vec<Recent>, after: u128) -> Option<Recent> {
    found.into_iter().filter(|recent| recent.after == after).max_by_key(|recent| recent.number)
}

/// Reads a state, if the file exists. An error is one that is not whole.
fn read(path: &Path) -> io::Result<Option<Recent>> {
    let file = match open_plain(path, File::options().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let stored_at = file.metadata()?.modified().ok();
    let mut bytes = Vec::new();
    file.take((HEAD_BYTES + BYTES_MAX) as u64).read_to_end(&mut bytes)?;
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let number = |from: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(from..from.checked_add(8)?)?.try_into().ok()?))
    };
    let large = |from: usize| -> Option<u128> {
        Some(u128::from_le_bytes(bytes.get(from..from.checked_add(16)?)?.try_into().ok()?))
    };
    let head = || Some((large(0)?, large(24)?, number(40)?, usize::try_from(number(48)?).ok()?));
    let (hash, after, number, length) = head().ok_or_else(broken)?;
    let end = HEAD_BYTES.checked_add(length).filter(|end| *end <= bytes.len()).ok_or_else(broken)?;
    let is_whole = bytes.get(16..24) == Some(MAGIC) && bytes.get(16..end).map(XxHash3_128::oneshot) == Some(hash);
    if !is_whole {
        return Err(broken());
    }
    bytes.truncate(end);
    bytes.drain(..HEAD_BYTES);
    Ok(Some(Recent { state: bytes, stored_at, after, number }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Returns the state that would be found after a crash.
    fn found(folder: &Path, state: &[u8]) -> Option<Vec<u8>> {
        latest_after(look(folder), state).map(|recent| recent.state)
    }

    #[test]
    fn the_last_that_is_whole_counts_and_only_after_its_own_state() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        assert_eq!(found(folder, b"base"), None);
        let mut chain = Chain::of(folder, b"base");
        for state in ["first, which is long", "second", "third"] {
            chain.store(folder, state.as_bytes()).expect("stored");
            assert_eq!(found(folder, b"base").as_deref(), Some(state.as_bytes()));
        }
        // Whoever has the session next goes on behind it.
        let mut chain = Chain::of(folder, b"base");
        chain.store(folder, b"fourth").expect("stored");
        assert_eq!(found(folder, b"base").as_deref(), Some(&b"fourth"[..]));
        assert_eq!(found(folder, b"another base"), None);
        // A crash in the middle of the next leaves this one, whatever was written of that.
        for bytes in 0..HEAD_BYTES + 5 {
            let torn = File::options().write(true).open(place(folder, chain.number)).expect("there");
            torn.write_all_at(&vec![0xa5; bytes], 0).expect("written");
            assert_eq!(found(folder, b"base").as_deref(), Some(&b"fourth"[..]), "{bytes} bytes");
        }
        chain.store(folder, b"fifth").expect("stored");
        assert_eq!(found(folder, b"base").as_deref(), Some(&b"fifth"[..]));
        remove(folder);
        assert_eq!(found(folder, b"base"), None);
    }

    #[test]
    fn what_a_stranger_put_there_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        for bytes in [&b""[..], b"short", &[0xff; HEAD_BYTES], &[0; 4096]] {
            fs::write(folder.path().join(NAMES[0]), bytes).expect("written");
            assert_eq!(found(folder.path(), b""), None);
        }
        fs::remove_file(folder.path().join(NAMES[0])).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", folder.path().join(NAMES[0])).expect("linked");
        assert_eq!(found(folder.path(), b""), None);
        let mut chain = Chain::after(b"");
        assert!(chain.store(folder.path(), b"x").is_ok(), "the other one");
        assert!(chain.store(folder.path(), b"x").is_err(), "nothing is written through a link");
    }
}
