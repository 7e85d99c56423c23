//! `cellar stdio`: sessions for a program that started this one. It writes requests, one JSON object a line, and reads
//! events and answers the same way. What the lines mean is said in `cellar_hub`; here they are carried.

use std::{
    io::{self, BufRead},
    path::PathBuf,
    sync::Arc,
};

use cellar_engine::{HostConfig, Snapshot};
use cellar_hub::{Hub, HubConfig, HubError, Line, LineError, LineRead, Lines, OpenRequest, Place, TASKS_MAX};
use cellar_setup::Overrides;
use cellar_wire::{Caller, Open, REQUEST_BYTES_MAX, Refusal};
use futures::future::BoxFuture;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::{
    args::{Folders, StdioArguments},
    report::{CliError, EXIT_COMPLETE, print_progress},
    sessions::{read_snapshot, write_snapshot},
    setup,
    socket::SessionDoors,
    terminal::write_json,
};

/// KiB of events that wait for the caller, as they are before they are written as JSON.
const LINES_KIB_MAX: u32 = 64 << 10;
/// Sessions that may be open.
const SESSIONS_MAX: usize = 4_096;
/// Bytes of lines that are gathered before they are written.
const WRITE_BYTES: usize = 64 << 10;
/// Lines that were read and wait to be served.
const LINES_WAITING_MAX: usize = 16;

/// What a shell reports of a command that was interrupted.
const EXIT_INTERRUPTED: u8 = 130;

/// Serves standard input and output.
///
/// # Errors
/// The configuration is not valid, or the streams fail.
pub(crate) async fn stdio(folders: &Folders, arguments: StdioArguments) -> Result<u8, CliError> {
    let mut config = HubConfig::default();
    (config.runs_max, config.sessions_max) = (TASKS_MAX, SESSIONS_MAX);
    config.overrides = Overrides::from(&arguments.granted);
    let kernels_max = cellar_setup::kernels_max(&config.overrides.file().map_err(HubError::from)?.host);
    let host_config = HostConfig { kernels_max, ..setup::host_config(folders)? };
    config.progress = print_progress;
    let hub = Hub::open(host_config, config, Arc::new(SessionDoors))?;
    let (lines, queue) = Lines::new(Starter(hub), Caller::Trusted, LINES_KIB_MAX);
    let (written, mut writer) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || written.send(write_lines(queue)));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::Start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Start)?;
    tokio::select! {
        served = lines.serve(read()) => served.map_err(|source| CliError::Read { path: "-".into(), source })?,
        written = &mut writer => return written.unwrap_or(Ok(())).map(|()| EXIT_COMPLETE),
        _ = interrupt.recv() => return Ok(EXIT_INTERRUPTED),
        _ = terminate.recv() => return Ok(EXIT_INTERRUPTED),
    }
    writer.await.unwrap_or(Ok(()))?;
    Ok(EXIT_COMPLETE)
}

/// The program that started this one: it may name folders and files, as whoever types commands may.
struct Starter(Hub);

impl Place for Starter {
    fn hub(&self) -> &Hub {
        &self.0
    }

    fn open(&self, open: Open) -> BoxFuture<'_, Result<OpenRequest, LineError>> {
        Box::pin(async move {
            let snapshot = match open.snapshot {
                Some(file) => Some(self.read_snapshot(file).await?),
                None => None,
            };
            Ok(OpenRequest {
                config: open.grants,
                input: open.input,
                workspace: open.workspace.map(Into::into),
                tools: open.tools,
                snapshot,
                ..OpenRequest::default()
            })
        })
    }

    fn read_snapshot(&self, file: PathBuf) -> BoxFuture<'_, Result<Snapshot, LineError>> {
        Box::pin(on_a_thread(move || read_snapshot(&file)))
    }

    fn write_snapshot(&self, snapshot: Snapshot, file: PathBuf) -> BoxFuture<'_, Result<(), LineError>> {
        Box::pin(on_a_thread(move || write_snapshot(&snapshot, &file)))
    }

    fn refusal(&self, error: LineError) -> Refusal {
        CliError::from(error).refusal()
    }
}

/// Does what waits for the disk.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, LineError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(HubError::Task)?;
    done.map_err(|error| LineError::Refused(error.refusal()))
}

/// Writes the queue to standard output, to its end. A thread of its own waits for the caller, so that no task does.
fn write_lines(mut queue: mpsc::Receiver<Line>) -> Result<(), CliError> {
    let mut lines = String::new();
    while let Some(line) = queue.blocking_recv() {
        lines.push_str(&serde_json::to_string(&line.answer).map_err(|error| CliError::Output(error.into()))?);
        lines.push('\n');
        if queue.is_empty() || lines.len() >= WRITE_BYTES {
            write_json(&lines).map_err(CliError::Output)?;
            lines.clear();
            lines.shrink_to(WRITE_BYTES);
        }
    }
    write_json(&lines).map_err(CliError::Output)
}

/// Reads standard input to its end. A thread of its own waits for the caller, so that no task does; it ends with the
/// input, or with the process.
fn read() -> mpsc::Receiver<io::Result<LineRead>> {
    let (sender, lines) = mpsc::channel(LINES_WAITING_MAX);
    std::thread::spawn(move || {
        let mut lines = Split::new(io::stdin().lock());
        while let Some(line) = lines.next().transpose() {
            let is_error = line.is_err();
            if sender.blocking_send(line).is_err() || is_error {
                return;
            }
        }
    });
    lines
}

/// Splits what is read into lines.
struct Split<R>(R);

impl<R: BufRead> Split<R> {
    fn new(input: R) -> Split<R> {
        Split(input)
    }

    /// The next line; `None` at the end. A last line needs no end.
    fn next(&mut self) -> io::Result<Option<LineRead>> {
        let (mut line, mut is_too_long, mut is_begun) = (Vec::new(), false, false);
        loop {
            let read = match self.0.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let (end, is_end) = match newline(read) {
                Some(end) => (end, true),
                None => (read.len(), read.is_empty()),
            };
            if read.is_empty() && !is_begun {
                return Ok(None);
            }
            is_begun = true;
            if line.len() + end > REQUEST_BYTES_MAX {
                is_too_long = true;
                line = Vec::new();
            } else if !is_too_long {
                line.extend_from_slice(&read[..end]);
            }
            let consumed = end + usize::from(is_end && !read.is_empty());
            self.0.consume(consumed);
            if is_end {
                return Ok(Some(if is_too_long { LineRead::TooLong } else { LineRead::Whole(line) }));
            }
        }
    }
}

fn newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8]) -> Vec<Option<usize>> {
        let mut lines = Split::new(input);
        let mut read = Vec::new();
        while let Some(line) = lines.next().expect("reads") {
            read.push(match line {
                LineRead::Whole(line) => Some(line.len()),
                LineRead::TooLong => None,
            });
        }
        read
    }

    #[test]
    fn lines_end_with_a_newline_or_the_input() {
        assert_eq!(read(b""), []);
        assert_eq!(read(b"a\n\nbc"), [Some(1), Some(0), Some(2)]);
        assert_eq!(read(b"a\n"), [Some(1)]);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let mut input = vec![b'x'; REQUEST_BYTES_MAX + 1];
        input.extend_from_slice(b"\nnext\n");
        assert_eq!(read(&input), [None, Some(4)]);
        input.truncate(REQUEST_BYTES_MAX + 1);
        assert_eq!(read(&input), [None]);
    }
}
