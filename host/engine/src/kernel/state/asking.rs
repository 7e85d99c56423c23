//! Bridge calls of a kernel's cells: begun, awaited, and reported to their runs.

use std::time::{Duration, Instant};

use cellar_core::{
    cell::{CellId, SEED_CELL},
    event::{Bridge, EventKind, Fetch, HostStatus, Scalar},
    limits::{CALL_BYTES_MAX, CALL_VALUES_MAX, INPUT_IDLE_TIMEOUT_MAX},
    mime::{json_values, wide_integer},
    sync::lock,
    text::prefix,
    time::later,
};
use tracing::{Instrument, Span};

use super::{LiveCell, StoreData, lending::EndedFetch, word};
use crate::{
    audit::CalledAs,
    contract::bridge::{Call, CallError, CallErrorKind, CallResult, ProcessCall},
    kernel::{
        border::{answer, types},
        calls::{Account, Beginning, Begun, Block, CallEnd, CallOrigin, Calls, Kept, Site},
        events::Gate,
        record::{Import, Tape, mark},
        scheduling::{Job, earlier},
    },
};

/// Ends of calls handed to the guest at once.
pub(crate) const COMPLETIONS_MAX: usize = 256;
/// Calls that are answered at once before the guest has to return: what else waits in it then has its turn.
const ANSWERED_MAX: usize = 100;
/// Number that `start-call` returns when so many calls wait for an answer that none can be begun.
const NO_CALL: u64 = 0;
/// Bytes of the arguments of a call that may be answered while the kernel waits: to read and check more takes long.
const OFFHAND_BYTES_MAX: usize = 64 << 10;
/// Bytes of the prompt of a request for input.
const PROMPT_BYTES_MAX: u64 = 64 << 10;

impl StoreData {
    /// Makes the future of a call, or the refusal.
    fn prepare(&self, cell: u32, number: u64, call: Call) -> Result<Begun, CallError> {
        if self.is_looking {
            return Err(CallError::new(CallErrorKind::Denied, "nothing can be called while a value is looked at"));
        }
        let size = call_bytes(&call);
        if size > CALL_BYTES_MAX {
            let message = format!("the arguments have {size} bytes, at most {CALL_BYTES_MAX} are allowed");
            return Err(CallError::new(CallErrorKind::Limit, message));
        }
        let values = call_values(&call);
        if values > CALL_VALUES_MAX {
            let message = format!(
                "the arguments have {values} values, names of members among them, at most {CALL_VALUES_MAX} are allowed; \
                 hand over a text or a file instead"
            );
            return Err(CallError::new(CallErrorKind::Limit, message));
        }
        if let Some(number) = call_json(&call).and_then(wide_integer) {
            let message = format!(
                "the arguments have an integer of more than 64 bits, {}, which would be rounded on its way; hand it over as a text",
                word(number)
            );
            return Err(CallError::new(CallErrorKind::Invalid, message));
        }
        let live = self.cells.get(&cell);
        let site = Site {
            cell: CellId(cell),
            call: number,
            depth: self.depth_of(cell),
            lineage: live.map_or(&self.deepest_agent, |live| &live.origin.lineage).clone(),
            stop: live.map(|live| live.stop.flag.clone()),
            fuel_left: live.and_then(LiveCell::fuel_unspent),
            spent: live.map(|live| live.budget.spent.clone()),
            scope: self.scope_of(cell),
            hearer: live.and_then(|live| live.reader.gate.as_ref()).map(Gate::hearer),
        };
        let share = self.binding.turn.as_ref().map(|turn| turn.share().clone());
        let account = Account::new(site.spent.clone(), share);
        let begun = self.binding.answers.call(call, site)?;
        Ok(Begun { future: Box::pin(account.scope(begun.future)), ..begun })
    }

    /// Agents between the session's owner and the code of `cell`.
    fn depth_of(&self, cell: u32) -> u32 {
        self.cells.get(&cell).map_or(self.deepest, |live| live.origin.depth)
    }

