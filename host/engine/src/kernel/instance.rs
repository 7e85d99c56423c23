//! One live interpreter: one store and one instance, owned by one task, entered by one caller at a time.
//!
//! A kernel that trapped, or whose call was dropped, is dead and must be dropped: wasmtime closes its store for good.
//! The session outlives it.

use std::{sync::Arc, time::Duration};

use cellar_core::{
    cell::Language,
    limits::CROSSING_BYTES_MAX,
    outcome::{FailureCode, FailureKind},
};
use wasmtime::{Store, Trap, UpdateDeadline};

use crate::{
    contract::error::Error,
    formats::snapshot::{Image, Pages},
    kernel::{
        border::{
            Answer, KernelPre, Question, stop_kind, stop_name,
            types::{self, StopReason},
        },
        capture::Live,
        code::{Engines, Flavour},
        record::{Entry, Fall, Item, mark},
        scheduling::{CpuMeter, Room, WayIn},
        state::{Binding, FUEL_UNCHARGED, LiveCell, StoreData},
    },
};

/// The code of a failure whose kernel was killed.
pub(crate) const LOST: Option<FailureCode> = Some(FailureCode::Lost);

/// Reason for the death of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Death {
    pub(crate) kind: FailureKind,
    /// Name that an exception of that kind would have.
    pub(crate) name: &'static str,
    pub(crate) message: String,
    /// Code that tells what became of the kernel, or why there is none.
    pub(crate) code: Option<FailureCode>,
}

/// One live interpreter, awake or asleep. Only the task that owns it enters it, one entry at a time.
pub(crate) struct Kernel {
    life: Life,
    flavour: Flavour,
    cpu: Arc<CpuMeter>,
}

/// State of a kernel: with or without an instance.
enum Life {
    Awake(Box<Live>),
    /// Its memory was captured and released; only the host's state is left.
    Asleep(Box<StoreData>),
}

