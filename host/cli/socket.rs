//! Runs from another process in a live session, over a Unix socket.
//!
//! A connection carries one run: a request as one line of JSON, then the events as they happen, one a line, and the
//! result as the last line. A client that goes away cancels its run. Both ends are here. Read [`Door`] first.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use cellar_bridges::{Doors, MeetFuture, Usher};
use cellar_engine::{Cell, Event, RunResult, Session, config::RunOptions};
use futures::StreamExt;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest, Lines},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::{JoinHandle, JoinSet},
};

use crate::report::CliError;
use cellar_wire::{
    EventJson, Line, REQUEST_BYTES_MAX, Refusal, RefusalLine, ResultJson, ResultLine, check::Invalid,
    run_elsewhere_from_json, run_elsewhere_json,
};

/// Runs that one door serves at the same time; more wait to be let in.
const CONNECTIONS_MAX: usize = 16;
/// Name of the socket in its folder.
const SOCKET_NAME: &str = "session.sock";
/// Bytes of a path that fit into a socket's address on every system we know.
const SOCKET_PATH_BYTES_MAX: usize = 100;
/// Interval at which a silent run checks that its client is still connected.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(250);

/// A socket through which whoever knows its path may run cells in a session. Dropping it ends those runs and removes
/// the socket. Only the same user can reach it: the folder is 0700, the socket 0600.
#[derive(Debug)]
pub(crate) struct Door {
    path: PathBuf,
    task: JoinHandle<()>,
    /// Removed, with the socket in it, when the door goes.
    _folder: TempDir,
}

impl Door {
    /// Opens a door.
    ///
    /// # Errors
    /// The private folder or the socket cannot be made.
    fn open(usher: Usher) -> io::Result<Door> {
        let folder = private_folder()?;
        let path = folder.path().join(SOCKET_NAME);
        let listener = UnixListener::bind(&path)?;
        let task = tokio::spawn(accept(listener, usher));
        Ok(Door { path, task, _folder: folder })
    }
}

impl cellar_bridges::Door for Door {
    fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens a [`Door`] for each agent.
#[derive(Debug)]
pub(crate) struct SessionDoors;

impl Doors for SessionDoors {
    fn open(&self, usher: Usher) -> io::Result<Box<dyn cellar_bridges::Door>> {
        Ok(Box::new(Door::open(usher)?))
    }

    fn meet(&self, session: Session, visitor: UnixStream) -> MeetFuture {
        Box::pin(async move {
            if let Err(error) = serve(visitor, session).await {
                tracing::debug!(%error, "a client of the session's socket went away");
            }
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A folder for the socket: the usual place for temporary files, unless the path would be too long for a socket.
fn private_folder() -> io::Result<TempDir> {
    let private = std::fs::Permissions::from_mode(0o700);
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("cellar-").permissions(private);
    let folder = builder.tempdir()?;
    let length = folder.path().as_os_str().len().saturating_add(1).saturating_add(SOCKET_NAME.len());
    if length > SOCKET_PATH_BYTES_MAX { builder.tempdir_in("/tmp") } else { Ok(folder) }
}

/// Lets connections in. Those that are in end with this future, because they live in it.
async fn accept(listener: UnixListener, usher: Usher) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => drop(connections.spawn(usher(stream))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client on the session's socket");
                    tokio::time::sleep(PRESENCE_INTERVAL).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection to its end.
async fn serve(stream: UnixStream, session: Session) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = Vec::new();
    BufReader::new(read.take((REQUEST_BYTES_MAX as u64).saturating_add(2))).read_until(b'\n', &mut line).await?;
    let refusal = match run_elsewhere_from_json(line.trim_ascii_end(), "the run") {
        Ok((cells, options)) => match session.run(cells).and_then(|run| run.lineage(options)) {
            Ok(run) => return stream_run(run, &mut write).await,
            Err(error) => CliError::Engine(error),
        },
        Err(invalid) => CliError::Invalid(invalid),
    };
    write_line(&mut write, &Line::Refusal(RefusalLine { error: refusal.refusal() })).await
}

async fn stream_run(mut run: cellar_engine::Run, write: &mut OwnedWriteHalf) -> io::Result<()> {
    let mut result = RunResult::default();
    let mut presence = tokio::time::interval(PRESENCE_INTERVAL);
    loop {
        let event = tokio::select! {
            event = run.next() => event,
            _ = presence.tick() => {
                if write.ready(Interest::WRITABLE).await?.is_write_closed() {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                continue;
            }
        };
        let Some(event) = event else { break };
        result.apply(&event);
        write_line(write, &Line::Event(EventJson::from(&event))).await?;
    }
    let result = tokio::task::spawn_blocking(move || {
        result.fit_images();
        result
    });
    // It fails when the runtime ends.
    let result = result.await.unwrap_or_default();
    write_line(write, &Line::Result(Box::new(ResultLine { result: ResultJson::from(&result) }))).await
}

async fn write_line(write: &mut OwnedWriteHalf, line: &Line) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    write.write_all(&bytes).await
}

/// A run in a session of another process.
#[derive(Debug)]
pub(crate) struct RemoteRun {
    lines: Lines<BufReader<OwnedReadHalf>>,
    /// Held open: closing it would end the run.
    _write: OwnedWriteHalf,
    path: PathBuf,
    is_done: bool,
}

impl RemoteRun {
    /// Asks the session behind the socket at `path` to run `cells` with these options.
    ///
    /// # Errors
    /// Nobody listens there.
    pub(crate) async fn start(path: &Path, cells: &[Cell], options: &RunOptions) -> Result<RemoteRun, CliError> {
        let failed = |source| CliError::Socket { path: path.to_owned(), source };
        let stream = UnixStream::connect(path).await.map_err(failed)?;
        let (read, mut write) = stream.into_split();
        let mut request = run_elsewhere_json(cells, options).to_string().into_bytes();
        request.push(b'\n');
        write.write_all(&request).await.map_err(failed)?;
        Ok(RemoteRun { lines: BufReader::new(read).lines(), _write: write, path: path.to_owned(), is_done: false })
    }

    /// The next event; `None` behind the last.
    ///
    /// # Errors
    /// The session refused the run, or went away.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Result<Event, CliError>> {
        if self.is_done {
            return None;
        }
        let failed = |path: &Path, source| CliError::Socket { path: path.to_owned(), source };
        let line = match self.lines.next_line().await {
            Ok(Some(line)) => serde_json::from_str(&line).map_err(io::Error::from),
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(error),
        };
        match line {
            Ok(Line::Event(event)) => Some(Ok(event.into())),
            Ok(Line::Result(_)) => {
                self.is_done = true;
                None
            }
            Ok(Line::Refusal(refusal)) => {
                self.is_done = true;
                Some(Err(CliError::Refused(refusal.error)))
            }
            Err(source) => {
                self.is_done = true;
                Some(Err(failed(&self.path, source)))
            }
        }
    }
}

/// The refusals that a client can mend.
pub(crate) fn is_request_fault(refusal: &Refusal) -> bool {
    matches!(refusal.code.as_str(), Invalid::CODE | "request")
}
