//! Replay of a recording: kernels like the recorded ones get the recorded input, and must produce the recorded output.
//!
//! Each kernel is played by a task of its own, which reads its own stream. The replay reads all streams, and takes the
//! kernels' output in the recorded order.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cellar_core::{
    cell::{GuestName, Language},
    event::{Event, EventKind},
    limits::{Limits, ROOM_WAIT, TIMEOUT_GRANTED_MAX},
    sync::lock,
};
use cellar_files::{FileLimits, Files, Quota};
use cellar_results::{
    artifacts::{ArtifactError, ArtifactKeys, SessionArtifacts},
    renderer::{self, Begun, Renderer},
    tables::Tables,
};
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc, task::JoinSet};

use super::checkpoint::check;
use crate::{
    contract::error::Error,
    formats::{
        snapshot::Snapshot,
        tape::{Cursor, OpenError, RECORDING, ReplayError, TapeFile},
    },
    kernel::{
        border::WORLD_VERSION,
        capture::data_of,
        code::Flavour,
        host::{Guest, Host},
        instance::{Death, Kernel},
        record::{Birth, CellHead, Entry, Item, Playback, Progress, Tape, item_of},
        scheduling::{Claim, Sweep},
        state::{Binding, LiveCell},
    },
};

/// Steps that a kernel may be ahead of the replay.
const PROGRESS_MAX: usize = 64;

/// An event of one of the runs of a recording, as it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The run, from 1 in the order in which they were made.
    pub run: u32,
    /// Event that the run received.
    pub event: Event,
}

/// A recording that is played again; see [`Host::replay`].
pub struct Replay {
    host: Host,
    tape: Arc<TapeFile>,
    cursor: Cursor,
    /// The guests that it was made with.
    guests: HashMap<Language, GuestName>,
    kernels: HashMap<u32, mpsc::Receiver<Progress>>,
    players: JoinSet<()>,
    renderers: Vec<Arc<dyn Renderer>>,
    /// Events that were not read yet: what came of a display that was added to.
    rendered: VecDeque<Replayed>,
    /// Error of the first player that failed.
    failed: Arc<Mutex<Option<Error>>>,
    /// The next place in the events of each run.
    seqs: HashMap<u32, u64>,
}

impl std::fmt::Debug for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("session", &self.session()).finish_non_exhaustive()
    }
}

impl Host {
    /// Opens a recording that [`SessionConfig::record`](crate::SessionConfig::record) made, to play it. It is read once
    /// to see that it is whole, which blocks for about a second a GiB.
    ///
    /// The cells run again, in kernels like those that were recorded. What they ask of the world is answered by the
    /// recording: a replay has no folder, opens no file, calls no tool and no model, and looks at no clock.
    ///
    /// # Errors
    /// `Recording` when the file cannot be read; `Replay` when it is no recording, ends early, is damaged, or was made
    /// with another build of a guest; when a guest is not there.
    pub fn replay(&self, path: &Path) -> Result<Replay, Error> {
        let tape = TapeFile::open(path).map_err(|error| match error {
            OpenError::Io(source) => Error::Recording { doing: "read", path: path.to_owned(), source },
            OpenError::Replay(error) => error.into(),
        })?;
        RECORDING.check_world(&tape.head.world, WORLD_VERSION).map_err(ReplayError::from)?;
        let mut guests = HashMap::new();
        for (code, found) in &tape.end.guests {
            let language = language_of(code)?;
            guests.insert(language, self.recorded_guest(language, found)?);
        }
        let tape = Arc::new(tape);
        Ok(Replay {
            host: self.clone(),
            cursor: Cursor::new(tape.clone()),
            tape,
            guests,
            kernels: HashMap::new(),
            players: JoinSet::new(),
            renderers: Vec::new(),
            rendered: VecDeque::new(),
            failed: Arc::default(),
            seqs: HashMap::new(),
        })
    }
}

impl Host {
    /// The guest of a language that a recording was made with.
    fn recorded_guest(&self, language: Language, found: &str) -> Result<GuestName, Error> {
        let others = GuestName::ALL.into_iter().filter(|guest| guest.language() == language);
        let same = others.into_iter().find(|guest| self.guest_digest(*guest).is_ok_and(|digest| digest == found));
        if let Some(guest) = same {
            return Ok(guest);
        }
        RECORDING.check_guest(language, found, &self.guest_digest(language.guest())?).map_err(ReplayError::from)?;
        Ok(language.guest())
    }
}

/// Meaning of a recorded item for the replay.
enum Step {
    Told(u32, EventKind),
    Born(Birth),
    Said(u32),
    Left,
    /// It is the kernel's own business.
    Other,
}

impl Replay {
    /// Adds to what is displayed what the renderers of the session added: no recording has it.
    pub fn with_renderers(mut self, renderers: Vec<Arc<dyn Renderer>>) -> Replay {
        self.renderers = renderers;
        self
    }

