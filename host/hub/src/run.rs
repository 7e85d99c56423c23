//! One run: driven to its end by a task of the hub, and read by anybody.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cellar_core::sync::lock;
use cellar_engine::{
    Canceller, Cell, CellId, Event, EventKind, RunResult, Session,
    artifacts::{ARTIFACT_SCHEME, ArtifactError, Description},
    config::{RunOptions, UnreadBytes},
    mime::MimeData,
};
use tokio::sync::watch;

use crate::{
    error::HubError,
    journal::{Found, INLINE_BYTES_MAX, Journal},
    journals::{Account, Held},
};

mod driver;
mod driving;

pub(crate) use driver::{Ending, drive};
pub use driving::Driving;

/// Events that the owner of a run may be behind; with more, its guest waits.
const OWNER_LAG_EVENTS_MAX: u64 = 64;

/// What is run.
#[derive(Debug)]
pub struct RunRequest {
    /// The caller's name for it, of its own among the runs that are under way.
    pub id: String,
    /// The cells, in order.
    pub cells: Vec<Cell>,
    /// Later cells run although one failed.
    pub keep_going: bool,
    /// What it says of itself.
    pub options: RunOptions,
    /// An owner will read it from its first event on; until then, and while it lags, the guest waits.
    pub is_owned: bool,
    /// What becomes of it when its owner goes away.
    pub on_disconnect: OnDisconnect,
}

/// What becomes of a run whose owner goes away before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// It is cancelled, unless an owner comes back within this time.
    Cancel(Duration),
    /// It goes on, and its journal keeps its latest events.
    Continue,
}

/// What a reader is given.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Delivery {
    /// The next event.
    Event(Arc<Event>),
    /// Events that are not kept any more, from the first number to before the second. Long texts among them are in the
    /// artifacts that `CellFinished` and `RunFinished` name.
    Gap(u64, u64),
}

/// Where the owner of a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Nobody owns it.
    Nobody,
    /// Its owner reads this event next.
    At(u64),
    /// Its owner has gone.
    Gone,
}

/// What the driver of a run and its readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    id: String,
    session: Session,
    session_name: String,
    journal: Mutex<Journal>,
    /// Where what is kept of it is counted.
    account: Account,
    /// Number of the event behind the last that readers were told of, and whether the run was refused: what readers wait for.
    head: watch::Sender<u64>,
    /// Says that all has been said of it.
    over: watch::Sender<bool>,
    /// Changes by which the driver is woken are told; that the owner reads on is none, unless the driver waits for that.
    owner: watch::Sender<Owner>,
    /// The driver waits until the owner has room for more.
    is_held: AtomicBool,
    canceller: OnceLock<Canceller>,
    cancelled: watch::Sender<bool>,
    on_disconnect: OnDisconnect,
    /// What it came to, once that is known.
    end: OnceLock<Result<Arc<RunResult>, Arc<HubError>>>,
    /// What that takes.
    held: OnceLock<Held>,
    /// Its cells that have started, in order.
    cells: Mutex<Vec<CellId>>,
}

/// A run of a hub. A cheap handle.
#[derive(Clone, Debug)]
pub struct RunHandle(pub(crate) Arc<Shared>);

impl RunHandle {
    pub(crate) fn new(request: &RunRequest, session: Session, session_name: &str, account: Account) -> RunHandle {
        RunHandle(Arc::new(Shared {
            id: request.id.clone(),
            session,
            session_name: session_name.to_owned(),
            journal: Mutex::new(Journal::new(account.clone())),
            account,
            head: watch::Sender::new(0),
            over: watch::Sender::new(false),
            owner: watch::Sender::new(if request.is_owned { Owner::At(0) } else { Owner::Nobody }),
            is_held: AtomicBool::new(false),
            canceller: OnceLock::new(),
            cancelled: watch::Sender::new(false),
            on_disconnect: request.on_disconnect,
            end: OnceLock::new(),
            held: OnceLock::new(),
            cells: Mutex::default(),
        }))
    }

    /// The caller's name for it.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The name of its session.
    pub fn session_name(&self) -> &str {
        &self.0.session_name
    }