    /// Makes the future of a call, or the refusal, and reports the start to the run. A replay makes none.
    async fn announce(
        &mut self,
        cell: u32,
        number: u64,
        call: Call,
    ) -> wasmtime::Result<Option<Result<Begun, CallError>>> {
        let is_live = !self.binding.tape.is_replaying();
        let (bridge, name) = (call.bridge(), word(&call.name()));
        let span = self.trace(cell, number, &call);
        let is_told = !is_between_processes(&call);
        let refusal = self.binding.open_calls.refusal();
        let asked = match (&call, &self.binding.input) {
            (Call::Input { prompt }, Some((requests, idle_timeout))) if refusal.is_none() && self.is_heard(cell) => {
                let (request_id, future) = requests.open(*idle_timeout);
                Some((future, (request_id, prefix(prompt, PROMPT_BYTES_MAX).to_owned(), *idle_timeout)))
            }
            _ => None,
        };
        let is_input = bridge == Bridge::Input;
        let (future, request) = match asked {
            Some((future, request)) => (is_live.then_some(Ok(future.into())), Some(request)),
            None => (is_live.then(|| refusal.map_or_else(|| self.prepare(cell, number, call), Err)), None),
        };
        let future: Option<Result<Begun, _>> = match future {
            Some(Ok(begun)) if !span.is_disabled() => {
                Some(Ok(Begun { future: Box::pin(begun.future.instrument(span)), ..begun }))
            }
            future => future,
        };
        match is_told {
            true => self.send(cell, |index| EventKind::CallStarted { index, call: number, bridge, name }).await,
            // What was printed before a message is there before the message.
            false => self.flush_text().await,
        }
        let request = if is_input { self.taped(Import::InputRequest, cell, |_| Ok(request))? } else { None };
        if let Some((request_id, prompt, idle_timeout)) = request {
            self.send(cell, |index| EventKind::InputRequest { index, request_id, prompt, idle_timeout }).await;
        }
        Ok(future)
    }

    /// Notes that a call begins, for the audit log and the host's trace. Returns its span.
    fn trace(&mut self, cell: u32, number: u64, call: &Call) -> Span {
        let is_untold = self.is_looking || is_between_processes(call);
        if is_untold || self.binding.tape.is_replaying() || !self.binding.open_calls.is_on() {
            return Span::none();
        }
        let live = self.cells.get(&cell);
        let maker = (cell != SEED_CELL).then_some(cell);
        let parent = live.map_or(Span::none(), |live| live.span.clone());
        let run = live.and_then(|live| live.origin.run);
        self.binding.open_calls.begun(number, CalledAs::new(call, call_bytes(call), maker, run, &parent))
    }

    /// Returns true if a run reads the events of `cell`.
    fn is_heard(&self, cell: u32) -> bool {
        let reads = |live: &LiveCell| !live.reader.is_muted && (live.origin.depth == 0 || live.origin.answers_input);
        self.route(cell).and_then(|id| self.cells.get(&id)).is_some_and(reads)
    }

    pub(crate) async fn start_call(&mut self, cell: u32, call: Call) -> wasmtime::Result<u64> {
        let (bridge, size) = (call.bridge(), call_bytes(&call));
        let asked = self.mark_of(&call);
        let is_told = !is_between_processes(&call);
        self.binding.calls.settle().await;
        // A replay has no calls: whether there was room for one more is in the recording.
        let number = self.taped(Import::StartCall, (cell, asked), |data| {
            let calls = &mut data.binding.calls;
            Ok(if calls.is_full() { NO_CALL } else { calls.number() })
        })?;
        if number == NO_CALL {
            return Ok(NO_CALL);
        }
        self.binding.calls.count_from(number.saturating_add(1));
        let future = self.announce(cell, number, call).await?;
        if let (Some(Ok(begun)), Some(live)) = (&future, self.cells.get_mut(&cell))
            && (bridge == Bridge::Input || begun.waits)
        {
            live.asks.insert(number);
        }
        let from = CallOrigin { call: number, cell, bridge, size_bytes: size, is_unheard: self.is_looking || !is_told };
        match future {
            Some(Ok(begun)) => self.begin(from, begun).await,
            Some(Err(error)) => self.binding.calls.refuse(from, error),
            None => {}
        }
        self.tell_of_queue(cell).await;
        Ok(number)
    }

