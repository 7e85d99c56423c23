//! Snapshots that a tenant keeps of its sessions, each a file.

use std::{fs, io, path::PathBuf, time::Duration};

use cellar_core::files::replace;
use cellar_engine::{Error, Snapshot};
use cellar_wire::{SnapshotJson, is_snapshot_name};

use super::{Tenant, minted, on_a_thread};
use crate::{access::now, problem::Problem};

/// Name of the folder of snapshots, which no session can have.
const SNAPSHOTS: &str = ".snapshots";
/// Snapshots that are made at once for all tenants. A tenant makes one at a time.
pub(crate) const MADE_MAX: usize = 4;
/// Time for which a request waits until its snapshot may be made.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// Snapshots that a tenant may keep.
const SNAPSHOTS_MAX: usize = 10_000;

impl Tenant {
    /// Folder of the snapshots.
    pub(crate) fn snapshots(&self) -> PathBuf {
        self.store.join(SNAPSHOTS)
    }

    /// The file of a snapshot, if this can be the id of one.
    pub(crate) fn snapshot_file(&self, id: &str) -> Option<PathBuf> {
        is_snapshot_name(id).then(|| self.snapshots().join(id))
    }

    /// Waits until a snapshot of this tenant may be made: each is in memory as a whole.
    pub(crate) async fn snapshot_turn(&self) -> Result<impl Sized + use<'_>, Problem> {
        // THREAT: T13
        let (own, all) = &self.snapshots;
        let taken = async { Ok::<_, tokio::sync::AcquireError>((own.acquire().await?, all.acquire().await?)) };
        let late = || Problem::limit("snapshots", "snapshots of this tenant are being made", Duration::from_secs(5));
        match tokio::time::timeout(TURN_TIMEOUT, taken).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(late()),
        }
    }

    /// Keeps the state of a session under an id.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn take_snapshot(&self, session: &str) -> Result<SnapshotJson, Problem> {
        let _turn = self.snapshot_turn().await?;
        let snapshot = self.session(session).await?.session.snapshot().await?;
        self.keep_snapshot(snapshot, minted("snap")).await
    }

    /// Keeps a snapshot under an id, in the place of one that had it.
    pub(crate) async fn keep_snapshot(&self, snapshot: Snapshot, id: String) -> Result<SnapshotJson, Problem> {
        self.quotas.admit_bytes()?;
        let folder = self.snapshots();
        let path = self.snapshot_file(&id).ok_or_else(|| Problem::bad("this can be the name of no snapshot"))?;
        let kept = on_a_thread(move || {
            fs::create_dir_all(&folder)?;
            if !path.exists() && fs::read_dir(&folder)?.count() >= SNAPSHOTS_MAX {
                return Ok(None);
            }
            let bytes = snapshot.to_bytes();
            replace(&path, &bytes)?;
            Ok::<_, io::Error>(Some(bytes.len() as u64))
        });
        let size_bytes = kept.await?.map_err(|error| Problem::internal(&error, "store"))?.ok_or_else(|| {
            let detail = format!("{SNAPSHOTS_MAX} snapshots are kept already");
            Problem::limit("snapshots", detail, Duration::from_secs(60))
        })?;
        Ok(SnapshotJson { snapshot: id, size_bytes, created_at: now() })
    }

    /// Reads a snapshot.
    pub(crate) async fn snapshot(&self, id: &str) -> Result<Snapshot, Problem> {
        let file = self.snapshot_file(id).ok_or_else(|| Problem::unknown("snapshot"))?;
        let _turn = self.snapshot_turn().await?;
        let bytes = on_a_thread(move || fs::read(file)).await?;
        let bytes = bytes.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Problem::unknown("snapshot"),
            _ => Problem::internal(&error, "store"),
        })?;
        Ok(Snapshot::from_bytes(&bytes).map_err(Error::from)?)
    }
}