    /// Returns the store for its tables: the temporary one, as for a session without a store.
    fn tables(&self) -> Tables {
        let keys = ArtifactKeys::of(self.tape.head.artifacts.clone());
        Tables::new(self.session(), Arc::new(keys), None)
    }

    /// Artifacts of the replay: the tables that its cells displayed so far. Blocks on the disk.
    ///
    /// # Errors
    /// The temporary store cannot be created.
    pub fn artifacts(&self) -> Result<SessionArtifacts, ArtifactError> {
        self.tables().artifacts()
    }

    /// The session that was recorded.
    pub fn session(&self) -> &str {
        &self.tape.head.session
    }

    /// Time at which its recording began.
    pub fn began(&self) -> SystemTime {
        UNIX_EPOCH.checked_add(Duration::from_nanos(self.tape.head.began)).unwrap_or(UNIX_EPOCH)
    }

    /// The languages that have a kernel in it.
    pub fn languages(&self) -> Vec<Language> {
        self.tape.end.guests.iter().filter_map(|(code, _)| Language::from_code(code)).collect()
    }

    /// The next event; `None` after the last.
    ///
    /// # Errors
    /// `Replay` when the guest does something else than it did, or the recording ended before its session; when a
    /// kernel cannot be had. Nothing comes after an error.
    ///
    /// # Cancel safety
    /// Not cancel safe: an event may be lost with the future.
    pub async fn next(&mut self) -> Result<Option<Replayed>, Error> {
        loop {
            if let Some(event) = self.rendered.pop_front() {
                return Ok(Some(event));
            }
            let Some((stream, bytes)) = self.cursor.next()? else { return self.end().await };
            match step_of(bytes)? {
                Step::Told(run, event) => return Ok(Some(self.event(run, event))),
                Step::Born(birth) => self.begin(stream, birth)?,
                Step::Said(run) => match self.progress(stream).await? {
                    Progress::Said(event) => match renderer::begin(
                        &self.renderers,
                        || self.tables(),
                        event,
                        || Box::pin(std::future::pending()),
                    ) {
                        Begun::Rendering(rendering) => {
                            for event in rendering.await {
                                let event = self.event(run, event);
                                self.rendered.push_back(event);
                            }
                        }
                        Begun::AsItIs(event) => return Ok(Some(self.event(run, event))),
                    },
                    Progress::Left => return Err(out_of_order()),
                },
                Step::Left => match self.progress(stream).await? {
                    Progress::Left => {}
                    Progress::Said(_) => return Err(out_of_order()),
                },
                Step::Other => {}
            }
        }
    }

    fn event(&mut self, run: u32, kind: EventKind) -> Replayed {
        let next = self.seqs.entry(run).or_default();
        let seq = *next;
        *next = next.saturating_add(1);
        Replayed { run, event: Event { seq, kind } }
    }

    /// Starts the player of a kernel.
    fn begin(&mut self, stream: u32, birth: Birth) -> Result<(), Error> {
        let language = language_of(&birth.language)?;
        let flavour = Flavour::of(language, self.host.config().stops, birth.has_fuel);
        let (progress, heard) = mpsc::channel(PROGRESS_MAX);
        let limits = self.tape.head.limits.clone();
        let patience = limits.timeout_max.min(TIMEOUT_GRANTED_MAX).saturating_add(limits.grace).saturating_mul(2);
        let player = Player {
            guest: self.host.guest(self.guests.get(&language).copied().ok_or_else(out_of_order)?, flavour)?,
            sweep: self.host.sweep(),
            limits,
            playback: Playback::new(self.cursor.clone(), stream, progress, patience),
        };
        if self.kernels.insert(stream, heard).is_some() {
            return Err(out_of_order());
        }
        let failed = self.failed.clone();
        self.players.spawn(async move {
            if let Err(error) = player.play(birth.image_parts).await {
                lock(&failed).get_or_insert(error);
            }
        });
        Ok(())
    }

    /// Receives the next step of a kernel.
    async fn progress(&mut self, stream: u32) -> Result<Progress, Error> {
        let kernel = self.kernels.get_mut(&stream).ok_or_else(out_of_order)?;
        match kernel.recv().await {
            Some(progress) => Ok(progress),
            None => Err(lock(&self.failed).take().unwrap_or_else(out_of_order)),
        }
    }

    /// Waits for the kernels, all of whose steps have been seen.
    async fn end(&mut self) -> Result<Option<Replayed>, Error> {
        while let Some(joined) = self.players.join_next().await {
            joined.map_err(|error| Error::Engine(error.into()))?;
        }
        if let Some(error) = lock(&self.failed).take() {
            return Err(error);
        }
        match self.tape.end.is_full {
            true => Err(ReplayError::Full { bytes: self.tape.bytes }.into()),
            false => Ok(None),
        }
    }
}

