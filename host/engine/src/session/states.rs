//! The states of a session that are kept: every end of a cell, with the files of that instant. One may go back to any, branch from
//! any, compare two, name, pin and forget.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cellar_core::{
    cell::{Language, RunId},
    files::Durability,
    sync::lock,
    text::describe,
};
use cellar_files::Access;
use tempfile::TempDir;
use tokio::{
    sync::{OwnedMutexGuard, mpsc, oneshot},
    task::spawn_blocking,
};

use crate::{
    contract::{
        config::{HistoryOptions, KernelMode, WORKSPACE},
        error::Error,
    },
    formats::snapshot::{KernelImage, Snapshot},
    session::{
        Command, FolderGrants, Inner, Origin, Session, SessionConfig,
        granted::{Bridges, NoBridges},
        spawned::Role,
    },
    storage::{
        states::{Change, NewState, Producer, StateChange, StateInfo, StateList, States, files::Files},
        vault::StoredSession,
        workspace::{Contents, OwnFolder, PrivateFolder},
    },
};

/// Time for which kernels are held until the last of them can be captured.
const HOLD_TIMEOUT: Duration = Duration::from_secs(2);
/// The same, for a kernel that computes while a cell of another language ends.
const COMPUTING_TIMEOUT: Duration = Duration::from_millis(50);
/// Time that kernels have to end before their session goes back.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// Difference between two states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateDiff {
    /// Names that differ, by language and name. They are compared by type, size and the beginning of their text.
    pub names: Vec<NameChange>,
    /// Files, folders and links that differ, by path.
    pub files: Vec<FileChange>,
}

/// A name that differs between two states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameChange {
    /// Its language.
    pub language: Language,
    /// The name.
    pub name: String,
    /// Kind of the difference.
    pub change: Change,
}

/// A file, folder or link that differs between two states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Guest path.
    pub path: String,
    /// Kind of the difference.
    pub change: Change,
}

/// Keeper of the states of one session.
#[derive(Debug)]
pub(super) struct Keeper {
    options: HistoryOptions,
    place: Place,
    /// Opened when they are first needed. Locked until a state that was captured is on the disk.
    states: Arc<tokio::sync::Mutex<Option<States>>>,
    /// True if the session has gone on from a state that is not among these.
    is_elsewhere: AtomicBool,
}

/// Folder of the states.
#[derive(Debug)]
enum Place {
    Stored(Arc<StoredSession>),
    /// It goes with the session, and is made when it is first needed.
    Temporary(Mutex<Option<TempDir>>),
}

/// The states, locked and open.
struct Opened(OwnedMutexGuard<Option<States>>);

impl Opened {
    fn states(&mut self) -> Result<&mut States, Error> {
        self.0.as_mut().ok_or_else(|| Error::Workspace(std::io::ErrorKind::NotFound.into()))
    }
}

impl Keeper {
    pub(super) fn new(options: HistoryOptions, home: Option<&Arc<StoredSession>>) -> Keeper {
        let place = home.map_or_else(|| Place::Temporary(Mutex::default()), |home| Place::Stored(home.clone()));
        Keeper { options, place, states: Arc::default(), is_elsewhere: AtomicBool::new(false) }
    }

    /// Notes that the session goes on from a state that may not be among these.
    pub(super) fn leave(&self) {
        self.is_elsewhere.store(true, Ordering::Relaxed);
    }

    /// Waits until all states that were captured are kept, and opens them.
    async fn opened(self: &Arc<Keeper>) -> Result<Opened, Error> {
        let mut states = self.states.clone().lock_owned().await;
        if states.is_none() {
            let keeper = self.clone();
            let opened = spawn_blocking(move || keeper.open()).await;
            *states = Some(opened.map_err(|error| Error::Engine(error.into()))??);
        }
        Ok(Opened(states))
    }

    fn open(&self) -> Result<States, Error> {
        match &self.place {
            Place::Stored(home) => home.states(),
            Place::Temporary(made) => {
                let mut made = lock(made);
                let folder = match &mut *made {
                    Some(folder) => folder,
                    none => {
                        let new = tempfile::Builder::new().prefix("cellar-states-").tempdir();
                        none.insert(new.map_err(Error::Workspace)?)
                    }
                };
                States::open(folder.path().to_owned(), Durability::Cached)
            }
        }
    }
}

/// Kernels that wait between two steps of their cells, until this is dropped.
pub(super) struct Held {
    pub(super) images: Vec<Arc<KernelImage>>,
    _releases: Vec<oneshot::Sender<()>>,
}

/// Kernels that a session does not start while this lives.
struct Pause(Arc<Inner>);

impl Drop for Pause {
    fn drop(&mut self) {
        lock(&self.0.kernels).is_paused = false;
    }
}

