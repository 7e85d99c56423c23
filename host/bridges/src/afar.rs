//! Bridges between two processes: one that runs cells and may reach nothing, and one that answers their calls.
//!
//! ```text
//! runs cells ([`Afar`])  ── calls, cancellations ──►  answers ([`answer_afar`], with its HostBridges)
//!                        ◄── what is granted, answers ──
//! ```
//!
//! Each side says frames: a length, then a message. Both also pass notes on, which mean something to whoever embeds this.
//! The side that answers believes nothing of what it hears: a call is granted by its own options, whatever the other side is.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fmt, io,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use cellar_engine::{
    Bridges, CellId,
    bridges::{
        BridgeGrants, Call, CallError, CallErrorKind, CallFuture, Caller, PackSpec, Response, ToolSpec, ToolsFuture,
        denied,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::{AbortHandle, JoinSet},
};

use crate::{Held, HostBridges, Origin};

/// Bytes of a frame: an answer of the largest size, with what is around it.
const FRAME_BYTES_MAX: usize = 128 << 20;
/// Frames that wait to be written.
const FRAMES_WAITING_MAX: usize = 16;
/// Calls of one process that are under way.
const CALLS_MAX: usize = 1_024;
/// KiB of calls of one process that are under way; with more, it is not listened to.
const CALLS_KIB_MAX: usize = 256 << 10;
/// KiB of answers that wait until the other process reads them: eight of the largest. One that finds no room is not kept.
const ANSWERS_KIB_MAX: usize = 512 << 10;
/// Sessions whose budgets are kept.
const SESSIONS_KEPT: usize = 10_000;

/// A message to be written, and its share of what may wait to be.
type Frame = (Vec<u8>, Option<OwnedSemaphorePermit>);

/// What the side that answers says.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// The first word: what is granted.
    Granted(Granted),
    Answer(u64, Result<Response, CallError>),
    Tools(u64, Vec<ToolSpec>),
    Note(String),
}

