//! Artifacts of an isolated process, stored in an object store by the process that can reach it.
//!
//! A file is transferred piece by piece, each with a request of its own, into a file of the answering side, and from there
//! to the object store; and vice versa. So no file is buffered in memory, and no path of one side has a meaning on the
//! other.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
};

use cellar_connectors::Objects;
use cellar_engine::artifacts::RemoteStore;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use tokio::{runtime::Handle, sync::Semaphore};

use super::{Afar, Asked, Told, lock};

/// Bytes of a piece.
const PIECE_BYTES: usize = 1 << 20;
/// Maximum number of concurrent transfers of one process; more wait.
const TRANSFERS_MAX: usize = 4;
/// Bytes of a listing.
const LISTING_BYTES_MAX: usize = 64 << 20;

/// Request of the other process regarding artifacts. The client numbers the transfers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Errand {
    /// The next piece of a file that is to be stored; the first one begins the transfer.
    Put {
        transfer: u64,
        piece: Vec<u8>,
    },
    /// The end of a file, which is to be stored under the key.
    Keep {
        transfer: u64,
        key: String,
    },
    /// Request for a file of at most `bytes_max` bytes.
    Fetch {
        transfer: u64,
        key: String,
        bytes_max: u64,
    },
    /// Request for the next piece of that file.
    Take {
        transfer: u64,
    },
    /// The end of a transfer.
    End {
        transfer: u64,
    },
    List {
        prefix: String,
    },
    Remove {
        key: String,
    },
}

/// Response to an errand.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Done {
    All,
    /// The object does not exist.
    Nothing,
    /// A piece; an empty one follows the last.
    Piece(Vec<u8>),
    Keys(Vec<String>),
}

/// Object store for the artifacts of another process.
#[derive(Clone, Debug)]
pub struct ArtifactsAfar {
    /// The object store.
    pub objects: Objects,
    /// Maximum size of an artifact in bytes.
    pub bytes_max: u64,
}

/// Transfers in progress at the answering side.
pub(super) struct Transfers {
    artifacts: ArtifactsAfar,
    files: Mutex<HashMap<u64, NamedTempFile>>,
}

impl Transfers {
    pub(super) fn new(artifacts: ArtifactsAfar) -> Transfers {
        Transfers { artifacts, files: Mutex::default() }
    }

    /// Runs an errand. Error messages contain no credential.
    pub(super) async fn run(self: Arc<Transfers>, errand: Errand) -> Result<Done, String> {
        let told = |error: io::Error| error.to_string();
        let objects = &self.artifacts.objects;
        match errand {
            Errand::Put { .. } | Errand::Take { .. } => {
                let transfers = self.clone();
                let moved = tokio::task::spawn_blocking(move || transfers.move_on(errand)).await;
                moved.map_err(io::Error::other).flatten().map_err(told)
            }
            Errand::Keep { transfer, key } => {
                // An artifact may be empty: then nothing was put.
                let file = lock(&self.files).remove(&transfer).map_or_else(NamedTempFile::new, Ok).map_err(told)?;
                objects.upload(&key, file.path()).await.map_err(told)?;
                Ok(Done::All)
            }
            Errand::Fetch { transfer, key, bytes_max } => {
                let file = NamedTempFile::new().map_err(told)?;
                let bytes_max = bytes_max.min(self.artifacts.bytes_max);
                if !objects.download(&key, file.path(), bytes_max).await.map_err(told)? {
                    return Ok(Done::Nothing);
                }
                self.begin(transfer, file).map_err(told)?;
                Ok(Done::All)
            }
            Errand::End { transfer } => {
                lock(&self.files).remove(&transfer);
                Ok(Done::All)
            }
            Errand::List { prefix } => {
                let keys = objects.list(&prefix).await.map_err(told)?;
                let bytes = keys.iter().map(String::len).fold(0, usize::saturating_add);
                if bytes > LISTING_BYTES_MAX { Err("there are too many keys".to_owned()) } else { Ok(Done::Keys(keys)) }
            }
            Errand::Remove { key } => objects.remove(&key).await.map(|()| Done::All).map_err(told),
        }
    }

    fn begin(&self, transfer: u64, file: NamedTempFile) -> io::Result<()> {
        let mut files = lock(&self.files);
        if files.len() >= TRANSFERS_MAX && !files.contains_key(&transfer) {
            return Err(io::Error::other("too many files are on their way"));
        }
        files.insert(transfer, file);
        Ok(())
    }

