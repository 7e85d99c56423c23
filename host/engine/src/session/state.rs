//! Snapshots, forks and rewinding of a session.

use tokio::sync::oneshot;

use super::{Command, Kernels, Session, SessionConfig};
use crate::{
    cell::Language,
    checkpoint::{Kept, check},
    error::Error,
    host::Host,
    meter::{lock, wall_nanos},
    snapshot::Snapshot,
    workspace::PrivateFolder,
};

impl Host {
    /// Opens a session that goes on from a snapshot. Its kernels start when they are first used.
    ///
    /// What awaits in it goes on: timers run, calls that were under way fail as `cancelled`, and cells whose runs are
    /// gone end unheard. The session's folders are those of `config`; open files are opened again by their paths, and
    /// those that are not there are reported by a status event of the next cell.
    ///
    /// # Errors
    /// `Snapshot` when it was made by another build of a guest or needs more memory than `config` grants; as
    /// [`Host::session`].
    pub fn restore(&self, snapshot: &Snapshot, config: SessionConfig) -> Result<Session, Error> {
        Session::open(self.clone(), config, None, Some(snapshot))
    }

    /// Checks that a snapshot can be restored here.
    pub(super) fn check(&self, snapshot: &Snapshot, config: &SessionConfig) -> Result<(), Error> {
        for image in &snapshot.kernels {
            let guest = match image.state.language() {
                Some(language) => self.guest_digest(language)?,
                None => String::new(),
            };
            check(image, &guest, &config.limits)?;
        }
        Ok(())
    }
}

impl Session {
    /// Captures the state of the session, cells that await included. Waits for code that runs; each kernel is then
    /// held for about a millisecond, and 0.3 ms a MiB that it has changed.
    ///
    /// # Errors
    /// `SessionClosed`, or when a kernel cannot be read.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        let inner = &self.inner;
        let mut kernels = Vec::new();
        let mut is_fork = false;
        for language in Language::ALL {
            let (reply, answer) = oneshot::channel();
            let (live, kept) = {
                let kernels = lock(&inner.kernels);
                if kernels.closed {
                    return Err(Error::SessionClosed(inner.id.clone()));
                }
                let live = kernels.live.get(&language).filter(|kernel| !kernel.commands.is_closed());
                (live.map(|kernel| kernel.commands.clone()), kernels.kept(language))
            };
            let captured = match live {
                Some(commands) if commands.send(Command::Snapshot(reply)).await.is_ok() => answer.await.ok(),
                _ => None,
            };
            match (captured, kept) {
                (Some(image), _) => kernels.push(image?),
                (None, Some(kept)) => {
                    is_fork |= kept.is_fork;
                    kernels.push(kept.image);
                }
                (None, None) => {}
            }
        }
        Ok(Snapshot {
            session: inner.id.clone(),
            taken_at_nanos: wall_nanos(),
            next_cell: inner.next_cell.load(std::sync::atomic::Ordering::Relaxed),
            disk_usage: inner.quota.usage(),
            is_fork,
            kernels,
        })
    }

    /// A new session with this one's state and grants. The two share the granted folders; a private workspace is
    /// copied. Cells that await go on in both: in the fork nobody hears of them, and their calls fail as `cancelled`.
    /// A fork draws random numbers of its own.
    ///
    /// # Errors
    /// As [`Session::snapshot`]; `Workspace` when the private workspace cannot be copied.
    pub async fn fork(&self, id: Option<String>) -> Result<Session, Error> {
        let inner = &self.inner;
        let snapshot = self.snapshot().await?.forked();
        let private = match inner.private.clone() {
            Some(private) => {
                let copy = tokio::task::spawn_blocking(move || private.copy());
                Some(copy.await.map_err(|error| Error::Workspace(error.into()))?.map_err(Error::Workspace)?)
            }
            None => None,
        };
        let config = SessionConfig { id, ..inner.config.clone() };
        Session::open(inner.host.clone(), config, private, Some(&snapshot))
    }

    /// Goes back to a snapshot. Cells that run end as interrupted. Files stay as they are.
    ///
    /// # Errors
    /// `Snapshot` when it cannot be restored here; then nothing has changed.
    pub fn rewind(&self, snapshot: &Snapshot) -> Result<(), Error> {
        self.inner.host.check(snapshot, &self.inner.config)?;
        let mut kernels = lock(&self.inner.kernels);
        if kernels.closed {
            return Err(Error::SessionClosed(self.inner.id.clone()));
        }
        kernels.live.drain().for_each(|(_, kernel)| kernel.close());
        kernels.go_on_from(snapshot);
        // Names of cells are never used twice, also not those that were undone.
        self.inner.next_cell.fetch_max(snapshot.next_cell, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}

impl Kernels {
    /// The state that a language goes on from when it gets a kernel.
    fn kept(&self, language: Language) -> Option<Kept> {
        self.slots.get(&language).and_then(|slot| slot.get())
    }

    /// Forgets what was kept, and keeps what the snapshot has.
    pub(super) fn go_on_from(&mut self, snapshot: &Snapshot) {
        // New slots: a kernel that is on its way out still has the old one.
        self.slots.clear();
        for image in &snapshot.kernels {
            if let Some(language) = image.state.language() {
                let kept = Kept { image: image.clone(), is_fork: snapshot.is_fork, is_checkpoint: false };
                self.slots.entry(language).or_default().set(Some(kept));
            }
        }
    }
}

impl PrivateFolder {
    /// Another folder with the same files.
    fn copy(&self) -> std::io::Result<PrivateFolder> {
        let copy = PrivateFolder::new()?;
        crate::workspace::copy_tree(self.path(), copy.path())?;
        Ok(copy)
    }
}