/// What the side that runs cells says.
#[derive(Debug, Serialize, Deserialize)]
enum Asked {
    Call {
        number: u64,
        session: String,
        cell: u32,
        call: Call,
    },
    Tools(u64),
    /// Nobody waits for the answer any more.
    Cancelled(u64),
    Note(String),
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Granted {
    /// As JSON, which leaves out what is empty.
    grants: String,
    packs: Vec<PackSpec>,
    /// Names of tools that are there for sure.
    tools: BTreeSet<String>,
}

/// The ends of what is passed on between those who embed the two sides.
#[derive(Debug)]
pub struct Notes {
    /// What is to be said to the other side.
    pub to_say: mpsc::Receiver<String>,
    /// What the other side has said.
    pub heard: mpsc::Sender<String>,
}

/// Answers the calls of another process until it is gone.
///
/// # Errors
/// The connection fails, or the other side says what has no meaning.
///
/// # Cancel safety
/// Dropping the future drops all calls that are under way.
pub async fn answer_afar(
    bridges: HostBridges,
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    notes: Notes,
) -> io::Result<()> {
    let (mut read, write) = tokio::io::split(connection);
    let (frames, waiting) = mpsc::channel(FRAMES_WAITING_MAX);
    let mut tasks = JoinSet::new();
    tasks.spawn(write_all(write, waiting));
    let _ = frames.send((frame(&Told::Granted(granted(&bridges)))?, None)).await;
    tasks.spawn(pass_notes(notes.to_say, frames.clone()));
    let under_way: Arc<Mutex<HashMap<u64, AbortHandle>>> = Arc::default();
    let mut budgets = Budgets::default();
    let room = Arc::new(Semaphore::new(CALLS_KIB_MAX));
    let answers = Arc::new(Semaphore::new(ANSWERS_KIB_MAX));
    loop {
        while tasks.try_join_next().is_some() {}
        let Some((asked, bytes)) = next(&mut read).await? else { return Ok(()) };
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        // The bound is that of two of the largest frames at least, and is never closed.
        let held = room.clone().acquire_many_owned(kib).await.map_err(io::Error::other)?;
        let (number, work): (u64, std::pin::Pin<Box<dyn Future<Output = Told> + Send>>) = match asked {
            Asked::Note(note) => {
                let _ = notes.heard.send(note).await;
                continue;
            }
            Asked::Cancelled(number) => {
                if let Some(call) = lock(&under_way).remove(&number) {
                    call.abort();
                }
                continue;
            }
            Asked::Tools(number) => {
                let tools = bridges.tools();
                (number, Box::pin(async move { Told::Tools(number, tools.await) }))
            }
            Asked::Call { number, session, cell, call } => {
                let origin = Origin::Afar { held: budgets.of(&session), session, cell: CellId(cell) };
                let answer = bridges.clean_answer(call, origin);
                (number, Box::pin(async move { Told::Answer(number, answer.await) }))
            }
        };
        // Not by their numbers, which the other side chooses.
        if tasks.len() >= CALLS_MAX {
            let error = CallError::new(CallErrorKind::Limit, format!("{CALLS_MAX} calls are under way already"));
            let _ = frames.send((frame(&Told::Answer(number, Err(error)))?, None)).await;
            continue;
        }
        let (frames, answers, others) = (frames.clone(), answers.clone(), under_way.clone());
        // It takes its place before it can have ended.
        let mut places = lock(&under_way);
        let call = tasks.spawn(async move {
            let answer = work.await;
            drop(held);
            lock(&others).remove(&number);
            let instead = |reason: String| {
                let error = CallError::new(CallErrorKind::Limit, reason);
                frame(&Told::Answer(number, Err(error)))
            };
            let frame = frame(&answer).or_else(|_| instead("the answer is too large to be passed on".to_owned()))?;
            drop(answer);
            let kib = u32::try_from(frame.len() >> 10).unwrap_or(u32::MAX);
            // Waiting for room would hold it as well: a process that asks for much, and reads nothing, costs no more.
            let frame = match answers.try_acquire_many_owned(kib) {
                Ok(room) => (frame, Some(room)),
                Err(_) => {
                    let mib = ANSWERS_KIB_MAX >> 10;
                    (instead(format!("{mib} MiB of answers to other calls were not read yet"))?, None)
                }
            };
            let _ = frames.send(frame).await;
            Ok(())
        });
        places.insert(number, call);
    }
}

async fn pass_notes(mut to_say: mpsc::Receiver<String>, frames: mpsc::Sender<Frame>) -> io::Result<()> {
    while let Some(note) = to_say.recv().await {
        let _ = frames.send((frame(&Told::Note(note))?, None)).await;
    }
    Ok(())
}

fn granted(bridges: &HostBridges) -> Granted {
    let grants = bridges.grants();
    let tools = grants.tools.iter().cloned().collect();
    Granted { grants: serde_json::to_string(&grants).unwrap_or_default(), packs: bridges.packs(), tools }
}

/// What sessions of the other process have used, as long as they are among the latest.
#[derive(Default)]
struct Budgets {
    held: HashMap<String, Arc<Held>>,
    in_order: VecDeque<String>,
}

impl Budgets {
    fn of(&mut self, session: &str) -> Arc<Held> {
        if let Some(held) = self.held.get(session) {
            return held.clone();
        }
        if self.in_order.len() >= SESSIONS_KEPT
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.held.remove(&oldest);
        }
        let held = Arc::<Held>::default();
        self.held.insert(session.to_owned(), held.clone());
        self.in_order.push_back(session.to_owned());
        held
    }
}

/// The bridges of a process whose calls another one answers. A cheap handle.
#[derive(Clone)]
pub struct Afar(Arc<Inner>);

struct Inner {
    granted: Granted,
    grants: BridgeGrants,
    frames: mpsc::Sender<Frame>,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Told>>>,
    count: AtomicU64,
}

impl fmt::Debug for Afar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Afar").field("grants", &self.0.grants).finish_non_exhaustive()
    }
}

