//! A store that keeps nothing on disk: what holds of stored sessions wherever they lie.

use std::{collections::HashMap, io::Cursor};

use tempfile::TempDir;

use super::*;

/// States by name, and whether somebody has the session.
type Sessions = Arc<Mutex<HashMap<String, (Option<Vec<u8>>, bool)>>>;

#[derive(Debug, Default)]
struct Memory {
    sessions: Sessions,
}

#[derive(Debug)]
struct Held {
    name: String,
    folders: TempDir,
    sessions: Sessions,
}

fn file(state: Vec<u8>) -> StateFile {
    StateFile { bytes: state.len() as u64, stored_at: None, read: Box::new(Cursor::new(state)) }
}

impl Vault for Memory {
    fn claim(&self, name: &str) -> Result<Box<dyn Claim>, Error> {
        let mut sessions = lock(&self.sessions);
        let (_, is_claimed) = sessions.entry(name.to_owned()).or_default();
        if std::mem::replace(is_claimed, true) {
            return Err(Error::SessionBusy(name.to_owned()));
        }
        Ok(Box::new(Held {
            name: name.to_owned(),
            folders: TempDir::new().expect("a folder"),
            sessions: self.sessions.clone(),
        }))
    }

    fn contains(&self, name: &str) -> bool {
        lock(&self.sessions).contains_key(name)
    }

    fn is_claimed(&self, name: &str) -> bool {
        lock(&self.sessions).get(name).is_some_and(|(_, is_claimed)| *is_claimed)
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        Ok(lock(&self.sessions).keys().cloned().collect())
    }

    fn state(&self, name: &str) -> Result<Option<StateFile>, Error> {
        Ok(lock(&self.sessions).get(name).and_then(|(state, _)| state.clone()).map(file))
    }

    fn folder(&self, _: &str, _: OwnFolder) -> Result<Option<PathBuf>, Error> {
        Ok(None)
    }

    fn states(&self, _: &str) -> Result<Option<PathBuf>, Error> {
        Ok(None)
    }
}

impl Claim for Held {
    fn state(&self) -> Result<Option<StateFile>, Error> {
        Ok(lock(&self.sessions)[&self.name].0.clone().map(file))
    }

    fn store(&self, state: &[u8]) -> Result<(), Error> {
        lock(&self.sessions).entry(self.name.clone()).or_default().0 = Some(state.to_vec());
        Ok(())
    }

    fn folder(&self, folder: OwnFolder) -> Result<PathBuf, Error> {
        let path = self.folders.path().join(folder.name());
        std::fs::create_dir_all(&path).expect("made");
        Ok(path)
    }

    fn states(&self) -> PathBuf {
        self.folders.path().join("states")
    }

    fn remove(&self) -> Result<(), Error> {
        lock(&self.sessions).remove(&self.name);
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((_, is_claimed)) = lock(&self.sessions).get_mut(&self.name) {
            *is_claimed = false;
        }
    }
}

#[test]
fn sessions_can_lie_anywhere() {
    let store = SessionStore::new(Arc::new(Memory::default()));
    let first = store.claim("a").expect("a new session");
    assert_eq!(store.claim("a").expect_err("somebody has it").code(), "session-busy");
    assert!(first.load().expect("read").is_none());
    first.save(&Snapshot::empty("a")).expect("stored");
    // What is live can be read and forked, and not removed.
    assert_eq!(store.load("a").expect("read").expect("a state").session(), "a");
    store.fork("a", "b").expect("forked");
    assert_eq!(store.fork("a", "b").expect_err("it is there").code(), "session-exists");
    assert_eq!(store.remove("a").expect_err("somebody has it").code(), "session-busy");
    let listed: Vec<(String, bool)> =
        store.list().expect("listed").into_iter().map(|info| (info.name, info.is_live)).collect();
    assert_eq!(listed, [("a".to_owned(), true), ("b".to_owned(), false)]);
    drop(first);
    store.remove("a").expect("removed");
    assert_eq!(store.claim_existing("a").expect_err("gone").code(), "session-unknown");
    assert_eq!(store.load("b").expect("read").expect("a state").session(), "b");
}

#[test]
fn a_state_that_is_put_in_uses_what_is_in_its_folders_whatever_it_says() {
    let folder = TempDir::new().expect("a folder");
    let session = SessionStore::open(folder.path()).expect("a store").claim("a").expect("a new session");
    let workspace = session.folder(OwnFolder::Workspace).expect("a workspace");
    let temporary = session.folder(OwnFolder::Temporary).expect("a folder");
    std::fs::create_dir(workspace.join("d")).expect("made");
    std::fs::write(workspace.join("d/f"), [1; 1_000]).expect("written");
    std::fs::hard_link(workspace.join("d/f"), temporary.join("g")).expect("linked");
    let usage = |said| {
        session.save(&Snapshot { disk_usage: said, ..Snapshot::empty("a") }).expect("stored");
        session.load().expect("read").expect("a state").disk_usage
    };
    assert_eq!([usage((0, 0)), usage((5_000, 1)), usage((1, 50))], [(1_000, 3), (5_000, 3), (1_000, 50)]);
}
