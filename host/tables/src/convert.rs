//! Conversion of table files to columns for a guest, and back, in a separate process: the libraries that read them are not
//! our own, and a file of a few bytes may make them use all memory and time.
//!
//! A process sends its output in pieces: a letter, a length of 32 bits, bytes. `d` is data, `e` an error message, after
//! which nothing follows, and `k`, which is empty, marks the end.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use cellar_worker::Input;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::Semaphore,
};

use crate::error::TableError;

/// Seconds of processor time, and of time, that a file may take.
const SECONDS: u64 = 60;
/// Memory that a process may write to.
const MEMORY_BYTES: u64 = 1 << 30;
/// Maximum number of files that are converted concurrently; more wait.
const AT_ONCE: usize = 4;
/// Bytes of a piece, and of a request.
const PIECE_BYTES: usize = 1 << 20;
const REQUEST_BYTES_MAX: usize = 64 << 10;

static TURNS: Semaphore = Semaphore::const_new(AT_ONCE);

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Apache Parquet.
    Parquet,
    /// Feather, version 2: Arrow's format for files.
    Feather,
}

/// Compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "these are names of programs")]
pub enum Compression {
    Snappy,
    Gzip,
    Zstd,
    Lz4,
}

/// Direction of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From a file to columns for a guest.
    Read,
    /// From a guest's columns, in the form of [`FRAME_TYPE`](crate::FRAME_TYPE), to a file.
    Write,
}

/// Request to the process that converts a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Direction of the conversion.
    pub direction: Direction,
    /// The file's format.
    pub format: Format,
    /// Columns to read from a file; all when absent.
    #[serde(default)]
    pub columns: Option<Vec<String>>,
    /// Compression of a file to write.
    #[serde(default)]
    pub compression: Option<Compression>,
}

/// The name of the job.
pub const JOB: &str = "convert-table";

/// Converts `input`, and passes on the result in pieces.
///
/// # Errors
/// An error of the file or of the table, exceeded time or memory, or an error of `take`.
///
/// # Cancel safety
/// Dropping the future kills the process.
pub async fn convert<E: From<TableError>>(
    request: &Request,
    input: File,
    mut take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let text = serde_json::to_string(request).map_err(TableError::Head)?;
    if text.len() > REQUEST_BYTES_MAX {
        return Err(TableError::TooLarge.into());
    }
    let _turn = TURNS.acquire().await.map_err(|_| TableError::Unsupported)?;
    let child = cellar_worker::start_job(JOB, SECONDS, Some(text), Input::File(input)).await;
    let mut child = child.ok_or(TableError::NoProcess)?;
    let Some(mut stdout) = child.stdout.take() else { return Err(TableError::NoProcess.into()) };
    let mut piece = Vec::new();
    let pieces = async {
        loop {
            match next(&mut stdout, &mut piece).await {
                Some(b'd') => take(&piece)?,
                Some(b'k') => return Ok(()),
                Some(b'e') => return Err(TableError::Refused(String::from_utf8_lossy(&piece).into_owned()).into()),
                // It was killed by a bound of its own: processor time and memory are those.
                _ => return Err(TableError::Bounds.into()),
            }
        }
    };
    match tokio::time::timeout(Duration::from_secs(SECONDS), pieces).await {
        Ok(done) => done,
        Err(_) => Err(TableError::Bounds.into()),
    }
}

/// The next piece's letter, with its bytes in `piece`.
async fn next(from: &mut (impl AsyncRead + Unpin), piece: &mut Vec<u8>) -> Option<u8> {
    let letter = from.read_u8().await.ok()?;
    let length = usize::try_from(from.read_u32_le().await.ok()?).ok().filter(|length| *length <= PIECE_BYTES)?;
    piece.resize(length, 0);
    from.read_exact(piece).await.ok()?;
    Some(letter)
}

/// Runs the process: bounds its resources, and converts its standard input to its standard output.
///
/// # Errors
/// The streams fail, a bound cannot be set, or the request is invalid.
pub fn serve(seconds: u64, request: &str) -> io::Result<()> {
    cellar_worker::bound(seconds, MEMORY_BYTES)?;
    let request: Request = serde_json::from_str(request)?;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut pieces = io::BufWriter::with_capacity(PIECE_BYTES, Pieces(io::stdout()));
    // The libraries assert what they expect of files. Whatever they say goes nowhere.
    let work = AssertUnwindSafe(|| crate::files::work(input, &request, &mut pieces));
    let done = catch_unwind(work).unwrap_or(Err(TableError::Damaged));
    let out = pieces.into_inner().map_err(io::IntoInnerError::into_error)?;
    match done {
        Ok(()) => out.piece(b'k', &[]),
        Err(error) => {
            let mut words = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(inner) = cause {
                words = format!("{words}: {inner}");
                cause = inner.source();
            }
            let end = words.floor_char_boundary(words.len().min(2_000));
            out.piece(b'e', &words.as_bytes()[..end])
        }
    }
}

/// Writer that sends everything as pieces of data to standard output.
struct Pieces(io::Stdout);

impl Pieces {
    fn piece(&self, letter: u8, bytes: &[u8]) -> io::Result<()> {
        let mut out = self.0.lock();
        out.write_all(&[letter])?;
        out.write_all(&u32::try_from(bytes.len()).map_err(io::Error::other)?.to_le_bytes())?;
        out.write_all(bytes)?;
        out.flush()
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(PIECE_BYTES)];
        self.piece(b'd', bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
