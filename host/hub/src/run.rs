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

/// Events by which the owner of a run may lag; beyond that, its guest waits.
const OWNER_LAG_EVENTS_MAX: u64 = 64;

/// Request for a run.
#[derive(Debug)]
pub struct RunRequest {
    /// Id that the caller gives it, unique among the runs that are under way.
    pub id: String,
    /// The cells, in order.
    pub cells: Vec<Cell>,
    /// Later cells run although one failed.
    pub keep_going: bool,
    /// Options of the run: its producer, and the datasets that it may load.
    pub options: RunOptions,
    /// An owner will read it from its first event on; until then, and while it lags, the guest waits.
    pub is_owned: bool,
    /// Policy for the disconnection of its owner.
    pub on_disconnect: OnDisconnect,
}

/// Policy for a run whose owner disconnects before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// It is cancelled, unless an owner comes back within this time.
    Cancel(Duration),
    /// It goes on, and its journal keeps its latest events.
    Continue,
}

/// Item that a reader receives.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Delivery {
    /// The next event.
    Event(Arc<Event>),
    /// Events that are not kept any more, from the first number to before the second. Long texts among them are in the
    /// artifacts that `CellFinished` and `RunFinished` name.
    Gap(u64, u64),
}

/// Position of the owner of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Nobody owns it.
    Nobody,
    /// Its owner reads this event next.
    At(u64),
    /// Its owner has gone.
    Gone,
}

/// State that the driver of a run and its readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    id: String,
    session: Session,
    session_name: String,
    journal: Mutex<Journal>,
    /// Account of the bytes that are kept of it.
    account: Account,
    /// Number of the event behind the last that readers were woken for. Readers wait for its changes; a refusal of the
    /// run marks it changed as well.
    head: watch::Sender<u64>,
    /// True when the result or the refusal is known.
    over: watch::Sender<bool>,
    /// Position of the owner. Only changes that must wake the driver are notified; reading on is none, unless the
    /// driver waits for that.
    owner: watch::Sender<Owner>,
    /// True while the driver waits for the owner to read on.
    is_held: AtomicBool,
    canceller: OnceLock<Canceller>,
    cancelled: watch::Sender<bool>,
    on_disconnect: OnDisconnect,
    /// Result or refusal of the run, once it is known.
    end: OnceLock<Result<Arc<RunResult>, Arc<HubError>>>,
    /// Account entry of the result's bytes.
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

    /// Returns true if `other` is a handle of the same run.
    pub(crate) fn is(&self, other: &RunHandle) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Number of the event that comes next.
    pub fn next_seq(&self) -> u64 {
        self.0.journal().next_seq()
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

    /// Returns true if this is one of its cells and has started.
    pub fn has_cell(&self, cell: CellId) -> bool {
        lock(&self.0.cells).contains(&cell)
    }

    /// Returns true if its result or refusal is known: its id is free then.
    pub fn is_ended(&self) -> bool {
        self.0.end.get().is_some()
    }

    /// Reads it as its owner, from this event on: the guest waits for a reader that lags. One owner takes the place of
    /// another.
    pub fn own(&self, from_seq: u64) -> Reader {
        self.0.owner.send_replace(Owner::At(from_seq));
        Reader { shared: self.0.clone(), next: from_seq, is_owner: true }
    }

    /// Reads it as its owner, for its result alone: the guest never waits for this reader. The owner has gone when the
    /// reader is dropped before the end of the run.
    pub fn own_result(&self) -> Reader {
        self.own(u64::MAX)
    }

    /// Does the same for a run whose owner may have gone, as [`RunHandle::rejoin`] does.
    pub fn rejoin_result(&self) -> Reader {
        self.rejoin(u64::MAX)
    }

    /// Reads it from this event on, without holding it up.
    pub fn watch(&self, from_seq: u64) -> Reader {
        Reader { shared: self.0.clone(), next: from_seq, is_owner: false }
    }

    /// Reads it from this event on: as its owner if the previous one has gone, without slowing the guest otherwise.
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

    /// Waits for its end and returns its result.
    ///
    /// # Errors
    /// The run was refused: nothing ran.
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

    /// Returns its result, if it has ended and was not refused.
    pub(crate) fn ended(&self) -> Option<&Arc<RunResult>> {
        self.0.end.get()?.as_ref().ok()
    }

    /// Returns the bytes that are kept of it.
    pub(crate) fn size_bytes(&self) -> usize {
        self.0.journal().size_bytes().saturating_add(self.ended().map_or(0, |result| result.size_bytes()))
    }

    /// Evicts the oldest events that its owner has read, while the journal has more than `bytes_max`.
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

    /// Adds an event to the journal. [`Shared::tell`] wakes the readers that wait for it.
    fn push(&self, event: Arc<Event>) {
        self.journal().push(event);
    }

    /// Keeps the unread bytes of the next event until the owner has read it.
    fn owe(&self, unread: UnreadBytes) {
        self.journal().owe(unread);
        self.forgive();
    }

    /// Releases the unread bytes if the run has no owner to read them.
    fn forgive(&self) {
        if self.keep_from() == u64::MAX {
            self.journal().read(u64::MAX);
        }
    }

    /// Wakes the readers for all events that were added.
    fn tell(&self) {
        let next = self.journal().next_seq();
        self.head.send_if_modified(|head| std::mem::replace(head, next) != next);
    }

    /// Returns true if the readers were not yet woken for some events.
    fn has_untold(&self) -> bool {
        self.journal().next_seq() != *self.head.borrow()
    }

    /// Returns the number of the first event that its owner has not read; `u64::MAX` without an owner.
    fn keep_from(&self) -> u64 {
        match *self.owner.borrow() {
            Owner::At(seq) => seq,
            Owner::Nobody | Owner::Gone => u64::MAX,
        }
    }

    /// Makes room in the journal: stores large displays as artifacts, of at most `elsewhere_left` bytes, which later
    /// readers find named in their place, and evicts the oldest events.
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

    /// Returns true if the owner lags so far that the guest must wait.
    fn is_behind(&self, owner: Owner) -> bool {
        let Owner::At(seq) = owner else { return false };
        let journal = self.journal();
        let behind = journal.next_seq().saturating_sub(seq);
        behind > OWNER_LAG_EVENTS_MAX || (behind > 0 && journal.size_bytes() > self.bytes_max())
    }

    /// Waits until the owner has read enough for more events.
    async fn room(&self) {
        if self.is_behind(*self.owner.borrow()) {
            let mut owner = self.owner.subscribe();
            self.is_held.store(true, Ordering::SeqCst);
            let _ = owner.wait_for(|owner| !self.is_behind(*owner)).await;
            self.is_held.store(false, Ordering::SeqCst);
        }
    }

    /// Waits until the owner has been gone for longer than the policy allows; for ever where the policy is to continue.
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

/// Returns the display with its large representations stored as artifacts of its session, each replaced by a reference.
/// Blocks.
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
