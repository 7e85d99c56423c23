//! Calls that wait for a person, as files of a folder: whoever may write there decides, from any process.
//!
//! A waiting call is `ID.call`, a decision `ID.decision`; the process whose cell waits holds a lock on `HOLDER.holder`, so that
//! the calls of one that has died are known. A decision is made once: the first one stands.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::{Duration, SystemTime},
};

use cellar_bridges::{Approver, WaitingCall};
use cellar_config::Folders;
use cellar_core::{files::open_plain, sync::lock};
use cellar_engine::{
    bridges::{CallError, CallErrorKind},
    made_up_id,
};
use cellar_wire::{Decision, DecisionOutcome, WaitingCallJson, unix_seconds};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

/// Name of the folder in a store of sessions.
pub const CALLS_FOLDER: &str = ".calls";
/// Interval between looks for decisions of other processes, while calls wait.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time for which a change of the folder may hide another one behind it, whose time is the same.
const FRESH: Duration = Duration::from_secs(1);
/// Calls of one process that wait.
const WAITING_MAX: usize = 100_000;
/// Bytes of a file of the folder.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Calls of a store that wait for a person. A cheap handle.
#[derive(Clone, Debug)]
pub struct Approvals(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    /// This process among those that use the folder.
    holder: String,
    table: Mutex<Table>,
    /// Told of decisions that this process has made.
    decided: Notify,
}

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<String, oneshot::Sender<Decision>>,
    /// Lock on the file of this process, from its first call on.
    lock: Option<File>,
    /// True while a task looks for decisions.
    is_watched: bool,
}

/// Returns what asks people about the calls of sessions that use these folders; none without a folder of sessions, where nobody could
/// find them.
pub fn approver(folders: &Folders) -> Option<Arc<dyn Approver>> {
    Some(Arc::new(Approvals::of_store(&folders.store().ok()?)))
}

/// A waiting call on the disk.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    holder: String,
    #[serde(flatten)]
    call: WaitingCallJson,
}

/// Error of a decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// No such call waits.
    #[error("no call `{0}` waits for a decision")]
    Unknown(String),
    /// Somebody has decided.
    #[error("the call `{0}` was decided on already")]
    Decided(String),
    /// The arguments of the call cannot be changed.
    #[error("the arguments of the call `{0}` cannot be changed: approve or reject it")]
    NotEditable(String),
    /// The folder fails.
    #[error("cannot keep the decision")]
    Io(#[from] io::Error),
}

impl Approvals {
    /// Calls of the store of sessions in this folder. Nothing is made before a call waits.
    pub fn of_store(store: &Path) -> Approvals {
        Approvals(Arc::new(Inner {
            folder: store.join(CALLS_FOLDER),
            holder: made_up_id(),
            table: Mutex::default(),
            decided: Notify::new(),
        }))
    }

    /// Lists the calls that wait, the oldest first. Files of processes that have died are removed. Blocks.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn list(&self) -> io::Result<Vec<WaitingCallJson>> {
        let folder = &self.0.folder;
        let (mut alive, mut dead) = (HashSet::from([self.0.holder.clone()]), HashSet::new());
        let mut calls = Vec::new();
        for (id, path) in files(folder, "call")? {
            let Some(kept) = read(&path)? else { continue };
            let known = alive.contains(&kept.holder) || dead.contains(&kept.holder);
            if !known {
                let is_alive = is_held(&holder_file(folder, &kept.holder));
                if is_alive { &mut alive } else { &mut dead }.insert(kept.holder.clone());
            }
            if dead.contains(&kept.holder) {
                self.0.forget(&id);
            } else if kept.call.call == id && !self.0.file(&id, "decision").exists() {
                calls.push(kept.call);
            }
        }
        for holder in dead {
            remove(&holder_file(folder, &holder));
        }
        calls.sort_by(|a, b| (a.since, &a.call).cmp(&(b.since, &b.call)));
        Ok(calls)
    }

    /// Decides on a call. Blocks.
    ///
    /// # Errors
    /// It does not wait, was decided on, or its arguments cannot be changed.
    pub fn decide(&self, id: &str, decision: &Decision) -> Result<(), DecideError> {
        let unknown = || DecideError::Unknown(id.to_owned());
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let kept = if is_id { read(&self.0.file(id, "call"))? } else { None };
        let kept = kept.ok_or_else(unknown)?;
        if !self.0.is_alive(&kept.holder) {
            self.0.forget(id);
            return Err(unknown());
        }
        if matches!(decision.outcome, DecisionOutcome::Approve(Some(_))) && !kept.call.editable {
            return Err(DecideError::NotEditable(id.to_owned()));
        }
        let text = decision.to_json().to_string();
        match self.0.write(id, "decision", text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(DecideError::Decided(id.to_owned()));
            }
            written => written?,
        }
        self.0.decided.notify_waiters();
        Ok(())
    }
}

impl Approver for Approvals {
    fn ask(&self, call: WaitingCall) -> BoxFuture<'static, Result<Decision, CallError>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let id = call.id.clone();
            let (sender, decision) = oneshot::channel();
            let withdrawn = Withdrawn { inner: inner.clone(), id: id.clone() };
            let begun = inner.clone();
            let begin = tokio::task::spawn_blocking(move || begun.begin(call, sender));
            let failed = |what: &dyn std::fmt::Display| {
                CallError::new(CallErrorKind::Failed, format!("the call cannot be shown to a person: {what}"))
            };
            begin.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
            watch(&inner);
            let decision = decision.await.map_err(|_| failed(&"its place was taken"))?;
            drop(withdrawn);
            Ok(decision)
        })
    }
}