    /// Whether that is a handle of this very run.
    pub(crate) fn is(&self, other: &RunHandle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Its session.
    pub fn session(&self) -> &Session {
        &self.0.session
    }

    /// Asks it to stop and keep its session's state. One that waits for its turn never starts a cell.
    pub fn cancel(&self) {
        self.0.cancelled.send_replace(true);
        if let Some(canceller) = self.0.canceller.get() {
            canceller.cancel();
        }
    }

    /// Whether this is one of its cells, and has started.
    pub fn has_cell(&self, cell: CellId) -> bool {
        lock(&self.0.cells).contains(&cell)
    }

    /// Whether all has been said of it: its id is free then.
    pub fn is_ended(&self) -> bool {
        self.0.end.get().is_some()
    }

    /// Reads it as its owner, from this event on: the guest waits for a reader that lags. One owner takes the place of
    /// another.
    pub fn own(&self, from_seq: u64) -> Reader {
        self.0.owner.send_replace(Owner::At(from_seq));
        Reader { shared: self.0.clone(), next: from_seq, is_owner: true }
    }

    /// Follows it as its owner for what it comes to alone: nothing holds it up, and when what is given is dropped before
    /// its end, its owner has gone.
    pub fn own_result(&self) -> Reader {
        self.own(u64::MAX)
    }

    /// The same of a run whose owner may have gone, as with [`RunHandle::rejoin`].
    pub fn rejoin_result(&self) -> Reader {
        self.rejoin(u64::MAX)
    }

    /// Reads it from this event on, without holding it up.
    pub fn watch(&self, from_seq: u64) -> Reader {
        Reader { shared: self.0.clone(), next: from_seq, is_owner: false }
    }

    /// Reads it from this event on: as its owner if that has gone away, without holding it up otherwise.
    pub fn rejoin(&self, from_seq: u64) -> Reader {
        let is_owner = self.0.owner.send_if_modified(|owner| {
            let is_free = *owner == Owner::Gone;
            if is_free {
                *owner = Owner::At(from_seq);
            }
            is_free
        });
        Reader { shared: self.0.clone(), next: from_seq, is_owner }
    }

    /// What it came to, once it has ended.
    ///
    /// # Errors
    /// It was refused, and nothing ran.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn result(&self) -> Result<Arc<RunResult>, Arc<HubError>> {
        let mut over = self.0.over.subscribe();
        loop {
            if let Some(end) = self.0.end.get() {
                return end.clone();
            }
            // The sender lives as long as this handle.
            let _ = over.changed().await;
        }
    }

    /// What it came to, if it has ended.
    pub(crate) fn ended(&self) -> Option<&Arc<RunResult>> {
        self.0.end.get()?.as_ref().ok()
    }

    /// Bytes of all that is kept of it.
    pub(crate) fn size_bytes(&self) -> usize {
        self.0.journal().size_bytes().saturating_add(self.ended().map_or(0, |result| result.size_bytes()))
    }

    /// Lets the oldest events go, but what its owner has not read, while the journal has more than so many bytes.
    pub(crate) fn trim(&self, bytes_max: usize) {
        let keep_from = self.0.keep_from();
        self.0.journal().trim(keep_from, bytes_max);
    }
}

/// Follows a run.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    next: u64,
    is_owner: bool,
}

impl Reader {
    /// The next event or gap; none when the run has ended, or was refused.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) -> Option<Delivery> {
        let mut head = None;
        loop {
            // Events that come together are told together, and taken in together.
            let told = *self.shared.head.borrow();
            let found = {
                let mut journal = self.shared.journal();
                if self.is_owner {
                    journal.read(self.next);
                }
                journal.at(self.next)
            };
            match found {
                Found::Event(event) if self.next < told => {
                    self.go_to(self.next.saturating_add(1));
                    return Some(Delivery::Event(event));
                }
                Found::Gone(first) => {
                    let gap = Delivery::Gap(self.next, first);
                    self.go_to(first);
                    return Some(gap);
                }
                Found::End => return None,
                Found::NotYet if self.shared.is_refused() => return None,
                Found::NotYet | Found::Event(_) => match &mut head {
                    // What came between the look and the subscription is seen by the second look.
                    None => head = Some(self.shared.head.subscribe()),
                    Some(head) => {
                        let _ = head.changed().await;
                    }
                },
            }
        }
    }

    /// Number of the event that it is given next.
    pub fn next_seq(&self) -> u64 {
        self.next
    }

    fn go_to(&mut self, seq: u64) {
        self.next = seq;
        if self.is_owner {
            let shared = &self.shared;
            shared.owner.send_if_modified(|owner| {
                *owner = Owner::At(seq);
                // Whoever begins to wait after this looks at the owner afterwards.
                shared.is_held.load(Ordering::SeqCst)
            });
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.is_owner {
            // Another owner may have taken its place.
            self.shared.owner.send_if_modified(|owner| {
                let is_mine = *owner == Owner::At(self.next);
                if is_mine {
                    *owner = Owner::Gone;
                }
                is_mine
            });
            self.shared.forgive();
        }
    }
}