impl Afar {
    /// The bridges behind a connection, and what is to be polled for as long as they are used. It ends when the other side is
    /// gone: calls that wait fail then.
    ///
    /// # Errors
    /// The other side does not say what is granted.
    pub async fn connect(
        connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        mut notes: Notes,
    ) -> io::Result<(Afar, impl Future<Output = io::Result<()>> + Send)> {
        let (mut read, write) = tokio::io::split(connection);
        let Some((Told::Granted(granted), _)) = next(&mut read).await? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let grants = serde_json::from_str(&granted.grants)?;
        let (frames, waiting) = mpsc::channel(FRAMES_WAITING_MAX);
        let inner =
            Inner { granted, grants, frames: frames.clone(), waiting: Mutex::default(), count: AtomicU64::default() };
        let afar = Afar(Arc::new(inner));
        let inner = Arc::downgrade(&afar.0);
        let driver = async move {
            let saying = async move {
                while let Some(note) = notes.to_say.recv().await {
                    let _ = frames.send((frame(&Asked::Note(note))?, None)).await;
                }
                std::future::pending::<io::Result<()>>().await
            };
            let hearing = hear(&mut read, inner.clone(), notes.heard);
            let ended = tokio::select! {
                ended = hearing => ended,
                ended = saying => ended,
                ended = write_all(write, waiting) => ended,
            };
            if let Some(inner) = inner.upgrade() {
                lock(&inner.waiting).clear();
            }
            ended
        };
        Ok((afar, driver))
    }

    /// Whether models answer that are configured there.
    fn has_models(&self) -> bool {
        !self.0.grants.llm.is_empty()
    }

    /// Asks, and waits for the answer.
    async fn ask(inner: Arc<Inner>, question: impl FnOnce(u64) -> Asked) -> Option<Told> {
        let number = inner.count.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        lock(&inner.waiting).insert(number, sender);
        let place = Place { inner: Arc::downgrade(&inner), number };
        inner.frames.send((frame(&question(number)).ok()?, None)).await.ok()?;
        let answer = answer.await.ok();
        drop(place);
        answer
    }
}

/// A question that waits. Dropped before its answer, it tells that nobody waits for it.
struct Place {
    inner: Weak<Inner>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(inner) = self.inner.upgrade() else { return };
        if lock(&inner.waiting).remove(&self.number).is_some()
            && let Ok(frame) = frame(&Asked::Cancelled(self.number))
        {
            tokio::spawn(async move { inner.frames.send((frame, None)).await });
        }
    }
}

async fn hear(read: &mut (impl AsyncRead + Unpin), inner: Weak<Inner>, heard: mpsc::Sender<String>) -> io::Result<()> {
    while let Some((told, _)) = next(read).await? {
        match told {
            Told::Note(note) => drop(heard.send(note).await),
            Told::Answer(number, _) | Told::Tools(number, _) => {
                let sender = inner.upgrade().and_then(|inner| lock(&inner.waiting).remove(&number));
                if let Some(sender) = sender {
                    // Whoever waited may have gone at this moment.
                    let _ = sender.send(told);
                }
            }
            Told::Granted(_) => {}
        }
    }
    Ok(())
}

/// A session's bridges where another process answers most calls: those of its own come first, which are the tools of its
/// answerer, and models that clients offer where none is configured.
#[derive(Clone, Debug)]
pub struct OwnAndAfar {
    /// What is answered in this process.
    pub own: HostBridges,
    /// What is answered in another one.
    pub afar: Afar,
}

impl Bridges for OwnAndAfar {
    fn tools(&self) -> ToolsFuture {
        let (own, inner) = (self.own.tools(), self.afar.0.clone());
        Box::pin(async move {
            let mut tools = own.await;
            if let Some(Told::Tools(_, others)) = Afar::ask(inner, Asked::Tools).await {
                let names: BTreeSet<String> = tools.iter().map(|tool| tool.name.clone()).collect();
                tools.extend(others.into_iter().filter(|tool| !names.contains(&tool.name)));
            }
            tools
        })
    }

    fn packs(&self) -> Vec<PackSpec> {
        self.afar.0.granted.packs.clone()
    }

    fn has_tool(&self, name: &str) -> bool {
        self.own.has_tool(name) || self.afar.0.granted.tools.contains(name)
    }

    fn has_pack(&self, name: &str) -> bool {
        self.afar.0.granted.packs.iter().any(|pack| pack.name == name)
    }