/// Removes a call's files when nobody waits for it any more.
struct Withdrawn {
    inner: Arc<Inner>,
    id: String,
}

impl Drop for Withdrawn {
    fn drop(&mut self) {
        lock(&self.inner.table).waiting.remove(&self.id);
        let (inner, id) = (self.inner.clone(), std::mem::take(&mut self.id));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || inner.forget(&id))),
            Err(_) => inner.forget(&id),
        }
    }
}

impl Inner {
    fn file(&self, id: &str, ending: &str) -> PathBuf {
        self.folder.join(format!("{id}.{ending}"))
    }

    fn is_alive(&self, holder: &str) -> bool {
        *holder == self.holder || is_held(&holder_file(&self.folder, holder))
    }

    /// Shows a call.
    fn begin(&self, call: WaitingCall, sender: oneshot::Sender<Decision>) -> io::Result<()> {
        {
            let mut table = lock(&self.table);
            if table.waiting.len() >= WAITING_MAX {
                return Err(io::Error::other(format!("{WAITING_MAX} calls wait")));
            }
            if table.lock.is_none() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
                let mut options = File::options();
                let file = options.write(true).create(true).truncate(false).mode(0o600);
                let file = file.open(holder_file(&self.folder, &self.holder))?;
                file.lock()?;
                table.lock = Some(file);
            }
            table.waiting.insert(call.id.clone(), sender);
        }
        let kept = Kept {
            holder: self.holder.clone(),
            call: WaitingCallJson {
                call: call.id.clone(),
                session: call.session,
                cell: call.cell,
                bridge: call.bridge.as_str().to_owned(),
                name: call.name,
                arguments: call.arguments,
                editable: call.is_editable,
                since: unix_seconds(SystemTime::now()),
            },
        };
        self.write(&call.id, "call", &serde_json::to_vec(&kept).map_err(io::Error::other)?)
    }

    /// Writes a file that is not there yet, whole or not at all.
    fn write(&self, id: &str, ending: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.file(&format!("{id}-{}", made_up_id()), "new");
        let written = (|| {
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(bytes)?;
            fs::hard_link(&temporary, self.file(id, ending))
        })();
        remove(&temporary);
        written
    }

    /// Hands a decision to the call that waits for it.
    fn hand_over(&self) {
        let decisions = files(&self.folder, "decision").unwrap_or_default();
        for (id, path) in decisions {
            let is_ours = lock(&self.table).waiting.contains_key(&id);
            if !is_ours {
                continue;
            }
            let bytes = bytes_of(&path).ok().flatten();
            let Some(decision) = bytes.and_then(|bytes| Decision::from_json(&bytes, "").ok()) else {
                // It was written by hand, and says nothing that is understood: another one may be made.
                remove(&path);
                continue;
            };
            if let Some(sender) = lock(&self.table).waiting.remove(&id) {
                // The call may be gone by now.
                let _ = sender.send(decision);
            }
        }
    }

    fn forget(&self, id: &str) {
        ["call", "decision"].into_iter().for_each(|ending| remove(&self.file(id, ending)));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if lock(&self.table).lock.is_some() {
            remove(&holder_file(&self.folder, &self.holder));
        }
    }
}

/// Looks for decisions for as long as calls wait, unless that is done.
fn watch(inner: &Arc<Inner>) {
    {
        let mut table = lock(&inner.table);
        if std::mem::replace(&mut table.is_watched, true) {
            return;
        }
    }
    let weak: Weak<Inner> = Arc::downgrade(inner);
    tokio::spawn(async move {
        let mut seen = None;
        loop {
            let Some(inner) = weak.upgrade() else { return };
            {
                let mut table = lock(&inner.table);
                if table.waiting.is_empty() {
                    table.is_watched = false;
                    return;
                }
            }
            let changed = fs::metadata(&inner.folder).and_then(|folder| folder.modified()).ok();
            // Of two changes within a tick of the disk's clock the second must be seen too.
            let is_fresh = changed.is_none_or(|time| time.elapsed().is_ok_and(|since| since < FRESH));
            if changed != seen || is_fresh {
                seen = changed;
                let looked = inner.clone();
                let _ = tokio::task::spawn_blocking(move || looked.hand_over()).await;
            }
            let _ = tokio::time::timeout(INTERVAL, inner.decided.notified()).await;
        }
    });
}

fn holder_file(folder: &Path, holder: &str) -> PathBuf {
    folder.join(format!("{holder}.holder"))
}

/// Returns true if a process holds the lock on a file.
fn is_held(path: &Path) -> bool {
    let Ok(file) = open_plain(path, File::options().read(true)) else { return false };
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Files of a folder with this ending, by their names without it.
fn files(folder: &Path, ending: &str) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == ending)
            && let Some(id) = path.file_stem().and_then(|stem| stem.to_str())
        {
            found.push((id.to_owned(), path));
        }
    }
    Ok(found)
}

/// Bytes of a file; `None` if it is gone.
fn bytes_of(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match open_plain(path, File::options().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, FILE_BYTES_MAX), &mut bytes)?;
    Ok(Some(bytes))
}

/// A waiting call; `None` if it is gone, or is none.
fn read(path: &Path) -> io::Result<Option<Kept>> {
    Ok(bytes_of(path)?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Removes a file that may be gone.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "a file of waiting calls was not removed");
    }
}
