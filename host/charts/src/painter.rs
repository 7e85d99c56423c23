//! Conversion of a checked SVG to a PNG: in a separate process, which can be killed, or else in this process, which only
//! starts conversions that are certain to end soon.
//!
//! The renderer is not our own program, and an SVG of a few kilobytes can occupy it for minutes: with curves, dashes, arcs,
//! wide strokes, texts. [`serve`] is the main function of the process.

use std::{
    io::{self, Read, Write},
    path::Path,
    time::Duration,
};

use cellar_worker::{Input, Process};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};

use crate::{
    SVG_BYTES_MAX,
    check::{check, check_picture},
    error::ChartError,
    fonts::Fonts,
    png::{self, Effort},
};

/// Maximum size of a PNG and of a response of the process, in bytes.
const PNG_BYTES_MAX: u64 = 32 << 20;
/// Maximum writable memory of the process in bytes.
const MEMORY_BYTES: u64 = 512 << 20;
/// First byte of a response: a PNG follows, or the reason why there is none.
const DRAWN: u8 = 0;
const REFUSED: u8 = 1;
/// First byte of a request: a chart of the guest, or an image that a cell displayed.
const CHART: u8 = b'c';
const PICTURE: u8 = b'p';

/// The name of the job.
pub const JOB: &str = "draw-chart";

/// Draws the SVG on standard input, and writes a PNG, or the reason why there is none, to standard output; `guest` is the
/// folder of the guest, whose fonts are used besides those of the machine. Restricts the process first: `seconds` of processor time, limited memory, no files, and it ends with its parent.
///
/// # Errors
/// The streams fail, or a bound cannot be set.
pub fn serve(seconds: u64, guest: Option<&Path>) -> io::Result<()> {
    cellar_worker::bound(seconds, MEMORY_BYTES)?;
    let (mut kind, mut svg) = ([0], String::new());
    let mut stdin = io::stdin().lock();
    stdin.read_exact(&mut kind)?;
    stdin.take((SVG_BYTES_MAX as u64).saturating_add(1)).read_to_string(&mut svg)?;
    let checked = if kind == [PICTURE] { check_picture(&svg) } else { check(&svg) };
    let drawn = checked.and_then(|checked| png::png(&checked, &Fonts::load(guest), Effort::Any));
    let mut answer = Vec::new();
    match drawn {
        Ok(png) => {
            answer.push(DRAWN);
            answer.extend(png);
        }
        Err(ChartError::Png(why) | ChartError::Svg(why)) => {
            answer.push(REFUSED);
            answer.extend(why.bytes());
        }
        Err(error) => return Err(io::Error::other(error)),
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(&answer)?;
    stdout.flush()
}

/// Kind of image to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A chart, which was checked.
    Chart,
    /// An image that a cell displayed.
    Picture,
}

/// Converts an SVG to a PNG before the deadline. Returns `None` if no process can be started for that.
///
/// # Errors
/// The SVG cannot be drawn, or not in time.
///
/// # Cancel safety
/// Dropping the future kills the process.
pub(crate) async fn in_process(
    kind: Kind,
    svg: &str,
    guest: &Path,
    timeout: Duration,
    deadline: Instant,
) -> Option<Result<Vec<u8>, ChartError>> {
    // Without a process it is drawn here.
    let guest = guest.to_str().map(str::to_owned);
    let child = cellar_worker::start_job(JOB, timeout.as_secs().saturating_add(1), guest, Input::Pipe).await?;
    Some(match tokio::time::timeout_at(deadline, ask(child, kind, svg)).await {
        Ok(answered) => answered.unwrap_or_else(|error| Err(ChartError::Crash(error.to_string()))),
        // The process was killed with the future that waited for it.
        Err(_) => Err(ChartError::Timeout { timeout }),
    })
}

async fn ask(mut child: Process, kind: Kind, svg: &str) -> io::Result<Result<Vec<u8>, ChartError>> {
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("the process has no streams"));
    };
    let give = async move {
        // One that ends before it has read all says why by how it ends.
        let kind = if kind == Kind::Chart { CHART } else { PICTURE };
        let _ = stdin.write_all(&[kind]).await;
        let _ = stdin.write_all(svg.as_bytes()).await;
        drop(stdin);
    };
    let mut answer = Vec::new();
    let mut stdout = stdout.take(PNG_BYTES_MAX);
    let (read, ()) = tokio::join!(stdout.read_to_end(&mut answer), give);
    read?;
    let status = child.wait().await?;
    let is_whole = status.success() && (answer.len() as u64) < PNG_BYTES_MAX;
    Ok(match answer.split_first() {
        Some((&DRAWN, png)) if is_whole => Ok(png.to_vec()),
        Some((&REFUSED, why)) if is_whole => Err(ChartError::Png(String::from_utf8_lossy(why).into_owned())),
        // Killed by a bound of its own: processor time and memory are those.
        _ => Err(ChartError::Png(format!("it takes more time or memory than it may ({status})"))),
    })
}
