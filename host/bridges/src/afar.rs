//! Bridges between two processes: one that runs cells and may reach nothing, and one that answers their calls.
//!
//! ```text
//! runs cells ([`Afar`])  ── calls, cancellations, artifacts ──►  answers ([`answer_afar`], with its [`Answers`])
//!                        ◄── what is granted, answers, rows ──
//! ```
//!
//! Each side says frames: a length, then a message. Both also pass notes on, which mean something to whoever embeds this.
//! The side that answers believes nothing of what it hears: a call is granted by its own options, whatever the other side is.
//! Whoever comes through the door of an agent is handed to the side that runs cells, by the number of the call.

mod answering;
mod artifacts;
mod asking;

use std::{
    collections::BTreeSet,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cellar_engine::{
    CellId,
    bridges::{Call, CallError, Caller, FetchName, PackSpec, Response, ToolSpec},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, mpsc},
};

use artifacts::{Done, Errand};

pub use answering::{Answers, Visits, answer_afar};
pub use artifacts::ArtifactsAfar;
pub use asking::{Afar, OwnAndAfar};

/// Maximum size of a frame in bytes: an answer of the largest size, and its envelope.
const FRAME_BYTES_MAX: usize = 128 << 20;
/// Frames that wait to be written.
const FRAMES_WAITING_MAX: usize = 16;

/// A message to be written, and its permit for the write buffer.
type Frame = (Vec<u8>, Option<OwnedSemaphorePermit>);

/// Message of the answering side.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// First message: the grants.
    Granted(Granted),
    Answer(u64, Result<Response, CallError>),
    Tools(u64, Vec<ToolSpec>),
    /// A piece of the rows of a fetch.
    Piece(u64, Vec<u8>),
    /// End of the rows of a fetch, or the error that prevented them.
    Rows(u64, Result<(), CallError>),
    Done(u64, Result<Done, String>),
    Note(String),
}

/// Message of the side that runs cells.
#[derive(Debug, Serialize, Deserialize)]
enum Asked {
    Call {
        number: u64,
        asker: Asker,
        call: Call,
    },
    Fetch {
        number: u64,
        name: FetchName,
        /// As JSON.
        arguments: String,
    },
    Tools(u64),
    /// A request regarding artifacts.
    Errand(u64, Errand),
    /// Cancellation of a request: no caller waits for the answer any more.
    Cancelled(u64),
    Note(String),
}

/// Caller of a call, as reported by the side that runs the cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Asker {
    pub(crate) session: String,
    cell: u32,
    pub(crate) depth: u32,
    pub(crate) agent: Option<String>,
}

impl Asker {
    fn of(caller: &Caller) -> Asker {
        let Caller { session, cell, depth, agent, .. } = caller;
        Asker { session: session.id().to_owned(), cell: cell.0, depth: *depth, agent: agent.clone() }
    }