    /// Moves a piece. Blocks.
    fn move_on(&self, errand: Errand) -> io::Result<Done> {
        let file = |transfer: u64| -> io::Result<File> {
            let files = lock(&self.files);
            files.get(&transfer).ok_or(io::ErrorKind::NotFound)?.as_file().try_clone()
        };
        match errand {
            Errand::Put { transfer, piece } => {
                if !lock(&self.files).contains_key(&transfer) {
                    self.begin(transfer, NamedTempFile::new()?)?;
                }
                let mut file = file(transfer)?;
                let after = file.metadata()?.len().saturating_add(piece.len() as u64);
                if after > self.artifacts.bytes_max {
                    lock(&self.files).remove(&transfer);
                    return Err(io::Error::other("it has more bytes than an artifact may have"));
                }
                file.write_all(&piece)?;
                Ok(Done::All)
            }
            Errand::Take { transfer } => {
                let mut piece = Vec::new();
                file(transfer)?.take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
                Ok(Done::Piece(piece))
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// An object store that another process reaches.
pub(super) struct RemoteAfar(Arc<Way>);

struct Way {
    afar: Afar,
    runtime: Handle,
    room: Semaphore,
    count: std::sync::atomic::AtomicU64,
}

impl fmt::Debug for RemoteAfar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteAfar").finish_non_exhaustive()
    }
}

impl RemoteAfar {
    pub(super) fn new(afar: Afar) -> RemoteAfar {
        let (runtime, room) = (Handle::current(), Semaphore::new(TRANSFERS_MAX));
        RemoteAfar(Arc::new(Way { afar, runtime, room, count: Default::default() }))
    }

    /// Waits for something that is done on the runtime.
    fn wait<T: Send + 'static, F: Future<Output = io::Result<T>> + Send + 'static>(
        &self,
        work: impl FnOnce(Arc<Way>) -> F,
    ) -> io::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        let work = work(self.0.clone());
        self.0.runtime.spawn(async move {
            // Whoever asked waits.
            let _ = answer.send(work.await);
        });
        answered.recv().unwrap_or_else(|_| Err(io::Error::other("what reaches it has ended")))
    }
}

impl Way {
    async fn run(&self, errand: Errand) -> io::Result<Done> {
        match self.afar.ask(|number| Asked::Errand(number, errand)).await {
            Some(Told::Done(_, done)) => done.map_err(io::Error::other),
            Some(Told::Answer(_, Err(error))) => Err(io::Error::other(error.message)),
            _ => Err(io::Error::other("the process that reaches it is gone")),
        }
    }

    fn transfer(&self) -> u64 {
        self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    async fn put(&self, transfer: u64, key: String, file: PathBuf) -> io::Result<()> {
        let mut file = File::open(file)?;
        loop {
            let (read, piece) = on_a_thread(move || {
                let mut piece = Vec::new();
                (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
                Ok((file, piece))
            })
            .await?;
            file = read;
            if piece.is_empty() {
                return self.run(Errand::Keep { transfer, key }).await.map(drop);
            }
            self.run(Errand::Put { transfer, piece }).await?;
        }
    }

    async fn fetch(&self, transfer: u64, key: String, file: PathBuf, bytes_max: u64) -> io::Result<bool> {
        if matches!(self.run(Errand::Fetch { transfer, key, bytes_max }).await?, Done::Nothing) {
            return Ok(false);
        }
        let mut file = File::options().write(true).truncate(true).open(file)?;
        while let Done::Piece(piece) = self.run(Errand::Take { transfer }).await? {
            if piece.is_empty() {
                return Ok(true);
            }
            file = on_a_thread(move || file.write_all(&piece).map(|()| file)).await?;
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

impl RemoteStore for RemoteAfar {
    fn upload(&self, key: &str, file: &Path) -> io::Result<()> {
        let (key, file) = (key.to_owned(), file.to_owned());
        self.wait(|way| async move {
            // It is never closed.
            let _room = way.room.acquire().await.map_err(io::Error::other)?;
            let transfer = way.transfer();
            let put = way.put(transfer, key, file).await;
            if put.is_err() {
                let _ = way.run(Errand::End { transfer }).await;
            }
            put
        })
    }

    fn download(&self, key: &str, file: &Path, bytes_max: u64) -> io::Result<bool> {
        let (key, file) = (key.to_owned(), file.to_owned());
        self.wait(move |way| async move {
            let _room = way.room.acquire().await.map_err(io::Error::other)?;
            let transfer = way.transfer();
            let fetched = way.fetch(transfer, key, file, bytes_max).await;
            let _ = way.run(Errand::End { transfer }).await;
            fetched
        })
    }

    fn list(&self, prefix: &str) -> io::Result<Option<Vec<String>>> {
        let prefix = prefix.to_owned();
        self.wait(|way| async move {
            match way.run(Errand::List { prefix }).await? {
                Done::Keys(keys) => Ok(Some(keys)),
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        })
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        let key = key.to_owned();
        self.wait(|way| async move { way.run(Errand::Remove { key }).await.map(drop) })
    }
}
