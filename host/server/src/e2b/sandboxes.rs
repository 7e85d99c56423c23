//! Records of the sandboxes of a tenant: which sessions they consist of, and what E2B's clients know of them that
//! sessions do not record. The sessions themselves are the hub's.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use cellar_core::{
    files::{Durability, PRIVATE, replace_with},
    sync::lock,
};
use cellar_engine::Language;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;

use crate::{access::digest, problem::Problem};

/// Name of the folder of the records.
const SANDBOXES: &str = ".sandboxes";
/// Sandboxes and snapshots of a tenant.
const SANDBOXES_MAX: usize = 10_000;
/// Bytes of one record.
const RECORD_BYTES_MAX: u64 = 4 << 20;
/// Bytes of all records, in memory as well.
const RECORDS_BYTES_MAX: usize = 64 << 20;
/// Time after which a client may try again when the limits are reached.
const RETRY: Duration = Duration::from_secs(60);
/// Memory that a text takes besides its bytes, roughly.
const TEXT_BYTES: usize = 96;

/// Record of a sandbox, or of a snapshot of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    /// Id, which is the name of its first session: that of the contexts that exist from the start.
    pub(crate) id: String,
    pub(crate) template: String,
    /// Language of code for which the client names none.
    pub(crate) language: String,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Start, in milliseconds since the Unix epoch.
    pub(crate) started_at: u64,
    /// End, in milliseconds since the Unix epoch, unless it is paused.
    pub(crate) end_at: u64,
    pub(crate) is_paused: bool,
    /// True if it is paused, and not killed, when its time is over.
    pub(crate) auto_pause: bool,
    /// True if a request for it resumes it.
    pub(crate) auto_resume: bool,
    /// Secret from which the tokens of its clients are made.
    pub(crate) secret: String,
    /// Contexts that clients have made, each a session of its own.
    pub(crate) contexts: Vec<Context>,
    /// Sandbox that a snapshot was made of; absent for a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot_of: Option<String>,
    /// Name that a snapshot was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Sessions that are being made for it, or removed. While its first session is among them, the sandbox cannot be
    /// found. Those that are here when the server starts were left by a crash, and are removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) loose: Vec<String>,
}

/// A context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Context {
    /// Name of its session; for an initial context, the name of its language.
    pub(crate) id: String,
    pub(crate) language: String,
    pub(crate) cwd: String,
}

impl Sandbox {
    /// Returns the access token of the sandbox that belongs to a token of the server. It is valid for as long as that
    /// one.
    pub(crate) fn token(&self, token_id: &str) -> String {
        let Sandbox { id, secret, .. } = self;
        format!("{token_id}.{}", digest(&format!("{secret}:{id}:{token_id}:{secret}")))
    }

    /// Returns its sessions, those of contexts first.
    pub(crate) fn sessions(&self) -> Vec<String> {
        self.contexts.iter().map(|context| context.id.clone()).chain([self.id.clone()]).collect()
    }

    /// Returns all sessions that may exist of it, loose ones as well.
    pub(crate) fn all_sessions(&self) -> BTreeSet<String> {
        self.sessions().into_iter().chain(self.loose.iter().cloned()).collect()
    }

    /// Returns true unless its first session is being made or removed.
    pub(crate) fn is_whole(&self) -> bool {
        !self.loose.contains(&self.id)
    }

    /// Returns the record as that of a sandbox that is over, which cannot be found.
    fn over(&self) -> Sandbox {
        let loose = self.all_sessions().into_iter().collect();
        Sandbox { end_at: 0, is_paused: false, auto_pause: false, snapshot_of: None, loose, ..self.clone() }
    }

