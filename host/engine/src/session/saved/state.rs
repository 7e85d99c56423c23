//! The state of a session as a whole: snapshots, forks, rewinding, sleep, and sessions that are stored.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use cellar_core::{cell::Language, sync::lock, time::wall_nanos};
use cellar_files::{Access, Mount};
use cellar_results::artifacts::ArtifactKeys;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::{Kept, Slot, check};
use crate::{
    contract::error::Error,
    formats::snapshot::{KernelImage, Snapshot},
    kernel::{
        events::Hearer,
        host::Host,
        scheduling::{CpuShare, Resident},
        state::KernelLink,
    },
    session::{
        Command, Inner, Kernels, Origin, Session, SessionConfig,
        granted::Bridges,
        spawned::{Kin, Role, Teller},
        states::Held,
    },
    storage::{
        vault::StoredSession,
        workspace::{OwnFolder, PrivateFolder, copy_trees},
    },
};

impl Host {
    /// Opens a session from a snapshot. Its kernels start when they are first used.
    ///
    /// Pending work goes on: timers run, calls that were under way fail as `cancelled`, and cells whose runs are gone end
    /// without a reader. The session's folders are those of `config`; open files are opened again by their paths, and missing
    /// ones are reported by a status event of the next cell.
    ///
    /// # Errors
    /// `Snapshot` when it was made by another build of a guest or needs more memory than `config` grants; as
    /// [`Host::session`].
    pub fn restore(&self, snapshot: &Snapshot, config: SessionConfig) -> Result<Session, Error> {
        Session::open(self.clone(), config, Origin { snapshot: Some(snapshot), ..Origin::default() })
    }

    /// Opens a session that is stored, where it left off. It has its own folders that are stored with it, unless
    /// `config` names a workspace. Its checkpoints are stored as they are taken; [`Session::save`] stores all.
    ///
    /// # Errors
    /// `Store`, or as [`Host::restore`].
    pub fn open_stored(&self, home: StoredSession, config: SessionConfig) -> Result<Session, Error> {
        let snapshot = home.load()?;
        let config = SessionConfig { id: config.id.or_else(|| Some(home.name().to_owned())), ..config };
        let origin = Origin { snapshot: snapshot.as_ref(), home: Some(home), ..Origin::default() };
        Session::open(self.clone(), config, origin)
    }

    /// Checks that a snapshot can be restored here.
    pub(crate) fn check(&self, snapshot: &Snapshot, config: &SessionConfig) -> Result<(), Error> {
        for image in &snapshot.kernels {
            let guest = match image.state.language() {
                Some(language) => self.known_digest(config.kernels.guest(language), &image.state.guest)?,
                None => String::new(),
            };
            check(image, &guest, &config.limits)?;
        }
        Ok(())
    }
}