fn step_of(bytes: &[u8]) -> Result<Step, Error> {
    let (item, more) = item_of(bytes)?;
    Ok(match item {
        Item::Told { run } => Step::Told(run, decode(more)?),
        Item::Born(birth) => Step::Born(birth),
        Item::Said { run, .. } => Step::Said(run),
        Item::Left(_) | Item::Died { .. } => Step::Left,
        _ => Step::Other,
    })
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ReplayError> {
    postcard::from_bytes(bytes).map_err(|error| RECORDING.corrupt(format!("an item cannot be read ({error})")).into())
}

fn out_of_order() -> Error {
    ReplayError::from(RECORDING.corrupt("its items are out of order")).into()
}

fn language_of(code: &str) -> Result<Language, ReplayError> {
    Ok(RECORDING.language(code)?)
}

/// Plays one kernel.
struct Player {
    guest: Arc<Guest>,
    sweep: Arc<Sweep>,
    limits: Limits,
    playback: Playback,
}

impl Player {
    async fn play(mut self, image_parts: u32) -> Result<(), Error> {
        let mut image = Vec::new();
        for _ in 0..image_parts {
            match self.playback.take() {
                Some((Item::Image, part)) => image.extend(part),
                _ => return Err(self.playback.error().map_or_else(out_of_order, Error::from)),
            }
        }
        let image = (image_parts > 0).then_some(image);
        let mut kernel = self.kernel(image).await?;
        while let Some((item, more)) = playback(&mut kernel)?.take() {
            let entered = match item {
                Item::Gone => break,
                Item::Ended(cell) => {
                    kernel.data().cells.remove(&cell);
                    continue;
                }
                Item::Configure => kernel.configure(&decode(&more)?).await,
                Item::Reseed => kernel.reseed(decode(&more)?).await,
                Item::Clear => kernel.clear().await,
                Item::Look => kernel.look(&decode(&more)?).await.map(drop),
                Item::Enter(cell) => enter(&mut kernel, cell, decode(&more)?).await,
                _ => return Err(out_of_order()),
            };
            if let Err(death) = entered {
                tracing::debug!(message = death.message, "a replayed kernel died");
            }
            let playback = playback(&mut kernel)?;
            if let Some(error) = playback.error() {
                return Err(error.into());
            }
            if playback.has_left() && !playback.tell(Progress::Left).await {
                return Ok(());
            }
        }
        playback(&mut kernel)?.error().map_or(Ok(()), |error| Err(error.into()))
    }

    /// A kernel that begins as the recorded one did.
    async fn kernel(self, image: Option<Vec<u8>>) -> Result<Kernel, Error> {
        let Player { guest, sweep, limits, playback } = self;
        let files = Files::new(Vec::new(), Quota::new(FileLimits::default()));
        let tape = Tape::Replaying(Box::new(playback));
        let binding = Binding { tape, ..Binding::nobodys(limits, files) };
        // A kernel that is played does not sleep.
        let room = tokio::time::timeout(ROOM_WAIT, sweep.room(Claim::default())).await;
        let room = room.map_err(|_| Error::KernelsExhausted)?;
        let mut kernel = guest.fresh(room).await?;
        let Some(image) = image else {
            kernel.bind(binding);
            return Ok(kernel);
        };
        let snapshot = Snapshot::from_bytes(&image)?;
        let image = snapshot.kernels.first().ok_or_else(out_of_order)?;
        check(image, guest.digest()?, &binding.limits)?;
        kernel.take_over(&mut data_of(&image.state, binding));
        let language = guest.language;
        let restored = kernel.restore(&image.pages, guest.image()?).await;
        restored.map_err(|death: Death| Error::Kernel { language, source: death.message.into() })?;
        Ok(kernel)
    }
}

/// The recording that a kernel is played from.
fn playback(kernel: &mut Kernel) -> Result<&mut Playback, Error> {
    match &mut kernel.data().binding.tape {
        Tape::Replaying(playback) => Ok(playback),
        Tape::Off | Tape::Recording(_) => Err(out_of_order()),
    }
}

/// Enters a kernel as the recorded one was.
async fn enter(kernel: &mut Kernel, head: Option<CellHead>, entry: Entry) -> Result<(), Death> {
    if let (Entry::Start(_) | Entry::Seed(..), Some(head)) = (&entry, head)
        && let Some(cell) = live_cell(head)
    {
        kernel.data().add_cell(entry.cell(), cell);
    }
    kernel.step(entry).await.map(drop)
}

/// A cell like the recorded one. Its events go the way of the replay.
fn live_cell(head: CellHead) -> Option<LiveCell> {
    let CellHead { index, output_left, fuel_left, depth, is_muted } = head;
    let (events, _unread) = mpsc::channel(1);
    let last = events.clone().try_reserve_owned().ok()?;
    let mut cell = LiveCell::unheard(events, last, TIMEOUT_GRANTED_MAX);
    (cell.reader.index, cell.reader.is_muted, cell.origin.depth) = (index, is_muted, depth);
    (cell.budget.output_left, cell.budget.fuel_left) = (output_left, fuel_left);
    Some(cell)
}