    /// Returns the bytes that it takes in memory, roughly.
    fn size_bytes(&self) -> usize {
        let pairs = self.metadata.iter().flat_map(|(name, value)| [name, value]);
        let contexts = self.contexts.iter().flat_map(|one| [&one.id, &one.language, &one.cwd]);
        let texts = [&self.id, &self.template, &self.language, &self.secret].into_iter();
        let texts = texts.chain(&self.snapshot_of).chain(&self.name).chain(pairs).chain(contexts).chain(&self.loose);
        let sizes = texts.map(|text| text.len().saturating_add(TEXT_BYTES));
        sizes.fold(size_of::<Sandbox>(), usize::saturating_add)
    }

    /// Returns true if its time is over. A snapshot or a paused sandbox is never due.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        !self.is_snapshot() && !self.is_paused && self.end_at <= now
    }

    pub(crate) fn is_snapshot(&self) -> bool {
        self.snapshot_of.is_some()
    }
}

/// Returns the clients' name of a language.
pub(crate) fn language_name(language: Language) -> &'static str {
    match language {
        Language::JavaScript => "javascript",
        _ => "python",
    }
}

/// Returns the language that a client's name stands for.
pub(crate) fn language_named(name: &str) -> Option<Language> {
    match name.to_ascii_lowercase().as_str() {
        "python" | "python3" | "py" => Some(Language::Python),
        "javascript" | "js" => Some(Language::JavaScript),
        _ => None,
    }
}

/// Folder of the sandboxes in a store, by a name that no session can have.
pub(crate) fn folder_in(store: &Path) -> PathBuf {
    store.join(SANDBOXES)
}

/// Sandboxes of a tenant, in memory and each in a file of its own.
#[derive(Debug)]
pub(crate) struct Sandboxes {
    folder: PathBuf,
    kept: Mutex<Kept>,
    /// Records that were found at the start of the server, as they were then.
    found: Mutex<Vec<Sandbox>>,
    /// Locks of those that are being paused or resumed.
    turns: Mutex<BTreeMap<String, Weak<tokio::sync::Mutex<()>>>>,
}

#[derive(Debug, Default)]
struct Kept {
    by_id: BTreeMap<String, Sandbox>,
    /// Bytes that the records take.
    bytes: usize,
    /// Ids of sandboxes that are being ended.
    ending: BTreeSet<String>,
}

impl Kept {
    /// Stores a record, replacing the one of its id.
    fn put(&mut self, sandbox: Sandbox) {
        self.bytes = self.bytes.saturating_add(sandbox.size_bytes());
        if let Some(old) = self.by_id.insert(sandbox.id.clone(), sandbox) {
            self.bytes = self.bytes.saturating_sub(old.size_bytes());
        }
    }

    /// Checks that the bytes of all records stay within their limit when `new` replaces `old`.
    fn check_bytes(&self, new: &Sandbox, old: Option<&Sandbox>) -> Result<(), Problem> {
        let (new, old) = (new.size_bytes(), old.map_or(0, Sandbox::size_bytes));
        if new <= old || self.bytes.saturating_sub(old).saturating_add(new) <= RECORDS_BYTES_MAX {
            return Ok(());
        }
        let detail =
            format!("what is kept of all sandboxes, their metadata among it, has {} MiB", RECORDS_BYTES_MAX >> 20);
        Err(Problem::limit("sandboxes", detail, RETRY))
    }

    fn check_room(&self) -> Result<(), Problem> {
        if self.by_id.len() < SANDBOXES_MAX {
            return Ok(());
        }
        let detail = format!("{SANDBOXES_MAX} sandboxes and snapshots are kept already");
        Err(Problem::limit("sandboxes", detail, RETRY))
    }
}