    pub(crate) fn cell(&self) -> CellId {
        CellId(self.cell)
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Granted {
    /// Grants in JSON, without empty fields.
    grants: String,
    packs: Vec<PackSpec>,
    /// Names of tools that are certain to exist.
    tools: BTreeSet<String>,
    /// Specifications of the connectors in JSON.
    connectors: String,
}

/// Channel ends for notes between the embedders of the two sides.
#[derive(Debug)]
pub struct Notes {
    /// Notes to send to the other side.
    pub to_say: mpsc::Receiver<String>,
    /// Notes received from the other side.
    pub heard: mpsc::Sender<String>,
}

fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let message = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let length = message.len().saturating_sub(4);
    let length = u32::try_from(length).ok().filter(|_| length <= FRAME_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("a message is too large"))?;
    let mut message = message;
    message[..4].copy_from_slice(&length.to_le_bytes());
    Ok(message)
}

/// The next message, and how many bytes it took; `None` at the end.
async fn next<T: DeserializeOwned>(read: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<(T, usize)>> {
    let length = match read.read_u32_le().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        length => usize::try_from(length?).unwrap_or(usize::MAX),
    };
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Memory is taken as it comes, not as it is promised.
    let mut message = Vec::new();
    read.take(length as u64).read_to_end(&mut message).await?;
    if message.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let read = postcard::from_bytes(&message);
    read.map(|read| Some((read, length))).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

async fn write_all(mut write: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Frame>) -> io::Result<()> {
    while let Some((frame, _room)) = frames.recv().await {
        write.write_all(&frame).await?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cellar_engine::bridges::{CallErrorKind, CallFuture};
    use tokio::io::{DuplexStream, duplex};

    use super::*;
    use crate::{HostBridges, Options, Tools};

    fn spec(name: &str) -> ToolSpec {
        ToolSpec { name: name.to_owned(), description: String::new(), schema: None }
    }

    /// Two tools: one says its arguments, the other never answers, and tells when it is given up.
    fn bridges(given_up: mpsc::Sender<()>) -> HostBridges {
        let echo =
            |arguments: String, _: CellId| -> CallFuture { Box::pin(async move { Ok(Response::Json(arguments)) }) };
        let endless = move |_: String, _: CellId| -> CallFuture {
            let given_up = given_up.clone();
            Box::pin(async move {
                struct Guard(mpsc::Sender<()>);
                impl Drop for Guard {
                    fn drop(&mut self) {
                        let _ = self.0.try_send(());
                    }
                }
                let _guard = Guard(given_up);
                std::future::pending().await
            })
        };
        let tools = Tools::new().with(spec("echo"), echo).with(spec("endless"), endless);
        HostBridges::new(Options::default()).with_tools(tools)
    }

    fn answers(bridges: HostBridges) -> Answers {
        let visits: Visits = Arc::new(|_, _| Err(io::ErrorKind::Unsupported.into()));
        Answers { bridges, artifacts: None, visits }
    }

    fn notes() -> (mpsc::Sender<String>, mpsc::Receiver<String>, Notes) {
        let ((say, to_say), (hearing, heard)) = (mpsc::channel(1), mpsc::channel(1));
        (say, heard, Notes { to_say, heard: hearing })
    }

    fn call(name: &str) -> impl FnOnce(u64) -> Asked + use<> {
        let call = Call::Tool { name: name.to_owned(), arguments: "{\"a\":1}".to_owned() };
        let asker = Asker { session: "s".to_owned(), cell: 1, depth: 0, agent: None };
        move |number| Asked::Call { number, asker, call }
    }

    fn sides() -> (DuplexStream, DuplexStream) {
        duplex(1 << 16)
    }

    #[tokio::test]
    async fn calls_are_answered_given_up_and_fail_with_the_connection() {
        let (given_up, mut was_given_up) = mpsc::channel(1);
        let (mine, theirs) = sides();
        let ((front_says, _front_hears, front), (_says, mut hears, own)) = (notes(), notes());
        let answering = tokio::spawn(answer_afar(answers(bridges(given_up)), theirs, front));
        let (afar, driver) = Afar::connect(mine, own).await.expect("it is told what is granted");
        let driving = tokio::spawn(driver);
        assert!(afar.grants_tool("echo"), "{afar:?}");
        let answer = afar.ask(call("echo")).await;
        assert!(
            matches!(&answer, Some(Told::Answer(_, Ok(Response::Json(json)))) if json == "{\"a\":1}"),
            "{answer:?}"
        );
        let unknown = afar.ask(call("nothing")).await;
        let is_unknown = |error: &CallError| error.kind == CallErrorKind::Unknown;
        assert!(matches!(&unknown, Some(Told::Answer(_, Err(error))) if is_unknown(error)), "{unknown:?}");
        let waiting = tokio::spawn({
            let afar = afar.clone();
            async move { afar.ask(call("endless")).await }
        });
        // What is said later is heard later: so the call is there.
        afar.ask(call("echo")).await.expect("answered");
        waiting.abort();
        was_given_up.recv().await.expect("the call was dropped");
        front_says.send("a note".to_owned()).await.expect("said");
        assert_eq!(hears.recv().await.as_deref(), Some("a note"));
        let lost = tokio::spawn({
            let afar = afar.clone();
            async move { afar.ask(call("endless")).await }
        });
        afar.ask(call("echo")).await.expect("answered");
        answering.abort();
        assert!(lost.await.expect("it ends").is_none(), "nobody answers any more");
        driving.await.expect("it ends").expect("the connection was closed");
    }

    #[tokio::test]
    async fn answers_that_nobody_reads_are_bounded() {
        const ASKED: u64 = 24;
        let large =
            |_: String, _: CellId| -> CallFuture { Box::pin(async { Ok(Response::Json("x".repeat(32 << 20))) }) };
        let tools = Tools::new().with(spec("large"), large);
        let bridges = HostBridges::new(Options::default()).with_tools(tools);
        let (mut mine, theirs) = sides();
        let (_says, _hears, own) = notes();
        let answering = tokio::spawn(answer_afar(answers(bridges), theirs, own));
        for number in 0..ASKED {
            mine.write_all(&frame(&call("large")(number)).expect("a frame")).await.expect("it is heard");
        }
        // Those that find no room are short, and are told when the others were read.
        let (mut whole, mut refused) = (0, 0);
        while whole + refused < ASKED {
            match next(&mut mine).await.expect("read").expect("more").0 {
                Told::Answer(_, Ok(_)) => whole += 1,
                Told::Answer(_, Err(error)) => {
                    assert_eq!(error.message, "512 MiB of answers to other calls were not read yet");
                    refused += 1;
                }
                _ => {}
            }
        }
        assert!(whole >= 15 && refused > 0, "{whole} {refused}");
        answering.abort();
    }

    #[tokio::test]
    async fn what_has_no_meaning_ends_the_connection() {
        for bytes in [&[0xff; 64][..], &[4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], &[8, 0, 0, 0, 1]] {
            let (mut mine, theirs) = sides();
            let (_says, _hears, own) = notes();
            let (given_up, _) = mpsc::channel(1);
            let answering = tokio::spawn(answer_afar(answers(bridges(given_up)), theirs, own));
            mine.write_all(bytes).await.expect("said");
            mine.shutdown().await.expect("ended");
            assert!(answering.await.expect("no panic").is_err(), "{bytes:?}");
        }
    }
}