impl Session {
    /// Captures the state of the session, cells that await included. Waits for code that runs; each kernel is then
    /// held for about a third of a millisecond, and half a millisecond a MiB that it has changed.
    ///
    /// # Errors
    /// `SessionClosed`, or when a kernel cannot be read.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut images = Vec::new();
        for commands in self.live()? {
            let (reply, answer) = oneshot::channel();
            // A kernel that dies of it, or died before, leaves what it left in its slot.
            if commands.send(Command::Snapshot(reply)).await.is_ok()
                && let Ok(image) = answer.await
            {
                images.push(image?);
            }
        }
        let inner = self.inner.clone();
        let made = tokio::task::spawn_blocking(move || inner.snapshot_of(images)).await;
        made.map_err(|error| Error::Engine(error.into()))?
    }

    /// Hibernates the session's kernels: their memory is compressed and released, and stored if the session is a stored one.
    /// Cells that await go on awaiting, and the next request to the session wakes it. Waits for code that runs.
    ///
    /// # Errors
    /// `SessionClosed`, or when a kernel cannot be captured.
    pub async fn hibernate(&self) -> Result<(), Error> {
        self.tell_all(Command::Sleep).await
    }

    /// Stores the session's state, and those of its states that are still being written. When this returns, no crash of the
    /// process or the machine loses them. Waits for code that runs.
    ///
    /// # Errors
    /// `SessionClosed`, `SessionUnknown` when the session has no place to be stored in, `Store`, or when a kernel cannot be
    /// captured.
    pub async fn save(&self) -> Result<(), Error> {
        self.settle_states().await;
        self.save_by(|home, inner| home.save_latest(|| inner.kept()).map(drop)).await
    }

    /// The same for a session that is at work, and is stored with each of its results: it takes a fraction of the time once
    /// the session is stored. What is stored so is found as [`save`](Session::save) leaves it when the session falls asleep.
    ///
    /// # Errors
    /// As [`Session::save`].
    pub async fn save_result(&self) -> Result<(), Error> {
        self.save_by(|home, inner| home.save_next(|| inner.kept())).await
    }

    async fn save_by(
        &self,
        save: impl FnOnce(&StoredSession, &Inner) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let Some(home) = self.inner.stored.home.clone() else {
            return Err(Error::SessionUnknown(self.inner.id.clone()));
        };
        self.tell_all(Command::Checkpoint).await?;
        let inner = self.inner.clone();
        let saved = tokio::task::spawn_blocking(move || save(&home, &inner)).await;
        saved.map_err(|error| Error::Engine(error.into()))?
    }

    /// Captures the state of the session as [`Session::snapshot`] does, and holds its kernels until what is returned beside it is
    /// dropped, so that its files stay those of that instant. Where they cannot be held at once, as while one computes, they
    /// are not.
    async fn snapshot_held(&self) -> Result<(Snapshot, Option<Held>), Error> {
        let Some(held) = self.hold(None).await? else { return Ok((self.snapshot().await?, None)) };
        let (inner, images) = (self.inner.clone(), held.images.clone());
        let made = tokio::task::spawn_blocking(move || inner.snapshot_of(images)).await;
        Ok((made.map_err(|error| Error::Engine(error.into()))??, Some(held)))
    }

    /// Makes a new session with this one's state and grants. The two share the granted folders; the session's own folders are
    /// copied as they are at that instant. Cells that await go on in both: in the fork they have no reader, and their calls fail as `cancelled`. A fork
    /// draws random numbers of its own.
    ///
    /// # Errors
    /// As [`Session::snapshot`]; `Workspace` when the session's own folders cannot be copied.
    pub async fn fork(&self, id: Option<String>) -> Result<Session, Error> {
        self.fork_with(id, self.inner.config.bridges.clone()).await
    }

    /// [`fork`](Session::fork) whose calls are answered by other bridges, for those that know a session by its name.
    ///
    /// # Errors
    /// As there.
    pub async fn fork_with(&self, id: Option<String>, bridges: Arc<dyn Bridges>) -> Result<Session, Error> {
        self.fork_as(id, bridges, None).await
    }

    /// Stores a [`fork`](Session::fork) at `home`, to be opened later. Starts no session and no kernel.
    ///
    /// # Errors
    /// As [`Session::snapshot`]; `Store` when the state or the private workspace cannot be written.
    pub async fn fork_into(&self, home: StoredSession) -> Result<(), Error> {
        let (snapshot, held) = self.snapshot_held().await?;
        let snapshot = snapshot.forked().named(home.name());
        let inner = self.inner.clone();
        let stored = tokio::task::spawn_blocking(move || {
            let pair = |(folder, from): (OwnFolder, PathBuf)| home.folder(folder).map(|to| (from, to));
            let pairs: Vec<_> = inner.own_folders()?.into_iter().map(pair).collect::<Result<_, _>>()?;
            if let Some((_, to)) = pairs.first() {
                let failed = |source| Error::Store { doing: "copy files to", path: to.clone(), source };
                let bytes_max = inner.config.limits.disk_bytes.max(snapshot.disk_usage.0);
                copy_trees(&pairs, bytes_max).map_err(failed)?;
            }
            drop(held);
            home.save(&snapshot)
        });
        stored.await.map_err(|error| Error::Engine(error.into()))?
    }

    /// Makes a fork for a cell of this session. It shares the session's budgets, cells that await end in it, and requests for
    /// input are refused. The run of `maker` receives its events.
    ///
    /// # Errors
    /// As [`Session::fork`]; `Deadlock` when the call that makes it holds a kernel.
    pub(crate) async fn fork_within(
        &self,
        id: String,
        fork_id: String,
        agent: Option<&str>,
        maker: Option<Hearer>,
    ) -> Result<Session, Error> {
        let teller = Teller::new(fork_id.clone(), maker, self.inner.cells.latest.clone());
        let fork =
            self.fork_as(Some(id), self.inner.config.bridges.clone(), Some(self.kin(Role::Fork(fork_id)))).await?;
        Ok(Session { lineage: self.lineage.elsewhere(agent), teller: Some(Arc::new(teller)), ..fork })
    }

    /// Resources that the session shares with the sessions that its cells make.
    pub(crate) fn kin(&self, role: Role) -> Kin {
        let inner = &self.inner;
        Kin { role, shared: inner.shared.clone(), quota: Some(inner.quota.clone()) }
    }

    async fn fork_as(
        &self,
        id: Option<String>,
        bridges: Arc<dyn Bridges>,
        mut kin: Option<Kin>,
    ) -> Result<Session, Error> {
        let inner = &self.inner;
        let (snapshot, held) = self.snapshot_held().await?;
        let mut snapshot = snapshot.forked();
        let folders = inner.own_folders()?;
        // A session that was stored under a wider limit keeps what it has.
        let bytes_max = inner.config.limits.disk_bytes.max(snapshot.disk_usage.0);
        let copy = tokio::task::spawn_blocking(move || PrivateFolder::copy_of(&folders, bytes_max));
        let copy = copy.await.map_err(|error| Error::Workspace(error.into()))?;
        drop(held);
        let (private, copied) = copy.map_err(Error::Workspace)?;
        snapshot.disk_usage = copied.at_least(snapshot.disk_usage);
        let id = id.or_else(|| Some(crate::session::made_up_id()));
        let mut config = SessionConfig { id, bridges, record: None, ..inner.config.clone() };
        if let Some(kin) = &mut kin {
            config.input = None;
            let is_writable = |mount: &Mount| mount.access == Access::ReadWrite;
            // What a fork writes to copies of its own is gone with it.
            let shares = config.folders.workspace.is_some() || config.folders.mounts.iter().any(is_writable);
            kin.quota = kin.quota.take().filter(|_| shares);
        }
        let origin = Origin { snapshot: Some(&snapshot), private: Some(private), kin, ..Origin::default() };
        Session::open(inner.host.clone(), config, origin)
    }

    /// Goes back to a snapshot. Cells that run end as interrupted. Files stay as they are: a snapshot holds none, and
    /// [`Session::back`] takes both. The random numbers are those that were
    /// to come then, unless the snapshot is that of another session.
    ///
    /// # Errors
    /// `Snapshot` when it cannot be restored here; then nothing has changed.
    pub fn rewind(&self, snapshot: &Snapshot) -> Result<(), Error> {
        self.inner.host.check(snapshot, &self.inner.config)?;
        self.inner.go_on_from(snapshot)?;
        self.inner.keeper.iter().for_each(|keeper| keeper.leave());
        Ok(())
    }

    /// The session's kernels.
    fn live(&self) -> Result<Vec<mpsc::Sender<Command>>, Error> {
        let kernels = lock(&self.inner.kernels);
        if kernels.closed {
            return Err(Error::SessionClosed(self.inner.id.clone()));
        }
        let live = kernels.live.iter();
        live.map(|(language, kernel)| self.check_block(*language, kernel).map(|()| kernel.commands.clone())).collect()
    }

    /// Sends a command to every kernel and waits for the replies. Skips kernels that die of it or died before.
    async fn tell_all(&self, command: fn(oneshot::Sender<Result<(), Error>>) -> Command) -> Result<(), Error> {
        for commands in self.live()? {
            let (reply, done) = oneshot::channel();
            if commands.send(command(reply)).await.is_ok()
                && let Ok(done) = done.await
            {
                done?;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Goes on from a snapshot that was checked. Kernels that are live are closed.
    ///
    /// # Errors
    /// `SessionClosed`.
    pub(crate) fn go_on_from(&self, snapshot: &Snapshot) -> Result<(), Error> {
        let mut kernels = lock(&self.kernels);
        if kernels.closed {
            return Err(Error::SessionClosed(self.id.clone()));
        }
        kernels.live.drain().for_each(|(_, kernel)| kernel.close());
        let is_own = snapshot.session == self.id;
        kernels.go_on_from(&if is_own { snapshot.clone() } else { snapshot.forked() }, &self.stored.home, false);
        *lock(&self.remembered) = snapshot.remembered.clone();
        if let Some(keys) = &snapshot.artifacts {
            self.shared.reach.inherit(keys, snapshot.taken_at_nanos);
        }
        // Names of cells are never used twice, also not those that were undone.
        self.cells.next.fetch_max(snapshot.next_cell, Ordering::Relaxed);
        Ok(())
    }

    /// Share of processor time and capacity that its kernels use.
    pub(crate) fn share(&self) -> &CpuShare {
        self.config.shared.cpu.as_ref().unwrap_or_else(|| self.host.usual_share())
    }

    /// Creates the link between the session and the task of a new kernel.
    pub(crate) fn link(&self) -> Arc<KernelLink> {
        let resident = Resident::new(self.share().claim());
        Arc::new(KernelLink { resident, ..KernelLink::default() })
    }

    /// Returns the paths of the session's own folders.
    pub(crate) fn own_folders(&self) -> Result<Vec<(OwnFolder, PathBuf)>, Error> {
        let path = |folder: &OwnFolder| match (&self.folders.private, &self.stored.home) {
            (Some(private), _) => private.path(*folder).map(|path| (*folder, path)).map_err(Error::Workspace),
            (None, Some(home)) => home.folder(*folder).map(|path| (*folder, path)),
            (None, None) => Err(Error::SessionClosed(self.id.clone())),
        };
        self.folders.own.iter().map(path).collect()
    }

    /// Makes a snapshot of these kernels, and of the last states of languages without a kernel.
    pub(crate) fn snapshot_of(&self, images: Vec<Arc<KernelImage>>) -> Result<Snapshot, Error> {
        let mut is_fork = false;
        let mut kernels = images;
        let slots = lock(&self.kernels).slots.clone();
        for language in Language::ALL {
            let is_there = kernels.iter().any(|image| image.state.language() == Some(language));
            let kept = slots.get(&language).filter(|_| !is_there).map(|slot| slot.load_now()).transpose()?.flatten();
            if let Some(kept) = kept {
                is_fork |= kept.is_fork;
                kernels.push(kept.image);
            }
        }
        kernels.sort_by_key(|image| image.state.language());
        Ok(Snapshot {
            session: self.id.clone(),
            taken_at_nanos: wall_nanos(),
            next_cell: self.cells.next.load(Ordering::Relaxed),
            disk_usage: self.quota.usage(),
            is_fork,
            remembered: lock(&self.remembered).clone(),
            artifacts: Some(ArtifactKeys::clone(&self.shared.reach.keys())),
            kernels,
        })
    }

    /// Makes a snapshot of the last states of all languages.
    pub(crate) fn kept(&self) -> Result<Snapshot, Error> {
        self.snapshot_of(Vec::new())
    }

    /// Compresses the last states, and stores them if the session is stored. Blocks.
    pub(crate) fn settle(&self) {
        let slots: Vec<Arc<Slot>> = lock(&self.kernels).slots.values().cloned().collect();
        slots.iter().for_each(|slot| slot.pack());
        // Whoever waits for a turn stores what there is when it comes.
        if self.stored.home.is_some() && !self.stored.is_settling.swap(true, Ordering::Relaxed) {
            self.store();
        }
    }

    /// Stores the last states, if the session is stored. Blocks.
    pub(crate) fn store(&self) {
        let Some(home) = &self.stored.home else { return };
        let latest = || {
            self.stored.is_settling.store(false, Ordering::Relaxed);
            self.kept()
        };
        match home.save_latest(latest) {
            Ok(stored) => {
                let slots: Vec<Arc<Slot>> = lock(&self.kernels).slots.values().cloned().collect();
                slots.iter().for_each(|slot| slot.release(&stored.kernels));
            }
            Err(error) => {
                tracing::warn!(
                    session = self.id,
                    error = cellar_core::text::describe(&error),
                    "a checkpoint was not stored"
                );
            }
        }
    }
}

impl Kernels {
    /// Returns the slot with the last state of a language.
    pub(crate) fn slot(&mut self, language: Language, home: &Option<Arc<StoredSession>>) -> Arc<Slot> {
        self.slots.entry(language).or_insert_with(|| Arc::new(Slot::new(home.clone()))).clone()
    }

    /// Replaces the last states by those of the snapshot. Cells that await in it go on, or end.
    pub(crate) fn go_on_from(&mut self, snapshot: &Snapshot, home: &Option<Arc<StoredSession>>, ends_cells: bool) {
        // New slots: a kernel that is on its way out still has the old one.
        self.slots.clear();
        for image in &snapshot.kernels {
            if let Some(language) = image.state.language() {
                let kept = Kept {
                    image: image.clone(),
                    is_fork: snapshot.is_fork,
                    is_checkpoint: ends_cells,
                    last_cell: snapshot.next_cell.saturating_sub(1),
                    deaths: 0,
                };
                self.slot(language, home).set(kept);
            }
        }
    }
}