impl Sandboxes {
    /// Reads the records in a folder. A sandbox that was being made or removed is over. Blocks.
    pub(crate) fn open(folder: PathBuf) -> Sandboxes {
        let mut kept = Kept::default();
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten().take(SANDBOXES_MAX) {
            let is_small = entry.metadata().is_ok_and(|found| found.is_file() && found.len() <= RECORD_BYTES_MAX);
            let read = is_small.then(|| fs::read(entry.path()).ok()).flatten();
            let sandbox = read.and_then(|bytes| serde_json::from_slice::<Sandbox>(&bytes).ok());
            match sandbox.filter(|sandbox| entry.file_name().to_str() == Some(&sandbox.id)) {
                Some(sandbox) if !sandbox.is_whole() => kept.put(sandbox.over()),
                Some(sandbox) => {
                    found.push(sandbox.clone());
                    kept.put(sandbox);
                }
                None => tracing::warn!(file = %entry.path().display(), "this says nothing of a sandbox"),
            }
        }
        Sandboxes { folder, kept: Mutex::new(kept), found: Mutex::new(found), turns: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        lock(&self.kept)
    }

    /// Takes the records that were found at the start; a second call returns none.
    pub(crate) fn found(&self) -> Vec<Sandbox> {
        std::mem::take(&mut *lock(&self.found))
    }

    /// Returns the sandbox of this id. One that is not whole, or is a snapshot, is not found.
    pub(crate) fn get(&self, id: &str) -> Option<Sandbox> {
        let kept = self.lock();
        kept.by_id.get(id).filter(|sandbox| sandbox.is_whole() && !sandbox.is_snapshot()).cloned()
    }

    /// Returns the snapshot of this id, or of this name; of several with one name the latest.
    pub(crate) fn snapshot(&self, id: &str) -> Option<Sandbox> {
        let id = id.strip_suffix(":default").unwrap_or(id);
        let kept = self.lock();
        let snapshots = || kept.by_id.values().filter(|kept| kept.is_whole() && kept.is_snapshot());
        let named = snapshots().filter(|kept| kept.name.as_deref() == Some(id)).max_by_key(|kept| kept.started_at);
        snapshots().find(|kept| kept.id == id).or(named).cloned()
    }

    /// Lists the records, the oldest first.
    pub(crate) fn list(&self, snapshots: bool) -> Vec<Sandbox> {
        let is_one = |sandbox: &&Sandbox| sandbox.is_whole() && sandbox.is_snapshot() == snapshots;
        let mut list: Vec<Sandbox> = self.lock().by_id.values().filter(is_one).cloned().collect();
        list.sort_by(|a, b| (a.started_at, &a.id).cmp(&(b.started_at, &b.id)));
        list
    }

    /// Waits until nobody else pauses or resumes a sandbox: what is put away is put away whole before it is woken.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn turn(&self, id: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = lock(&self.turns);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let turn = turns.get(id).and_then(Weak::upgrade).unwrap_or_default();
            turns.insert(id.to_owned(), Arc::downgrade(&turn));
            turn
        };
        turn.lock_owned().await
    }

    /// Returns the sandboxes whose time is over and that are not being ended.
    pub(crate) fn due(&self, now: u64) -> Vec<Sandbox> {
        let kept = self.lock();
        let is_due = |sandbox: &&Sandbox| sandbox.is_due(now) && !kept.ending.contains(&sandbox.id);
        // One that is being made is not over.
        kept.by_id
            .values()
            .filter(is_due)
            .filter(|sandbox| sandbox.is_whole() || sandbox.end_at == 0)
            .cloned()
            .collect()
    }

    /// Checks that one more sandbox is allowed.
    pub(crate) fn check_room(&self) -> Result<(), Problem> {
        self.lock().check_room()
    }

    /// Records a sandbox whose sessions are to be made. It is not found until it is [complete](Sandboxes::complete).
    /// Blocks for a moment.
    pub(crate) fn begin(&self, sandbox: &Sandbox) -> Result<(), Problem> {
        let begun = Sandbox { loose: sandbox.sessions(), ..sandbox.clone() };
        let mut kept = self.lock();
        kept.check_room()?;
        kept.check_bytes(&begun, None)?;
        self.write(&begun)?;
        kept.put(begun);
        Ok(())
    }

    /// Marks a sandbox as complete, so that it is found. Blocks for a moment.
    pub(crate) fn complete(&self, sandbox: Sandbox) -> Result<Sandbox, Problem> {
        let mut kept = self.lock();
        self.write(&sandbox)?;
        kept.put(sandbox.clone());
        Ok(sandbox)
    }

    /// Changes a record, and returns it as it is then; none if there is none. Blocks for a moment.
    pub(crate) fn change(&self, id: &str, change: impl FnOnce(&mut Sandbox)) -> Result<Option<Sandbox>, Problem> {
        let mut kept = self.lock();
        let is_one = |sandbox: &&Sandbox| sandbox.is_whole() && !sandbox.is_snapshot();
        let Some(sandbox) = kept.by_id.get(id).filter(is_one) else { return Ok(None) };
        let mut changed = sandbox.clone();
        change(&mut changed);
        if changed != *sandbox {
            kept.check_bytes(&changed, Some(sandbox))?;
            self.write(&changed)?;
            kept.put(changed.clone());
        }
        Ok(Some(changed))
    }

    /// Makes a sandbox that is as the caller wants it impossible to find, and returns it to the first caller that ends
    /// it. That caller must remove its sessions, and then [forget](Sandboxes::forget) it, or [leave](Sandboxes::leave)
    /// it to be tried again. Blocks for a moment.
    pub(crate) fn end(&self, id: &str, is_wanted: impl FnOnce(&Sandbox) -> bool) -> Option<Sandbox> {
        let mut kept = self.lock();
        let sandbox = kept.by_id.get(id).filter(|_| !kept.ending.contains(id))?;
        if !is_wanted(sandbox) {
            return None;
        }
        let over = sandbox.over();
        if *sandbox != over
            && let Err(problem) = self.write(&over)
        {
            // When the server starts, the record is found to have no sessions.
            tracing::warn!(sandbox = id, problem = problem.words(), "the end of a sandbox was not noted");
        }
        kept.put(over.clone());
        kept.ending.insert(id.to_owned());
        Some(over)
    }

    /// Forgets a sandbox whose sessions are removed. Blocks for a moment.
    pub(crate) fn forget(&self, id: &str) {
        let mut kept = self.lock();
        kept.ending.remove(id);
        if let Some(gone) = kept.by_id.remove(id) {
            kept.bytes = kept.bytes.saturating_sub(gone.size_bytes());
        }
        let _ = fs::remove_file(self.folder.join(id));
    }

    /// Leaves a sandbox whose sessions could not all be removed, to be ended again.
    pub(crate) fn leave(&self, id: &str) {
        self.lock().ending.remove(id);
    }

    fn write(&self, sandbox: &Sandbox) -> Result<(), Problem> {
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            let text = serde_json::to_vec(sandbox)?;
            replace_with(&self.folder.join(&sandbox.id), &text, PRIVATE, Durability::Cached)
        };
        write().map_err(|error| Problem::internal(&error, "store"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(id: &str) -> Sandbox {
        Sandbox {
            id: id.to_owned(),
            template: "python".to_owned(),
            language: "python".to_owned(),
            metadata: BTreeMap::from([("user".to_owned(), "ada".to_owned())]),
            started_at: 1,
            end_at: 2,
            is_paused: false,
            auto_pause: false,
            auto_resume: false,
            secret: "s".to_owned(),
            contexts: Vec::new(),
            snapshot_of: None,
            name: None,
            loose: Vec::new(),
        }
    }

    fn keep(sandboxes: &Sandboxes, sandbox: Sandbox) {
        sandboxes.begin(&sandbox).expect("begun");
        sandboxes.complete(sandbox).expect("kept");
    }

    #[test]
    fn they_are_there_again_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Sandboxes::open(folder.path().join("sandboxes"));
        let first = open();
        keep(&first, sandbox("a"));
        keep(&first, sandbox("b"));
        first.change("a", |sandbox| sandbox.is_paused = true).expect("written");
        first.end("b", |_| true).expect("it was there");
        first.forget("b");
        fs::write(folder.path().join("sandboxes/c"), "{").expect("written");
        let second = open();
        assert!(second.get("a").expect("it is there").is_paused);
        assert!(second.get("b").is_none() && second.get("c").is_none() && second.due(3).is_empty());
    }

    /// State after a restart that follows a crash at any moment.
    #[test]
    fn what_was_being_made_or_removed_is_over_after_a_crash() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Sandboxes::open(folder.path().to_owned());
        let first = open();
        let context = Context { id: "a-1".to_owned(), language: "python".to_owned(), cwd: "/".to_owned() };
        first.begin(&Sandbox { contexts: vec![context], ..sandbox("a") }).expect("begun");
        assert!(first.get("a").is_none() && first.due(9).is_empty() && first.list(false).is_empty());
        keep(&first, Sandbox { end_at: u64::MAX, ..sandbox("b") });
        first.change("b", |sandbox| sandbox.loose.push("b-1".to_owned())).expect("changed");
        keep(&first, Sandbox { snapshot_of: Some("b".to_owned()), end_at: u64::MAX, ..sandbox("c") });
        first.end("c", |_| true).expect("it is there");
        assert!(first.end("c", |_| true).is_none() && first.snapshot("c").is_none() && first.due(9).is_empty());
        let second = open();
        let due: Vec<(String, usize)> =
            second.due(9).iter().map(|sandbox| (sandbox.id.clone(), sandbox.all_sessions().len())).collect();
        assert_eq!(due, [("a".to_owned(), 2), ("c".to_owned(), 1)]);
        assert_eq!(second.found().iter().map(|found| found.loose.as_slice()).collect::<Vec<_>>(), [["b-1".to_owned()]]);
        assert!(second.get("b").is_some() && second.get("a").is_none() && second.snapshot("c").is_none());
    }

    #[test]
    fn all_of_them_take_no_more_than_they_may() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = Sandboxes::open(folder.path().to_owned());
        let large =
            |id: String| Sandbox { metadata: BTreeMap::from([(id.clone(), "x".repeat(1 << 20))]), ..sandbox(&id) };
        let refused = (0..100).find_map(|n| kept.begin(&large(n.to_string())).err()).expect("there is an end");
        assert!(refused.words().contains("64 MiB"), "{}", refused.words());
        let held = kept.lock().bytes;
        assert!(held <= RECORDS_BYTES_MAX && held > RECORDS_BYTES_MAX - (2 << 20), "{held}");
        kept.begin(&sandbox("small")).expect("there is room for little");
        kept.complete(sandbox("small")).expect("kept");
        let grown = kept.change("small", |sandbox| *sandbox = large("small".to_owned()));
        assert!(grown.is_err() && kept.get("small").expect("there").metadata.len() == 1);
        (0..100).for_each(|n| kept.forget(&n.to_string()));
        kept.forget("small");
        assert_eq!(kept.lock().bytes, 0);
    }

    #[test]
    fn a_token_is_of_one_sandbox_and_of_one_token() {
        let (a, b) = (sandbox("a"), sandbox("b"));
        assert!(a.token("x").starts_with("x.") && !a.token("x").contains('s'));
        assert!(a.token("x") != b.token("x") && a.token("x") != a.token("y"));
    }

    #[test]
    fn snapshots_are_no_sandboxes_and_have_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = Sandboxes::open(folder.path().to_owned());
        let snapshot = Sandbox { snapshot_of: Some("a".to_owned()), name: Some("n".to_owned()), ..sandbox("s1") };
        keep(&kept, snapshot.clone());
        keep(&kept, Sandbox { id: "s2".to_owned(), started_at: 5, ..snapshot });
        assert!(kept.get("s1").is_none() && kept.due(9).is_empty());
        assert_eq!(kept.snapshot("n").expect("there").id, "s2");
        assert_eq!(kept.snapshot("s1:default").expect("there").id, "s1");
    }
}
