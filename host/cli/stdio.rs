//! `cellar stdio`: sessions for a program that started this one. It writes requests, one JSON object a line, and reads
//! events and answers the same way. What the lines mean is said in `cellar_hub`; here they are carried.

use std::{io, path::PathBuf, sync::Arc};

use cellar_config::{Config, Overrides};
use cellar_engine::{HostConfig, Snapshot};
use cellar_hub::{Hub, HubConfig, HubError, Line, LineError, LineRead, Lines, OpenRequest, Place, TASKS_MAX};
use cellar_wire::{Caller, Open, REQUEST_BYTES_MAX, Refusal};
use futures::{Stream, future::BoxFuture, stream};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt},
    sync::mpsc,
    task::JoinError,
};

use crate::{
    args::{Folders, StdioArguments},
    report::{CliError, EXIT_COMPLETE, print_progress},
    sessions::{read_snapshot, write_snapshot},
    setup,
    signals::Interrupts,
    socket::SessionDoors,
    terminal::{Input, Output},
};

/// KiB of events that wait for the caller, as they are before they are written as JSON.
const LINES_KIB_MAX: u32 = 64 << 10;
/// Sessions that may be open.
const SESSIONS_MAX: usize = 4_096;
/// Bytes of lines that are gathered before they are written.
const WRITE_BYTES: usize = 64 << 10;
/// Lines that are taken from the queue at once.
const LINES_AT_ONCE_MAX: usize = 64;

/// Serves standard input and output.
///
/// # Errors
/// The configuration is not valid, or the streams fail.
pub(crate) async fn stdio(folders: &Folders, arguments: StdioArguments) -> Result<u8, CliError> {
    let mut config = HubConfig::default();
    (config.runs_max, config.sessions_max) = (TASKS_MAX, SESSIONS_MAX);
    config.overrides = Overrides::from(&arguments.granted);
    let table = config.overrides.file().map_err(HubError::from)?.host;
    let kernels_max = cellar_config::kernels_max(&table);
    let host_config = HostConfig { kernels_max, ..setup::host_config(folders, table.stops)? };
    config.progress = print_progress;
    config.approver = cellar_hub::approver(&cellar_config::Folders::from(folders));
    if folders.store.is_some() {
        // Long outputs and datasets are kept there, in the place of a store that goes with the process.
        let (folders, table) =
            (cellar_config::Folders::from(folders), config.overrides.file().map_err(HubError::from)?.artifacts);
        let store = tokio::task::spawn_blocking(move || folders.artifacts(&table)).await.map_err(HubError::Task)?;
        config.artifacts = Some(store?);
    }
    let hub = Hub::open(host_config, config, Arc::new(SessionDoors))?;
    let (lines, queue) = Lines::new(Starter(hub), Caller::Trusted, LINES_KIB_MAX);
    let input = Input::open().map_err(|source| CliError::Read { path: "-".into(), source })?;
    let output = Output::open().map_err(CliError::Output)?;
    let mut interrupts = Interrupts::listen().map_err(CliError::Start)?;
    // Each is a task, so that a request, its cell and the answer follow one another on one thread.
    let mut writer = tokio::spawn(write_lines(queue, output));
    let served = tokio::spawn(lines.serve(read(input)));
    tokio::select! {
        served = served => {
            let served = served.unwrap_or_else(|error| Err(error.into()));
            served.map_err(|source| CliError::Read { path: "-".into(), source })?;
        }
        written = &mut writer => return ended(written),
        code = interrupts.next() => return Ok(code),
    }
    ended(writer.await)
}

/// Returns the exit code of the process, or the error, after its output has ended.
fn ended(written: Result<Result<(), CliError>, JoinError>) -> Result<u8, CliError> {
    written.unwrap_or_else(|error| Err(CliError::Output(error.into()))).map(|()| EXIT_COMPLETE)
}

/// Program that started this one. It may name folders and files, as the person who types commands may.
struct Starter(Hub);

impl Place for Starter {
    fn hub(&self) -> &Hub {
        &self.0
    }

    fn open(&self, open: Open<Config>) -> BoxFuture<'_, Result<OpenRequest, LineError>> {
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

/// Runs work that waits for the disk on a thread for blocking calls.
async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, LineError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(HubError::Task)?;
    done.map_err(|error| LineError::Refused(error.refusal()))
}

/// Writes the queue to standard output, to its end. Lines that are there together are written together.
async fn write_lines(mut queue: mpsc::Receiver<Line>, mut output: Output) -> Result<(), CliError> {
    let (mut waiting, mut text) = (Vec::new(), String::new());
    while queue.recv_many(&mut waiting, LINES_AT_ONCE_MAX).await > 0 {
        for line in waiting.drain(..) {
            text.push_str(&serde_json::to_string(&line.answer).map_err(|error| CliError::Output(error.into()))?);
            text.push('\n');
            if text.len() >= WRITE_BYTES {
                output.write(&text).await.map_err(CliError::Output)?;
                text.clear();
            }
        }
        output.write(&text).await.map_err(CliError::Output)?;
        text.clear();
        text.shrink_to(WRITE_BYTES);
    }
    output.end().await.map_err(CliError::Output)
}

/// Reads lines to the end of the input.
fn read(input: Input) -> impl Stream<Item = io::Result<LineRead>> {
    stream::unfold(input, |mut input| async move {
        let line = match next_line(input.reader()).await {
            Ok(None) => input.end().err().map(Err)?,
            line => line.transpose()?,
        };
        Some((line, input))
    })
}

/// The next line; `None` at the end. A last line needs no end.
async fn next_line(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<LineRead>> {
    let (mut line, mut is_too_long, mut is_begun) = (Vec::new(), false, false);
    loop {
        let read = input.fill_buf().await?;
        let (end, is_end) = match newline(read) {
            Some(end) => (end, true),
            None => (read.len(), read.is_empty()),
        };
        if read.is_empty() && !is_begun {
            return Ok(None);
        }
        is_begun = true;
        if line.len().saturating_add(end) > REQUEST_BYTES_MAX {
            is_too_long = true;
            line = Vec::new();
        } else if !is_too_long {
            line.extend_from_slice(&read[..end]);
        }
        let consumed = end.saturating_add(usize::from(is_end && !read.is_empty()));
        input.consume(consumed);
        if is_end {
            return Ok(Some(if is_too_long { LineRead::TooLong } else { LineRead::Whole(line) }));
        }
    }
}

fn newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut input: &[u8]) -> Vec<Option<usize>> {
        let mut read = Vec::new();
        while let Some(line) = futures::executor::block_on(next_line(&mut input)).expect("reads") {
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