impl Shared {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        lock(&self.journal)
    }

    fn is_refused(&self) -> bool {
        matches!(self.end.get(), Some(Err(_)))
    }

    /// Adds an event. Whoever looks finds it; those who wait are told by [`Shared::tell`].
    fn push(&self, event: Arc<Event>) {
        self.journal().push(event);
    }

    /// Keeps what the next event counts as until the owner has taken it in.
    fn owe(&self, unread: UnreadBytes) {
        self.journal().owe(unread);
        self.forgive();
    }

    /// What nobody is to read counts as nothing.
    fn forgive(&self) {
        if self.keep_from() == u64::MAX {
            self.journal().read(u64::MAX);
        }
    }

    /// Tells those who wait of all that was added.
    fn tell(&self) {
        let next = self.journal().next_seq();
        self.head.send_if_modified(|head| std::mem::replace(head, next) != next);
    }

    /// Whether something was added that nobody was told of.
    fn has_untold(&self) -> bool {
        self.journal().next_seq() != *self.head.borrow()
    }

    /// Number of the first event that its owner has not read.
    fn keep_from(&self) -> u64 {
        match *self.owner.borrow() {
            Owner::At(seq) => seq,
            Owner::Nobody | Owner::Gone => u64::MAX,
        }
    }

    /// Makes room in the journal: large displays become artifacts that later readers find named in their place, of at most
    /// `elsewhere_left` bytes, and the oldest events go.
    async fn make_room(&self, elsewhere_left: &mut usize) {
        // The owner is asked first: those who wait for it look into the journal while they hold it.
        let oldest_large = |keep_from| self.journal().oldest_large(keep_from, self.bytes_max());
        while let Some(event) = oldest_large(self.keep_from()) {
            let Some(left) = elsewhere_left.checked_sub(event.kind.size_bytes()) else { break };
            *elsewhere_left = left;
            self.tell();
            let session = self.session.clone();
            match tokio::task::spawn_blocking(move || by_reference(&session, &event)).await {
                Ok(Ok(event)) => self.journal().replace(Arc::new(event)),
                Ok(Err(error)) => {
                    tracing::warn!(run = self.id, %error, "a display was not kept for later readers");
                    break;
                }
                Err(_) => break,
            }
        }
        let keep_from = self.keep_from();
        self.journal().trim(keep_from, self.bytes_max());
        self.account.make_room();
    }

    /// Bytes that its journal may keep.
    fn bytes_max(&self) -> usize {
        self.account.journal_bytes_max()
    }

    fn finish(&self, end: Result<RunResult, HubError>) {
        if let Ok(result) = &end {
            let _ = self.held.set(Held::new(&self.account, result.size_bytes()));
        }
        let is_refused = end.is_err();
        let _ = self.end.set(end.map(Arc::new).map_err(Arc::new));
        self.over.send_replace(true);
        if is_refused {
            // No event comes that would tell its readers.
            self.head.send_modify(|_| {});
        }
    }

    /// Whether the owner is so far behind that the guest must wait.
    fn is_behind(&self, owner: Owner) -> bool {
        let Owner::At(seq) = owner else { return false };
        let journal = self.journal();
        let behind = journal.next_seq().saturating_sub(seq);
        behind > OWNER_LAG_EVENTS_MAX || (behind > 0 && journal.size_bytes() > self.bytes_max())
    }

    /// Waits until the owner has room for more.
    async fn room(&self) {
        if self.is_behind(*self.owner.borrow()) {
            let mut owner = self.owner.subscribe();
            self.is_held.store(true, Ordering::SeqCst);
            let _ = owner.wait_for(|owner| !self.is_behind(*owner)).await;
            self.is_held.store(false, Ordering::SeqCst);
        }
    }

    /// Waits until the owner has been gone for too long; for ever where that is no reason to stop.
    async fn deserted(&self) {
        let OnDisconnect::Cancel(grace) = self.on_disconnect else { return std::future::pending().await };
        let mut owner = self.owner.subscribe();
        loop {
            if owner.wait_for(|owner| *owner == Owner::Gone).await.is_err() {
                std::future::pending::<()>().await;
            }
            let came_back = owner.wait_for(|owner| *owner != Owner::Gone);
            if tokio::time::timeout(grace, came_back).await.is_err() {
                return;
            }
        }
    }
}

/// A display whose large representations are artifacts of its session, named in the place of each. Blocks.
fn by_reference(session: &Session, event: &Event) -> Result<Event, ArtifactError> {
    let mut event = event.clone();
    let (EventKind::Display { data, .. } | EventKind::UpdateDisplay { data, .. }) = &mut event.kind else {
        return Ok(event);
    };
    let artifacts = session.artifacts()?;
    let (mut kept, mut references) = (Vec::new(), Vec::new());
    for (mime_type, data) in std::mem::take(&mut data.0) {
        let bytes = match &data {
            MimeData::Text(text) => text.as_bytes(),
            MimeData::Binary(bytes) => bytes,
        };
        if bytes.len() <= INLINE_BYTES_MAX {
            kept.push((mime_type, data));
            continue;
        }
        let artifact = artifacts.put(bytes, Description { mime_type: &mime_type, title: Some("a display") })?;
        references.push(format!("({mime_type}, {} bytes: {ARTIFACT_SCHEME}{})", bytes.len(), artifact.id));
    }
    if !kept.iter().any(|(mime_type, _)| mime_type == "text/plain") {
        kept.push(("text/plain".to_owned(), MimeData::Text(String::new())));
    }
    for (mime_type, data) in &mut kept {
        if let ("text/plain", MimeData::Text(text)) = (mime_type.as_str(), data) {
            let gap = if text.is_empty() { "" } else { "\n" };
            *text = format!("{text}{gap}{}", references.join("\n"));
        }
    }
    data.0 = kept;
    Ok(event)
}