impl Session {
    /// Holds all kernels between two steps of their cells, and captures them. `ended` is the language of a cell that has just
    /// ended: then kernels of others that compute are not waited for long. Returns nothing if not all can be held at once.
    pub(super) async fn hold(&self, ended: Option<Language>) -> Result<Option<Held>, Error> {
        let mut live = Vec::new();
        {
            let kernels = lock(&self.inner.kernels);
            if kernels.closed {
                return Err(Error::SessionClosed(self.inner.id.clone()));
            }
            for (language, kernel) in &kernels.live {
                self.check_block(*language, kernel)?;
                let is_computing =
                    ended.is_some_and(|ended| ended != *language) && kernel.link.is_entered.load(Ordering::Relaxed);
                let timeout = if is_computing { COMPUTING_TIMEOUT } else { HOLD_TIMEOUT };
                live.push((kernel.commands.clone(), timeout));
            }
        }
        let (mut images, mut releases) = (Vec::new(), Vec::new());
        for (commands, timeout) in live {
            let ((reply, answer), (release, released)) = (oneshot::channel(), oneshot::channel());
            let held = async {
                // A kernel that dies of it, or died before, leaves what it left in its slot.
                commands.send(Command::Hold { reply, released }).await.ok()?;
                answer.await.ok()
            };
            match tokio::time::timeout(timeout, held).await {
                Ok(Some(image)) => {
                    images.push(image?);
                    releases.push(release);
                }
                Ok(None) => {}
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(Held { images, _releases: releases }))
    }

    /// Keeps the state that a cell of the session's owner has ended with, if states are kept. Returns when it is captured; it is
    /// written to the disk while other cells run.
    pub(super) async fn keep_state(&self, run: RunId, cell: u32, language: Language) {
        let Some(keeper) = self.inner.keeper.clone() else { return };
        // What an agent runs is part of the cell that asked for it.
        if self.depth > 0 || self.lineage.last().is_some() {
            return;
        }
        if let Err(error) = self.capture_state(keeper, Producer { run, cell, language }).await {
            tracing::warn!(session = self.inner.id, error = describe(&error), "a state was not kept");
        }
    }

    async fn capture_state(&self, keeper: Arc<Keeper>, producer: Producer) -> Result<(), Error> {
        let mut opened = keeper.opened().await?;
        let held = match self.hold(Some(producer.language)).await {
            Ok(Some(held)) => held,
            // The next state will have what this one has.
            Ok(None) | Err(Error::Threads { .. } | Error::SessionClosed(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let inner = self.inner.clone();
        let taken = spawn_blocking(move || {
            let states = opened.states()?;
            let snapshot = inner.snapshot_of(held.images.clone())?;
            let scan = Files::scan(&inner.made_folders()?, states.latest(), &states.contents());
            let scan = scan.map_err(Error::Workspace)?;
            drop(held);
            Ok::<_, Error>((opened, snapshot, scan))
        });
        let (mut opened, snapshot, scan) = taken.await.map_err(|error| Error::Engine(error.into()))??;
        let inner = self.inner.clone();
        let is_elsewhere = keeper.is_elsewhere.swap(false, Ordering::Relaxed);
        spawn_blocking(move || {
            let new =
                NewState { snapshot: inner.packed(snapshot), scan, producer, outside: inner.outside(), is_elsewhere };
            if let Err(error) = opened.states().and_then(|states| states.keep(new, &keeper.options)) {
                tracing::warn!(session = inner.id, error = describe(&error), "a state was not kept");
            }
        });
        Ok(())
    }

    /// Waits until every state that was captured is kept.
    pub(super) async fn settle_states(&self) {
        if let Some(keeper) = &self.inner.keeper {
            drop(keeper.states.lock().await);
        }
    }

    fn keeper(&self) -> Result<Arc<Keeper>, Error> {
        let none = || Error::Request("the session keeps no states: set `history` in [session]".to_owned());
        self.inner.keeper.clone().ok_or_else(none)
    }

    /// Does something with the states, on a thread that may block.
    async fn with_states<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut States) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let mut opened = self.keeper()?.opened().await?;
        let done = spawn_blocking(move || work(opened.states()?)).await;
        done.map_err(|error| Error::Engine(error.into()))?
    }

    /// The states of the session that are kept. States are named in the methods below by number, by name, or as `~1` and so on:
    /// so many before the present one.
    ///
    /// # Errors
    /// `Request` for a session that keeps none, `Store`.
    pub async fn states(&self) -> Result<StateList, Error> {
        let mut list = self.with_states(|states| Ok(states.list())).await?;
        list.outside = self.inner.outside();
        Ok(list)
    }

    /// Names, pins or unpins a state. Returns the state as it is then.
    ///
    /// # Errors
    /// `StateUnknown`, `Request` for a name that cannot be given, or as [`Session::states`].
    pub async fn change_state(&self, state: &str, change: StateChange) -> Result<StateInfo, Error> {
        let state = state.to_owned();
        self.with_states(move |states| states.change(&state, change)).await
    }

    /// Forgets a state. States that came from it come from its parent now.
    ///
    /// # Errors
    /// `StateUnknown`, or as [`Session::states`].
    pub async fn forget_state(&self, state: &str) -> Result<(), Error> {
        let state = state.to_owned();
        self.with_states(move |states| states.forget(&state)).await
    }

    /// Goes back to a state: its kernels, and the files of the session's own folders. Granted folders stay as they are. Cells
    /// that run end as interrupted. The random numbers are those that were to come then. Returns the state.
    ///
    /// # Errors
    /// `StateUnknown`; `Snapshot` when it cannot be restored here; `Store` when files cannot be written, which the next
    /// attempt, or the next opening of a stored session, goes on with; or as [`Session::states`].
    ///
    /// # Cancel safety
    /// Once begun it is carried out, whether the future is polled to its end or not.
    pub async fn back(&self, state: &str) -> Result<StateInfo, Error> {
        let (session, state) = (self.clone(), state.to_owned());
        let done = tokio::spawn(async move { session.go_back(&state).await }).await;
        done.map_err(|error| Error::Engine(error.into()))?
    }

    async fn go_back(&self, state: &str) -> Result<StateInfo, Error> {
        let keeper = self.keeper()?;
        let (mut opened, state) = (keeper.opened().await?, state.to_owned());
        let loaded = spawn_blocking(move || opened.states()?.load(&state).map(|loaded| (opened, loaded)));
        let (mut opened, (info, snapshot, files)) = loaded.await.map_err(|error| Error::Engine(error.into()))??;
        self.inner.host.check(&snapshot, &self.inner.config)?;
        let ending: Vec<mpsc::Sender<Command>> = {
            let mut kernels = lock(&self.inner.kernels);
            if kernels.closed {
                return Err(Error::SessionClosed(self.inner.id.clone()));
            }
            if std::mem::replace(&mut kernels.is_paused, true) {
                return Err(Error::Request("the session goes back to a state already".to_owned()));
            }
            let live: Vec<_> = kernels.live.drain().map(|(_, kernel)| kernel).collect();
            live.iter().for_each(super::KernelHandle::close);
            live.into_iter().map(|kernel| kernel.commands).collect()
        };
        let pause = Pause(self.inner.clone());
        let ended = async {
            for commands in ending {
                commands.closed().await;
            }
        };
        if tokio::time::timeout(END_TIMEOUT, ended).await.is_err() {
            return Err(Error::Request("cells of the session do not end; try again".to_owned()));
        }
        let inner = self.inner.clone();
        let done = spawn_blocking(move || {
            let _pause = pause;
            let (folders, number) = (inner.own_folders()?, info.number);
            opened.states()?.go_back(number, &files, &folders, || {
                inner.go_on_from(&snapshot)?;
                inner.quota.set_usage(snapshot.disk_usage);
                inner.stored.home.as_ref().map(|home| home.save_latest(|| inner.kept())).transpose().map(drop)
            })?;
            keeper.is_elsewhere.store(false, Ordering::Relaxed);
            Ok::<_, Error>(info)
        });
        done.await.map_err(|error| Error::Engine(error.into()))?
    }

    /// Makes a new session that begins with a state of this one, with this one's grants and copies of the files of that instant.
    /// It draws random numbers of its own, and has states of its own. `bridges` answer its calls; this one's when absent.
    ///
    /// # Errors
    /// `StateUnknown`, `Workspace` when files cannot be written, or as [`Session::states`].
    pub async fn branch(
        &self,
        state: &str,
        id: Option<String>,
        bridges: Option<Arc<dyn Bridges>>,
    ) -> Result<Session, Error> {
        let (inner, state) = (self.inner.clone(), state.to_owned());
        let made = self.with_states(move |states| {
            let (_, snapshot, files) = states.load(&state)?;
            let private = PrivateFolder::new(&inner.folders.own);
            let folders = inner.folders.own.iter().map(|folder| Ok((*folder, private.path(*folder)?)));
            let folders = folders.collect::<std::io::Result<Vec<_>>>().map_err(Error::Workspace)?;
            files.restore(&folders, &states.contents()).map_err(Error::Workspace)?;
            let paths: Vec<PathBuf> = folders.into_iter().map(|(_, path)| path).collect();
            let contents = Contents::of(&paths).map_err(Error::Workspace)?;
            let disk_usage = contents.at_least(snapshot.disk_usage);
            Ok((Snapshot { disk_usage, ..snapshot.forked() }, private))
        });
        let (snapshot, private) = made.await?;
        let config = &self.inner.config;
        let config = SessionConfig {
            id: id.or_else(|| Some(super::made_up_id())),
            bridges: bridges.unwrap_or_else(|| config.bridges.clone()),
            record: None,
            ..config.clone()
        };
        let origin = Origin { snapshot: Some(&snapshot), private: Some(private), ..Origin::default() };
        Session::open(self.inner.host.clone(), config, origin)
    }

    /// Stores a [`branch`](Session::branch) at `home`, to be opened later. Starts no session and no kernel.
    ///
    /// # Errors
    /// `StateUnknown`, `Store`, or as [`Session::states`].
    pub async fn branch_into(&self, state: &str, home: StoredSession) -> Result<(), Error> {
        let state = state.to_owned();
        self.with_states(move |states| {
            let (_, snapshot, files) = states.load(&state)?;
            home.begin_with(&snapshot, &files, states)
        })
        .await
    }

    /// Compares two states. Each is opened in a session of its own for it, which has no bridges and no folders.
    ///
    /// # Errors
    /// `StateUnknown`, `Look` when a kernel cannot tell its names, or as [`Session::states`].
    pub async fn compare(&self, before: &str, after: &str) -> Result<StateDiff, Error> {
        let (first, second) = (before.to_owned(), after.to_owned());
        let load = move |states: &mut States| Ok([states.load(&first)?, states.load(&second)?]);
        let [(_, before, files_before), (_, after, files_after)] = self.with_states(load).await?;
        let (before, after) = (self.names_of(&before).await?, self.names_of(&after).await?);
        let names = Change::between(&before, &after).into_iter();
        let files: BTreeMap<String, Change> = Change::between(&files_before.contents(), &files_after.contents());
        Ok(StateDiff {
            names: names.map(|((language, name), change)| NameChange { language, name, change }).collect(),
            files: files.into_iter().map(|(path, change)| FileChange { path, change }).collect(),
        })
    }

    /// The names of a state, each with what they are compared by.
    async fn names_of(&self, snapshot: &Snapshot) -> Result<HashMap<(Language, String), String>, Error> {
        let config = &self.inner.config;
        let alone = SessionConfig {
            id: None,
            bridges: Arc::new(NoBridges),
            folders: FolderGrants { packages: config.folders.packages.clone(), ..FolderGrants::default() },
            input: None,
            record: None,
            audit: None,
            history: None,
            ..config.clone()
        };
        let session = self.inner.host.restore(&snapshot.forked(), alone)?;
        let mut names = HashMap::new();
        for language in snapshot.languages() {
            for variable in session.variables(language).await? {
                let looks = format!("{} {:?} {}", variable.type_name, variable.size, variable.preview);
                names.insert((language, variable.name), looks);
            }
        }
        Ok(names)
    }
}

impl Inner {
    /// Keeper of its states, if it has them kept.
    pub(super) fn new_keeper(
        config: &SessionConfig,
        role: &Role,
        home: Option<&Arc<StoredSession>>,
    ) -> Option<Arc<Keeper>> {
        let options = config.history.filter(|_| config.kernels.mode == KernelMode::Session)?;
        // What a cell makes is part of the state of its session.
        matches!(role, Role::Own).then(|| Arc::new(Keeper::new(options, home)))
    }

    /// Guest paths of the writable folders of the host.
    fn outside(&self) -> Vec<String> {
        let folders = &self.config.folders;
        let workspace = folders.workspace.iter().map(|_| WORKSPACE.to_owned());
        let writable = folders.mounts.iter().filter(|mount| mount.access == Access::ReadWrite);
        workspace.chain(writable.map(|mount| mount.guest.clone())).collect()
    }

    /// The session's own folders; without a path those that are not made yet.
    fn made_folders(&self) -> Result<Vec<(OwnFolder, Option<PathBuf>)>, Error> {
        match &self.folders.private {
            Some(private) => Ok(self.folders.own.iter().map(|folder| (*folder, private.made(*folder))).collect()),
            None => Ok(self.own_folders()?.into_iter().map(|(folder, path)| (folder, Some(path))).collect()),
        }
    }

    /// The same state, compressed, as the session itself keeps it where it can. Blocks.
    fn packed(&self, mut snapshot: Snapshot) -> Snapshot {
        let slots = lock(&self.kernels).slots.clone();
        for image in &mut snapshot.kernels {
            let Some(slot) = image.state.language().and_then(|language| slots.get(&language)) else { continue };
            slot.pack();
            if let Some(kept) = slot.peek().filter(|kept| kept.image.state == image.state) {
                *image = kept.image;
            }
        }
        snapshot
    }
}
