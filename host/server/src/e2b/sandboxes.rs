//! Which sessions of a tenant are a sandbox: what E2B's clients know of one that sessions do not say of themselves. The
//! sessions themselves are the hub's.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cellar_engine::Language;
use serde::{Deserialize, Serialize};

use crate::{access::digest, problem::Problem};

/// Sandboxes and snapshots of a tenant.
const SANDBOXES_MAX: usize = 10_000;
/// Bytes of what is kept of one.
const RECORD_BYTES_MAX: u64 = 4 << 20;

/// What is kept of a sandbox, or of a snapshot of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    /// Its id, which is the name of its first session: that of the contexts that are there from the start.
    pub(crate) id: String,
    pub(crate) template: String,
    /// The language of code that names none.
    pub(crate) language: String,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Milliseconds since the Unix epoch.
    pub(crate) started_at: u64,
    /// When it ends, unless it is paused.
    pub(crate) end_at: u64,
    pub(crate) is_paused: bool,
    /// It is paused, and not killed, when its time is over.
    pub(crate) auto_pause: bool,
    /// A request for it resumes it.
    pub(crate) auto_resume: bool,
    /// What the tokens of its clients are made with.
    pub(crate) secret: String,
    /// Contexts that clients have made, each a session of its own.
    pub(crate) contexts: Vec<Context>,
    /// Of a snapshot, the sandbox that it was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot_of: Option<String>,
    /// Of a snapshot, the name that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

/// A context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Context {
    /// The name of its session, or of its language for one that is there from the start.
    pub(crate) id: String,
    pub(crate) language: String,
    pub(crate) cwd: String,
}

impl Sandbox {
    /// The token by which a client shows that whoever has this token of the server has sent it here. It is of use for as
    /// long as that one is.
    pub(crate) fn token(&self, token_id: &str) -> String {
        let Sandbox { id, secret, .. } = self;
        format!("{token_id}.{}", digest(&format!("{secret}:{id}:{token_id}:{secret}")))
    }

    /// Its sessions, those of contexts first.
    pub(crate) fn sessions(&self) -> Vec<String> {
        self.contexts.iter().map(|context| context.id.clone()).chain([self.id.clone()]).collect()
    }

    /// Whether its time is over.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        !self.is_snapshot() && !self.is_paused && self.end_at <= now
    }

    pub(crate) fn is_snapshot(&self) -> bool {
        self.snapshot_of.is_some()
    }
}

/// What clients call a language.
pub(crate) fn language_name(language: Language) -> &'static str {
    match language {
        Language::JavaScript => "javascript",
        _ => "python",
    }
}

/// The language that clients mean.
pub(crate) fn language_named(name: &str) -> Option<Language> {
    match name.to_ascii_lowercase().as_str() {
        "python" | "python3" | "py" => Some(Language::Python),
        "javascript" | "js" => Some(Language::JavaScript),
        _ => None,
    }
}

/// The sandboxes of a tenant, each in a file of its own as well.
#[derive(Debug)]
pub(crate) struct Sandboxes {
    folder: PathBuf,
    by_id: Mutex<BTreeMap<String, Sandbox>>,
}

