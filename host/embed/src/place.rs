//! Place of the lines of a program whose sandboxes are in its own process. It may name files and folders, as its user may.

use std::{
    fmt,
    io::{self, BufReader, Write},
    path::PathBuf,
    sync::Mutex,
};

use cellar_config::Config;
use cellar_core::sync::lock;
use cellar_engine::{Error, Snapshot};
use cellar_hub::{Hub, HubError, Keep, LineError, OpenRequest, Place};
use cellar_wire::Open;
use futures::future::BoxFuture;
use tokio::task::spawn_blocking;

/// Place of one connection.
pub struct InProcess {
    hub: Hub,
    is_kept: bool,
    /// File that the first session is recorded in.
    record: Mutex<Option<PathBuf>>,
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("is_kept", &self.is_kept).finish_non_exhaustive()
    }
}

impl InProcess {
    /// Place of the sessions of a hub. `is_kept` is true where that has a store; `record` is the file that the first session is
    /// recorded in.
    pub fn new(hub: Hub, is_kept: bool, record: Option<PathBuf>) -> InProcess {
        InProcess { hub, is_kept, record: Mutex::new(record) }
    }
}

impl Place for InProcess {
    fn hub(&self) -> &Hub {
        &self.hub
    }

    fn open(&self, open: Open<Config>) -> BoxFuture<'_, Result<OpenRequest, LineError>> {
        Box::pin(async move {
            let snapshot = match open.snapshot {
                Some(file) => Some(self.read_snapshot(file).await?),
                None => None,
            };
            let keep = match (self.is_kept, snapshot.is_some()) {
                (false, _) => Keep::No,
                (true, true) => Keep::New,
                (true, false) => Keep::Either,
            };
            let record = lock(&self.record).take();
            let (workspace, tools) = (open.workspace.map(Into::into), open.tools);
            let (config, input) = (open.grants, open.input);
            Ok(OpenRequest { config, input, workspace, tools, snapshot, keep, record, ..OpenRequest::default() })
        })
    }

    /// A session that is kept can be opened again as soon as this is over.
    fn close<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), LineError>> {
        Box::pin(async move {
            if self.is_kept {
                self.hub.session(name)?.session.save().await.map_err(HubError::from)?;
                return Ok(self.hub.put_away(name).await?);
            }
            if let Ok(entry) = self.hub.session(name) {
                entry.session.end_recording().map_err(HubError::from)?;
            }
            Ok(self.hub.close(name)?)
        })
    }

    fn read_snapshot(&self, file: PathBuf) -> BoxFuture<'_, Result<Snapshot, LineError>> {
        let read = move || Snapshot::read_from(BufReader::new(Snapshot::open_file(&file)?));
        Box::pin(async move {
            let read = spawn_blocking(read).await.map_err(HubError::Task)?;
            let read = read.map_err(|error| LineError::refused("read", error.to_string()))?;
            Ok(read.map_err(Error::from).map_err(HubError::from)?)
        })
    }

    fn write_snapshot(&self, snapshot: Snapshot, file: PathBuf) -> BoxFuture<'_, Result<(), LineError>> {
        let write = move || -> io::Result<()> {
            // Whole, or as it was.
            let part = file.with_added_extension("part");
            let mut out = std::fs::File::create(&part)?;
            out.write_all(&snapshot.to_bytes())?;
            out.sync_all()?;
            std::fs::rename(part, file)
        };
        Box::pin(async move {
            let written = spawn_blocking(write).await.map_err(HubError::Task)?;
            written.map_err(|error| LineError::refused("save", error.to_string()))
        })
    }
}