    /// Begins a call, and ends it if its answer is there at once.
    async fn begin(&mut self, from: CallOrigin, begun: Begun) {
        if let Some(error) = self.binding.calls.refusal(from.size_bytes) {
            return self.binding.calls.refuse(from, error);
        }
        let Begun { future, kept, is_process, is_free, .. } = begun;
        let begun = Beginning { began: Instant::now(), kept, is_process };
        let job = self.binding.calls.job(self.depth_of(from.cell), is_free, future);
        match self.try_offhand(from.size_bytes, job).await {
            Ok(result) => self.binding.calls.answer(from, &begun, result),
            Err(job) => self.binding.calls.start(from, begun, job),
        }
    }

    /// The answer of a call that is there at once, or the call.
    async fn try_offhand(&self, size: usize, job: Job) -> Result<CallResult, Job> {
        if size > OFFHAND_BYTES_MAX { Err(job) } else { self.cpu.offhand.ask(job).await }
    }

    /// Reports to a cell's run, once, that its calls wait for others of the session to end.
    async fn tell_of_queue(&mut self, cell: u32) {
        let limit = self.binding.limits.calls_in_flight;
        let is_queued = self.binding.calls.open() > limit;
        let Some(live) = self.cells.get_mut(&cell).filter(|live| is_queued && !live.reader.is_queue_told) else {
            return;
        };
        live.reader.is_queue_told = true;
        let fields = vec![("in_flight".to_owned(), Scalar::Integer(i64::try_from(limit).unwrap_or(i64::MAX)))];
        self.report_status(cell, HostStatus::CallsQueued, fields).await;
    }

    /// The answer of a call that was begun last, if it was there at once.
    ///
    /// # Errors
    /// When a replay has no such call here.
    pub(crate) async fn take_answer(&mut self, call: u64) -> wasmtime::Result<Option<types::Answer>> {
        let end = if self.answered < ANSWERED_MAX { self.binding.calls.take_last(call) } else { None };
        let answer = match end {
            Some(end) => Some(self.completion(end).await.response),
            None => None,
        };
        self.answered = self.answered.saturating_add(usize::from(answer.is_some()));
        self.taped(Import::TakeAnswer, call, |_| Ok(answer))
    }

    /// # Errors
    /// When a replay has no such call.
    pub(crate) async fn block_call(&mut self, cell: u32, call: Call) -> wasmtime::Result<CallResult> {
        self.note_running(cell);
        let number = self.binding.calls.number();
        let from = CallOrigin {
            call: number,
            cell,
            bridge: call.bridge(),
            size_bytes: call_bytes(&call),
            is_unheard: is_between_processes(&call),
        };
        let began = Instant::now();
        let asked = self.mark_of(&call);
        let future = self.announce(cell, number, call).await?;
        let (result, kept) = match future {
            Some(Ok(mut begun)) => {
                let kept = begun.kept.take();
                (self.block_on(from, begun).await, kept)
            }
            Some(Err(error)) => (Err(error), None),
            None => return self.taped(Import::Call, (cell, asked), |_| Err(wasmtime::Error::msg("nobody calls"))),
        };
        let mut end = CallEnd::new(number, cell, began.elapsed(), result);
        end.kept = kept;
        end.reported = from.is_unheard;
        self.binding.open_calls.ended(number, end.duration, &mut end.result).await;
        self.lend(&mut end);
        if let Tape::Recording(record) = &self.binding.tape {
            record.answer(Import::Call, &(cell, asked), &end.result);
        }
        self.report_end(&mut end).await;
        Ok(end.result)
    }

    /// Fingerprint of a call, where it matters.
    fn mark_of(&self, call: &Call) -> u64 {
        if self.binding.tape.is_on() { mark(&format!("{call:?}")) } else { 0 }
    }