impl Sandboxes {
    /// Those that are kept in this folder. Blocks.
    pub(crate) fn open(folder: PathBuf) -> Sandboxes {
        let mut by_id = BTreeMap::new();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten().take(SANDBOXES_MAX) {
            let is_small = entry.metadata().is_ok_and(|found| found.is_file() && found.len() <= RECORD_BYTES_MAX);
            let read = is_small.then(|| fs::read(entry.path()).ok()).flatten();
            let sandbox = read.and_then(|bytes| serde_json::from_slice::<Sandbox>(&bytes).ok());
            match sandbox.filter(|sandbox| entry.file_name().to_str() == Some(&sandbox.id)) {
                Some(sandbox) => drop(by_id.insert(sandbox.id.clone(), sandbox)),
                None => tracing::warn!(file = %entry.path().display(), "this says nothing of a sandbox"),
            }
        }
        Sandboxes { folder, by_id: Mutex::new(by_id) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Sandbox>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox of this id, if it is none that only a snapshot is kept of.
    pub(crate) fn get(&self, id: &str) -> Option<Sandbox> {
        self.lock().get(id).filter(|sandbox| !sandbox.is_snapshot()).cloned()
    }

    /// The snapshot of this id, or of this name; of several with one name the latest.
    pub(crate) fn snapshot(&self, id: &str) -> Option<Sandbox> {
        let id = id.strip_suffix(":default").unwrap_or(id);
        let by_id = self.lock();
        let named = by_id.values().filter(|kept| kept.name.as_deref() == Some(id)).max_by_key(|kept| kept.started_at);
        by_id.get(id).or(named).filter(|kept| kept.is_snapshot()).cloned()
    }

    /// All of them, the oldest first.
    pub(crate) fn list(&self, snapshots: bool) -> Vec<Sandbox> {
        let mut list: Vec<Sandbox> =
            self.lock().values().filter(|sandbox| sandbox.is_snapshot() == snapshots).cloned().collect();
        list.sort_by(|a, b| (a.started_at, &a.id).cmp(&(b.started_at, &b.id)));
        list
    }

    /// Those whose time is over.
    pub(crate) fn due(&self, now: u64) -> Vec<Sandbox> {
        self.lock().values().filter(|sandbox| sandbox.is_due(now)).cloned().collect()
    }

    /// Forgets one whose time is over, unless it was given more meanwhile. Blocks for a moment.
    pub(crate) fn remove_due(&self, id: &str, now: u64) -> Option<Sandbox> {
        let mut by_id = self.lock();
        by_id.get(id).filter(|sandbox| sandbox.is_due(now))?;
        let removed = by_id.remove(id)?;
        let _ = fs::remove_file(self.folder.join(id));
        Some(removed)
    }

    /// Whether there is room for another one.
    pub(crate) fn check_room(&self) -> Result<(), Problem> {
        if self.lock().len() < SANDBOXES_MAX {
            return Ok(());
        }
        let detail = format!("{SANDBOXES_MAX} sandboxes and snapshots are kept already");
        Err(Problem::limit("sandboxes", detail, std::time::Duration::from_secs(60)))
    }

    /// Keeps another one. Blocks for a moment.
    pub(crate) fn add(&self, sandbox: Sandbox) -> Result<(), Problem> {
        let mut by_id = self.lock();
        self.write(&sandbox)?;
        by_id.insert(sandbox.id.clone(), sandbox);
        Ok(())
    }

    /// Changes one, and returns what it is then; none, if there is none. Blocks for a moment.
    pub(crate) fn change(&self, id: &str, change: impl FnOnce(&mut Sandbox)) -> Result<Option<Sandbox>, Problem> {
        let mut by_id = self.lock();
        let Some(sandbox) = by_id.get_mut(id).filter(|sandbox| !sandbox.is_snapshot()) else { return Ok(None) };
        let mut changed = sandbox.clone();
        change(&mut changed);
        if changed != *sandbox {
            self.write(&changed)?;
            *sandbox = changed;
        }
        Ok(Some(sandbox.clone()))
    }

    /// Forgets one, and returns it to whoever is the first to. Blocks for a moment.
    pub(crate) fn remove(&self, id: &str) -> Option<Sandbox> {
        let removed = self.lock().remove(id)?;
        let _ = fs::remove_file(self.folder.join(id));
        Some(removed)
    }

    fn write(&self, sandbox: &Sandbox) -> Result<(), Problem> {
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            // Only its owner may read it, as temporary files are made.
            let mut file = tempfile::NamedTempFile::new_in(self.folder.parent().unwrap_or(&self.folder))?;
            file.write_all(&serde_json::to_vec(sandbox)?)?;
            file.persist(self.folder.join(&sandbox.id))?;
            Ok(())
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
        }
    }

    #[test]
    fn they_are_there_again_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || Sandboxes::open(folder.path().join("sandboxes"));
        let first = open();
        first.add(sandbox("a")).expect("kept");
        first.add(sandbox("b")).expect("kept");
        first.change("a", |sandbox| sandbox.is_paused = true).expect("written");
        first.remove("b").expect("it was there");
        fs::write(folder.path().join("sandboxes/c"), "{").expect("written");
        let second = open();
        assert!(second.get("a").expect("it is there").is_paused);
        assert!(second.get("b").is_none() && second.get("c").is_none() && second.due(3).is_empty());
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
        kept.add(snapshot.clone()).expect("kept");
        kept.add(Sandbox { id: "s2".to_owned(), started_at: 5, ..snapshot }).expect("kept");
        assert!(kept.get("s1").is_none() && kept.due(9).is_empty());
        assert_eq!(kept.snapshot("n").expect("there").id, "s2");
        assert_eq!(kept.snapshot("s1:default").expect("there").id, "s1");
    }
}