impl Kernel {
    /// Instantiates a guest.
    ///
    /// # Errors
    /// `KernelsExhausted` when every slot of the pool is in use, `Kernel` when the guest traps.
    pub(crate) async fn start(
        engines: &Engines,
        linked: &KernelPre<StoreData>,
        language: Language,
        flavour: Flavour,
        binding: Binding,
        room: Room,
    ) -> Result<Kernel, Error> {
        let data = StoreData::new(binding);
        let cpu = data.cpu.clone();
        let mut store = Store::new(engines.get(flavour)?, data);
        store.limiter(|data| &mut data.limiter);
        store.set_hostcall_fuel(CROSSING_BYTES_MAX);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut context| {
            let others = context.data_mut().let_others_go()?;
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(others)))
        });
        if flavour.has_fuel() {
            store.set_fuel(FUEL_UNCHARGED).map_err(|source| Error::Kernel { language, source: source.into() })?;
        }
        let (instance, exports) = linked.start(&mut store).await.map_err(|error| {
            match error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>() {
                Some(_) => Error::KernelsExhausted,
                None => Error::Kernel { language, source: error.into() },
            }
        })?;
        let mut live = Box::new(Live { store, instance, exports, _room: room, beat: None });
        if let Some(beats) = engines.beats(flavour) {
            let beat = live.beat(beats).await;
            live.beat = Some(Arc::new(beat.map_err(|error| Error::Kernel { language, source: error.into() })?));
        }
        Ok(Kernel { life: Life::Awake(live), flavour, cpu })
    }

    /// Makes the kernel a session's own. It must be configured next.
    pub(crate) fn bind(&mut self, binding: Binding) {
        let data = self.data();
        data.limiter.set_limits(binding.limits.memory_bytes, binding.pools());
        data.binding = binding;
    }

    pub(crate) async fn configure(&mut self, configuration: &types::Configuration) -> Result<(), Death> {
        self.enter_uncharged();
        self.data().binding.tape.enter(Item::Configure, configuration);
        let way = self.way_in();
        let Live { store, exports, .. } = self.live()?;
        let result = way.measure(exports.call_configure(store, configuration)).await;
        self.left(result, |()| 0)
    }

    /// Reseeds the random generators, so that they draw other numbers, and changes nothing else.
    pub(crate) async fn reseed(&mut self, seed: u64) -> Result<(), Death> {
        self.enter_uncharged();
        self.data().binding.tape.enter(Item::Reseed, &seed);
        let way = self.way_in();
        let Live { store, exports, .. } = self.live()?;
        let result = way.measure(exports.call_reseed(store, seed)).await;
        self.left(result, |()| 0)
    }

    /// Enters the guest, charges the cell at hand, and reports what happened.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future kills the kernel.
    pub(crate) async fn step(&mut self, entry: Entry) -> Result<types::Step, Death> {
        let cell = entry.cell();
        self.data().enter(cell);
        self.data().go_on();
        self.fill_up(cell);
        let head = self.data().cells.get(&cell).map(LiveCell::head);
        self.data().binding.tape.enter(Item::Enter(head), &entry);
        let way = self.way_in();
        let Live { store, exports, .. } = self.live()?;
        let result = match &entry {
            Entry::Seed(bindings, cell) => way.measure(exports.call_seed(store, bindings, cell)).await,
            Entry::Start(cell) => way.measure(exports.call_start(store, cell)).await,
            Entry::Resume(_, completions) => way.measure(exports.call_resume(store, completions)).await,
            Entry::Interrupt(cell, reason) => way.measure(exports.call_interrupt(store, *cell, *reason)).await,
        };
        self.charge();
        self.data().settle();
        self.data().flush_text().await;
        self.data().leave();
        self.left(result, mark)
    }

    /// Forgets every name and task; the kernel lives on.
    pub(crate) async fn clear(&mut self) -> Result<(), Death> {
        self.enter_uncharged();
        self.data().binding.tape.enter(Item::Clear, &());
        let way = self.way_in();
        let Live { store, exports, .. } = self.live()?;
        let result = way.measure(exports.call_reset(store)).await;
        self.data().flush_text().await;
        self.left(result, |()| 0)
    }

    /// Sends a query about the session to the guest. The inner error is an answer that cannot be used: it came too late, or is too large.
    pub(crate) async fn look(&mut self, question: &Question) -> Result<Result<Answer, String>, Death> {
        self.enter_uncharged();
        self.data().begin_look();
        self.data().binding.tape.enter(Item::Look, question);
        let way = self.way_in();
        let result = way.measure(answer(self.live()?, question)).await;
        let result = self.left(result, |_| 0)?;
        let data = self.data();
        let limit = data.unowned_timeout();
        Ok(if data.end_look() { Err(format!("it took longer than {limit:?} and was stopped")) } else { result })
    }

    /// The pages of its memory that may have been written since it was instantiated.
    pub(crate) async fn written(&mut self) -> Result<Vec<u32>, Death> {
        self.enter_uncharged();
        let written = self.live()?.written().await;
        written.map_err(|error| self.death(&error))
    }

    /// Copies those of the pages that differ from the image; see [`Live::capture`].
    pub(crate) async fn capture(
        &mut self,
        image: &Image,
        earlier: Option<&Pages>,
        pages: &[u32],
    ) -> Result<Pages, Death> {
        self.enter_uncharged();
        let captured = self.live()?.capture(image, earlier, pages).await;
        captured.map_err(|error| self.death(&error))
    }

    /// Makes the memory of a new kernel what was captured.
    pub(crate) async fn restore(&mut self, pages: &Pages, image: &Arc<Image>) -> Result<(), Death> {
        self.enter_uncharged();
        self.data().limiter.is_restoring = true;
        let restored = self.live()?.restore(pages, image).await;
        self.data().limiter.is_restoring = false;
        restored.map_err(|error| self.death(&error))
    }

    /// Gives back the instance and its memory, which must have been captured.
    pub(crate) fn sleep(&mut self) {
        if let Life::Awake(live) = &mut self.life {
            let mut data = std::mem::replace(live.store.data_mut(), StoreData::nobodys());
            data.limiter.release();
            self.life = Life::Asleep(Box::new(data));
        }
    }

    /// Gives a new kernel the host side of another one, which is left with none.
    pub(crate) fn take_over(&mut self, data: &mut StoreData) {
        self.cpu = data.cpu.clone();
        std::mem::swap(self.data(), data);
    }

    /// Returns true if the kernel must be woken before it is entered.
    pub(crate) fn is_asleep(&self) -> bool {
        matches!(self.life, Life::Asleep(_))
    }

    /// Returns the instance. Callers have made sure that the kernel is awake.
    fn live(&mut self) -> Result<&mut Live, Death> {
        match &mut self.life {
            Life::Awake(live) => Ok(live),
            Life::Asleep(_) => {
                let message = "the kernel was entered although it sleeps".to_owned();
                Err(Death { kind: FailureKind::Trap, name: "Trap", message, code: LOST })
            }
        }
    }

    /// Returns the state that the host keeps for this kernel.
    pub(crate) fn data(&mut self) -> &mut StoreData {
        match &mut self.life {
            Life::Awake(live) => live.store.data_mut(),
            Life::Asleep(data) => data,
        }
    }

    /// Processor time so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.cpu.total()
    }

    /// Prepares an entry into the guest. It begins with a whole tick, whenever the last one was.
    fn way_in(&mut self) -> WayIn {
        let mut beat = None;
        if let Life::Awake(live) = &mut self.life {
            live.store.set_epoch_deadline(1);
            beat.clone_from(&live.beat);
        }
        let data = self.data();
        data.beat.clone_from(&beat);
        WayIn { meter: data.cpu.clone(), turn: data.binding.turn.clone(), beat }
    }

    /// Notes an entry that no cell is charged for. What the last cell left of its fuel must not matter to it.
    fn enter_uncharged(&mut self) {
        self.data().enter(0);
        if let Life::Awake(live) = &mut self.life {
            // Only fails when the engine counts no fuel.
            let _ = live.store.set_fuel(FUEL_UNCHARGED);
        }
    }

    /// Sets the fuel for an entry on behalf of `cell`.
    fn fill_up(&mut self, cell: u32) {
        if let Life::Awake(live) = &mut self.life
            && self.flavour.has_fuel()
        {
            let fuel = live.store.data_mut().begin_to_pay(cell);
            // Only fails when the engine counts no fuel, which this flavour does.
            let _ = live.store.set_fuel(fuel);
        }
    }

    /// Charges what was burned since.
    fn charge(&mut self) {
        if let Life::Awake(live) = &mut self.life
            && let Ok(left) = live.store.get_fuel()
        {
            live.store.data_mut().charge(left);
        }
    }

    /// Takes in how an entry ended; `mark` is the fingerprint of what the guest reported.
    fn left<T>(&mut self, result: wasmtime::Result<T>, mark: impl FnOnce(&T) -> u64) -> Result<T, Death> {
        // What the host has against a guest is no trap of wasm.
        let is_trap = result.as_ref().err().is_some_and(|error| error.is::<Trap>());
        let result = result.map_err(|error| self.death(&error));
        let data = self.data();
        if data.binding.tape.is_on() {
            data.end_recorded();
            let was_killed = data.killed.is_some() || !is_trap;
            let left = match &result {
                Ok(report) => Ok(mark(report)),
                Err(death) => Err(Fall { was_killed, message: &death.message }),
            };
            data.binding.tape.left(data.executing, left);
        }
        result
    }

    fn death(&self, error: &wasmtime::Error) -> Death {
        let data = match &self.life {
            Life::Awake(live) => live.store.data(),
            Life::Asleep(data) => data,
        };
        let grace = data.binding.limits.grace;
        let who = if data.is_looking() { "a value that was looked at" } else { "the cell" };
        if let Some(reason) = data.killed {
            let what = match reason {
                StopReason::Timeout => "ran past its deadline",
                StopReason::Interrupted => "was interrupted",
                StopReason::Fuel => "used up its fuel",
                StopReason::Output => "printed more than it may",
            };
            let message = format!("{who} {what} and did not stop within {grace:?}; its kernel was killed");
            return Death { kind: stop_kind(reason), name: stop_name(reason), message, code: LOST };
        }
        let (kind, name, what) = match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => (FailureKind::Fuel, "CellOutOfFuel", "the cell used up its fuel".to_owned()),
            Some(Trap::StackOverflow) => (FailureKind::Trap, "StackOverflow", "the native stack overflowed".to_owned()),
            Some(_) if data.limiter.refused => {
                let megabytes = data.binding.limits.memory_bytes >> 20;
                (FailureKind::Memory, "OutOfMemory", format!("memory ran out at {megabytes} MiB"))
            }
            Some(trap) => (FailureKind::Trap, "Trap", format!("the interpreter crashed ({trap})")),
            None => (FailureKind::Trap, "Trap", format!("the interpreter broke its contract ({})", error.root_cause())),
        };
        Death { kind, name, message: format!("{what}; its kernel was killed"), code: LOST }
    }
}

/// Sends a query to the guest and returns its answer. The inner error is an answer that is too large.
async fn answer(live: &mut Live, question: &Question) -> wasmtime::Result<Result<Answer, String>> {
    let Live { store, exports, .. } = live;
    let bytes_max = store.data().binding.limits.display_bytes;
    Ok(match question {
        Question::Variables => Ok(Answer::variables(exports.call_variables(store).await?)),
        Question::Value(name) => Answer::bundle(exports.call_value(store, name).await?, bytes_max),
        Question::Inspect(code, cursor) => Answer::bundle(exports.call_inspect(store, code, *cursor).await?, bytes_max),
        Question::IsComplete(code) => Ok(Answer::completeness(exports.call_is_complete(store, code).await?)),
        Question::Complete(code, cursor) => {
            let length = u32::try_from(code.chars().count()).unwrap_or(u32::MAX);
            let cursor = length.min(*cursor);
            Ok(Answer::completions(exports.call_complete(store, code, cursor).await?, length))
        }
    })
}