    /// Waits for a call, its cell's deadline or its cancellation.
    async fn block_on(&mut self, from: CallOrigin, begun: Begun) -> CallResult {
        let CallOrigin { call, cell, bridge, size_bytes, .. } = from;
        let link = self.binding.link.clone();
        lock(&link.blocks).extend(Block::of(bridge, (cell, call)));
        let asks_people = bridge == Bridge::Input || begun.waits;
        let job = self.binding.calls.job(self.depth_of(cell), begun.is_free, begun.future);
        let result = match self.try_offhand(size_bytes, job).await {
            Ok(result) => result,
            Err(job) => self.wait_on(cell, asks_people, job).await,
        };
        lock(&link.blocks).clear();
        result
    }

    /// Waits for a call that takes its time.
    async fn wait_on(&mut self, cell: u32, asks_people: bool, job: Job) -> CallResult {
        let began = Instant::now();
        if asks_people {
            self.defer(cell, INPUT_IDLE_TIMEOUT_MAX);
        }
        let result = self.wait_for(cell, Calls::block_on(job)).await.unwrap_or_else(|| {
            Err(CallError::new(CallErrorKind::Cancelled, "the cell was stopped while the call ran"))
        });
        if asks_people {
            self.hasten(cell, INPUT_IDLE_TIMEOUT_MAX.saturating_sub(began.elapsed()));
        }
        result
    }

    /// Waits while the guest is suspended; `None` when `cell` must stop before.
    pub(crate) async fn wait_for<T>(&mut self, cell: u32, future: impl Future<Output = T>) -> Option<T> {
        let wake = self.binding.link.resident.wake.clone();
        let mut future = std::pin::pin!(future);
        loop {
            self.settle();
            let deadline = self.look_at(cell);
            tokio::select! {
                biased;
                result = &mut future => return Some(result),
                () = wake.notified() => {}
                () = tokio::time::sleep_until(deadline.into()) => {}
            }
            if self.must_stop(cell) {
                return None;
            }
        }
    }

    /// Waits until a call ends that the guest has begun, a moment of the guest's clock comes or `cell` must stop. Returns all
    /// that have ended.
    pub(crate) async fn wait_for_calls(&mut self, cell: u32, until: u64) -> Vec<types::Completion> {
        let link = self.binding.link.clone();
        lock(&link.blocks).extend(self.binding.calls.blocks());
        let began = Instant::now();
        let asks_people = self.cells.get(&cell).is_some_and(|live| !live.asks.is_empty());
        if asks_people {
            self.defer(cell, INPUT_IDLE_TIMEOUT_MAX);
        }
        let until = self.clock.instant(until);
        let mut next = None;
        while until.is_none_or(|until| Instant::now() < until) && !self.must_stop(cell) {
            let wake_at = earlier(until, Some(self.look_at(cell))).unwrap_or(began);
            tokio::select! {
                biased;
                end = self.binding.calls.next() => {
                    next = Some(end);
                    break;
                }
                () = link.resident.wake.notified() => {}
                () = tokio::time::sleep_until(wake_at.into()) => {}
            }
        }
        if asks_people {
            self.hasten(cell, INPUT_IDLE_TIMEOUT_MAX.saturating_sub(began.elapsed()));
        }
        lock(&link.blocks).clear();
        let mut ended = Vec::new();
        while let Some(end) = next {
            ended.push(self.completion(end).await);
            next = if ended.len() < COMPLETIONS_MAX { self.binding.calls.try_next() } else { None };
        }
        ended
    }

    /// Returns true if a wait on behalf of `cell` must end because the cell must stop. Ends overdue cells as well.
    fn must_stop(&mut self, cell: u32) -> bool {
        self.settle();
        self.end_overdue();
        self.stop_reason(cell, None).is_some()
    }

    /// Reports the end of a call, and converts it into the completion that the guest gets.
    pub(crate) async fn completion(&mut self, mut end: CallEnd) -> types::Completion {
        self.report_end(&mut end).await;
        self.lend(&mut end);
        types::Completion { call: end.call, response: answer(end.result) }
    }

    /// Gives code that runs for `cell` more time, because it is about to wait for people.
    fn defer(&mut self, cell: u32, by: Duration) {
        match self.cells.get_mut(&cell) {
            Some(live) => live.time.deadline = later(live.time.deadline, by),
            None => self.entered = later(self.entered, by),
        }
    }