    fn grants(&self) -> BridgeGrants {
        let mut grants = self.afar.0.grants.clone();
        let own = self.own.grants().tools.into_iter();
        grants.tools.extend(own.filter(|name| !self.afar.0.granted.tools.contains(name)));
        grants
    }

    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        let is_own = match &call {
            Call::Tool { name, .. } => self.own.has_tool(name),
            Call::Llm { .. } => !self.afar.has_models(),
            Call::Input { .. } => true,
            _ => false,
        };
        if is_own {
            return self.own.call(call, caller);
        }
        let (inner, session, cell) = (self.afar.0.clone(), caller.session.id().to_owned(), caller.cell.0);
        Box::pin(async move {
            let asked = |number| Asked::Call { number, session, cell, call };
            match Afar::ask(inner, asked).await {
                Some(Told::Answer(_, answer)) => answer,
                _ => Err(CallError::new(CallErrorKind::Failed, "the process that answers calls is gone")),
            }
        })
    }
}

/// The refusal of an agent that a session of another process calls: an agent runs cells in the session that calls it.
pub(crate) fn no_agent(call: &Call) -> CallError {
    let mut error = denied(call);
    error.message.push_str("; agents are not to be had where each tenant has a process of its own");
    error
}

fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let message = postcard::to_extend(message, vec![0; 4]).map_err(io::Error::other)?;
    let length = message.len() - 4;
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};

    use super::*;
    use crate::{Options, Tools};

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

    fn notes() -> (mpsc::Sender<String>, mpsc::Receiver<String>, Notes) {
        let ((say, to_say), (hearing, heard)) = (mpsc::channel(1), mpsc::channel(1));
        (say, heard, Notes { to_say, heard: hearing })
    }

    fn call(name: &str) -> impl FnOnce(u64) -> Asked + use<> {
        let call = Call::Tool { name: name.to_owned(), arguments: "{\"a\":1}".to_owned() };
        move |number| Asked::Call { number, session: "s".to_owned(), cell: 1, call }
    }

    fn sides() -> (DuplexStream, DuplexStream) {
        duplex(1 << 16)
    }

    #[tokio::test]
    async fn calls_are_answered_given_up_and_fail_with_the_connection() {
        let (given_up, mut was_given_up) = mpsc::channel(1);
        let (mine, theirs) = sides();
        let ((front_says, _front_hears, front), (_says, mut hears, own)) = (notes(), notes());
        let answering = tokio::spawn(answer_afar(bridges(given_up), theirs, front));
        let (afar, driver) = Afar::connect(mine, own).await.expect("it is told what is granted");
        let driving = tokio::spawn(driver);
        assert!(afar.0.granted.tools.contains("echo"), "{afar:?}");
        let answer = Afar::ask(afar.0.clone(), call("echo")).await;
        assert!(
            matches!(&answer, Some(Told::Answer(_, Ok(Response::Json(json)))) if json == "{\"a\":1}"),
            "{answer:?}"
        );
        let unknown = Afar::ask(afar.0.clone(), call("nothing")).await;
        let is_unknown = |error: &CallError| error.kind == CallErrorKind::Unknown;
        assert!(matches!(&unknown, Some(Told::Answer(_, Err(error))) if is_unknown(error)), "{unknown:?}");
        let waiting = tokio::spawn(Afar::ask(afar.0.clone(), call("endless")));
        // What is said later is heard later: so the call is there.
        Afar::ask(afar.0.clone(), call("echo")).await.expect("answered");
        waiting.abort();
        was_given_up.recv().await.expect("the call was dropped");
        front_says.send("a note".to_owned()).await.expect("said");
        assert_eq!(hears.recv().await.as_deref(), Some("a note"));
        let lost = tokio::spawn(Afar::ask(afar.0.clone(), call("endless")));
        Afar::ask(afar.0.clone(), call("echo")).await.expect("answered");
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
        let answering = tokio::spawn(answer_afar(bridges, theirs, own));
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
            let answering = tokio::spawn(answer_afar(bridges(given_up), theirs, own));
            mine.write_all(bytes).await.expect("said");
            mine.shutdown().await.expect("ended");
            assert!(answering.await.expect("no panic").is_err(), "{bytes:?}");
        }
    }
}