    /// Takes back what of that it did not need.
    fn hasten(&mut self, cell: u32, by: Duration) {
        let deadline = match self.cells.get_mut(&cell) {
            Some(live) => &mut live.time.deadline,
            None => &mut self.entered,
        };
        *deadline = deadline.checked_sub(by).unwrap_or(*deadline);
    }

    /// Emits the `call_finished` event of a call, once, and before it what was kept of an agent's output.
    pub(crate) async fn report_end(&mut self, end: &mut CallEnd) {
        if std::mem::replace(&mut end.reported, true) {
            return;
        }
        let (call, duration) = (end.call, end.duration);
        self.binding.open_calls.ended(call, duration, &mut end.result).await;
        if let Some(live) = self.cells.get_mut(&end.cell) {
            live.asks.remove(&call);
        }
        self.lend(end);
        let kept = end.kept.take().and_then(|slot| slot.get().cloned());
        if let Some(fetch) = end.fetch.take() {
            let rows = if let Some(Kept::Rows(rows)) = kept { Some(rows) } else { None };
            return self.end_fetch(EndedFetch { cell: end.cell, call, duration, fetch, rows }).await;
        }
        let error = end.result.as_ref().err().map(|error| word(&error.message));
        if let Some(Kept::Failed(failed)) = &kept {
            let fetch = Box::new(Fetch { error: error.clone(), ..Fetch::clone(failed) });
            self.tell(end.cell, |index| EventKind::Fetched { index, call, fetch }).await;
        }
        if let Some(Kept::Output(kept)) = kept {
            let fields = vec![
                ("agent_type".to_owned(), Scalar::Text(word(&kept.agent_type))),
                ("id".to_owned(), Scalar::Text(word(&kept.uri))),
                ("bytes".to_owned(), Scalar::Integer(i64::try_from(kept.bytes).unwrap_or(i64::MAX))),
            ];
            self.report_status(end.cell, HostStatus::Agent, fields).await;
        }
        self.tell(end.cell, |index| EventKind::CallFinished { index, call, duration, error }).await;
    }
}

/// Returns true for a message between processes: there may be thousands, and no run needs to hear of them.
fn is_between_processes(call: &Call) -> bool {
    matches!(call, Call::Process(ProcessCall::Channel(_)))
}

/// Returns the JSON of a call, if it has any.
fn call_json(call: &Call) -> Option<&str> {
    match call {
        Call::Tool { arguments, .. } | Call::Primitive { arguments, .. } | Call::Fetch { arguments, .. } => {
            Some(arguments)
        }
        Call::Llm { schema, .. } => schema.as_deref(),
        Call::Agent(call) => call.schema.as_deref(),
        Call::Input { .. } | Call::Http(_) | Call::Disk | Call::Table(_) | Call::Process(_) => None,
    }
}

/// Returns the number of values in the JSON of a call, or 0 if it is short: a text has no more values than bytes.
fn call_values(call: &Call) -> usize {
    let json = call_json(call).filter(|json| json.len() > CALL_VALUES_MAX);
    json.map_or(0, |json| json_values(json.as_bytes()))
}

fn call_bytes(call: &Call) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let sum = |sizes: [usize; 4]| sizes.into_iter().fold(0, usize::saturating_add);
    match call {
        Call::Tool { name, arguments } => name.len().saturating_add(arguments.len()),
        Call::Primitive { pack, name, arguments } => sum([pack.len(), name.len(), arguments.len(), 0]),
        Call::Fetch { name, arguments, .. } => sum([name.connector.len(), name.fetch.len(), arguments.len(), 0]),
        Call::Llm { prompt, model, system, schema } => sum([prompt.len(), model.len(), text(system), text(schema)]),
        Call::Agent(call) => sum([call.prompt.len(), text(&call.context), text(&call.schema), text(&call.label)]),
        Call::Input { prompt } => prompt.len(),
        Call::Http(call) => {
            let headers: usize = call.headers.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum();
            sum([call.url.len(), headers, call.body.as_ref().map_or(0, Vec::len), 0])
        }
        Call::Disk => 0,
        Call::Table(call) => call.size_bytes(),
        Call::Process(call) => call.size_bytes(),
    }
}
