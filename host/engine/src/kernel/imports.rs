//! The answers to the guest's imports; those about calls and about files are in files of their own.
//!
//! Everything the guest says is checked here: it may name cells it does not have, print for ever, or begin calls
//! without end.

use std::time::Instant;

use cellar_core::{
    event::{EventKind, HostStatus, Scalar},
    limits::{DISPLAY_VALUES_MAX, Limits},
    mime::{MimeBundle, MimeData},
    text::prefix,
    time::wall_nanos,
};
use cellar_results::{
    pictures::{self, Fit, Fitted, Smaller},
    tables,
};
use cellar_tables::FRAME_TYPE;
use rand::TryRngCore;
use serde_json::{Map, Value};
use wasmtime::{StoreContextMut, Trap, component::Linker};

use crate::kernel::{
    border::{
        WORLD_PACKAGE, WORLD_VERSION, control, mime_bundle, output,
        types::{self, StopReason},
    },
    origins::{NAME_BYTES_MAX, REPORTED_MAX, Reported},
    record::Import,
    state::{StoreData, word},
};

mod calls;
mod files;

/// Random bytes the guest may ask for at once.
const RANDOM_BYTES_MAX: u32 = 64 << 10;
/// Fields of a status event.
const STATUS_FIELDS_MAX: usize = 64;
/// The type of a display that is a status event: a JSON object with the word `op` and scalars beside it.
const STATUS_TYPE: &str = "application/x-omp-status";
/// Bytes that names of types and of a display may have in one whose images are made smaller.
const NAMES_BYTES: usize = 1 << 10;
/// Bytes of such an object.
const STATUS_BYTES_MAX: usize = 64 << 10;

/// Part of a display that is left out because it is too large.
struct LeftOut {
    what: &'static str,
    size: usize,
    of: &'static str,
    limit: usize,
}

/// Holds a display against the limits, and takes out of it a table that goes past them: that is left out alone.
fn within(data: &mut MimeBundle, named: usize, limits: &Limits) -> Result<(), LeftOut> {
    let table = data.get(FRAME_TYPE).map_or(0, MimeData::len);
    let (size, limit) = (data.size_bytes().saturating_sub(table).saturating_add(named), limits.display_bytes);
    if size > limit {
        return Err(LeftOut { what: "display", size, of: "bytes", limit });
    }
    let values = data.json_values();
    if values > DISPLAY_VALUES_MAX {
        return Err(LeftOut { what: "display", size: values, of: "values of JSON", limit: DISPLAY_VALUES_MAX });
    }
    let limit = limits.table_bytes();
    if table > limit {
        tables::take(data);
        return Err(LeftOut { what: "table", size: table, of: "bytes", limit });
    }
    Ok(())
}

/// A status event: what was done, and its fields.
type Status = (String, Vec<(String, Scalar)>);

/// Returns the status event that a display is, if it is one; `Err` says why it is not valid.
fn status_of(data: &MimeBundle) -> Result<Option<Status>, String> {
    let text = match data.get(STATUS_TYPE) {
        None => return Ok(None),
        Some(MimeData::Text(text)) if text.len() <= STATUS_BYTES_MAX => text,
        Some(told) => return Err(format!("{} bytes, at most {STATUS_BYTES_MAX} of text are allowed", told.len())),
    };
    let fields: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Some(Value::String(op)) = fields.get("op") else { return Err("expected a text under `op`".to_owned()) };
    let scalar = |value: &Value| match value {
        Value::Bool(value) => Scalar::Boolean(*value),
        Value::String(text) => Scalar::Text(word(text)),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Scalar::Integer(whole),
            None => Scalar::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        other => Scalar::Text(word(&other.to_string())),
    };
    let others = fields.iter().filter(|(name, _)| *name != "op").take(STATUS_FIELDS_MAX);
    Ok(Some((word(op), others.map(|(name, value)| (word(name), scalar(value))).collect())))
}

/// Takes out of a display the images that are none by their first bytes, and gives their types.
fn take_false_images(data: &mut MimeBundle) -> Vec<String> {
    let is_false = |mime_type: &str, data: &MimeData| {
        let bytes = match data {
            MimeData::Text(text) => text.as_bytes(),
            MimeData::Binary(bytes) => bytes,
        };
        // Portable Network Graphics, 5.2; JPEG, B.1.1.3; GIF89a, 17; the WebP container, "WebP File Header".
        match mime_type {
            "image/png" => !bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
            "image/jpeg" => !bytes.starts_with(b"\xff\xd8\xff"),
            "image/gif" => !bytes.starts_with(b"GIF87a") && !bytes.starts_with(b"GIF89a"),
            "image/webp" => !bytes.starts_with(b"RIFF") || bytes.get(8..12) != Some(b"WEBP"),
            _ => false,
        }
    };
    let found = data.0.extract_if(.., |(mime_type, data)| is_false(mime_type, data));
    found.map(|(mime_type, _)| mime_type).collect()
}

/// Has images that make a display too large made smaller, on another thread. Returns what was done to each. Those that cannot be read
/// stay.
async fn with_smaller_images(mut data: MimeBundle, limit: usize) -> (MimeBundle, Vec<String>) {
    let is_image =
        |(mime_type, data): &(String, MimeData)| mime_type.starts_with("image/") && matches!(data, MimeData::Binary(_));
    let images = data.0.iter().filter(|each| is_image(each)).map(|(_, data)| data.len());
    let (count, bytes) =
        images.fold((0_usize, 0_usize), |(count, sum), bytes| (count.saturating_add(1), sum.saturating_add(bytes)));
    let table = data.get(FRAME_TYPE).map_or(0, MimeData::len);
    let all = data.size_bytes().saturating_sub(table);
    if all <= limit || count == 0 {
        return (data, Vec::new());
    }
    // Names and the like take some of it.
    let room = limit.saturating_sub(all.saturating_sub(bytes)).saturating_sub(NAMES_BYTES);
    let room = room.checked_div(count).unwrap_or(room);
    let fit = Fit { bytes: room, side: u32::MAX, pixels: u64::MAX };
    let smaller = tokio::task::spawn_blocking(move || {
        let mut notes = Vec::new();
        for (mime_type, image) in data.0.iter_mut() {
            if let MimeData::Binary(bytes) = image
                && mime_type.starts_with("image/")
                && let Fitted::Smaller(Smaller { mime_type: kind, bytes: small, from, to }) = pictures::fit(bytes, fit)
            {
                let (width, height) = to;
                notes.push(format!(
                    "{mime_type} of {} bytes was made smaller: {width}x{height} of {}x{}\n",
                    bytes.len(),
                    from.0,
                    from.1
                ));
                (*mime_type, *image) = (kind.to_owned(), MimeData::Binary(small));
            }
        }
        (data, notes)
    });
    // It fails when the runtime ends.
    smaller.await.unwrap_or_default()
}

impl output::Host for StoreData {
    async fn write(&mut self, cell: u32, to: output::StreamName, mut text: String) -> wasmtime::Result<()> {
        self.note_running(cell);
        let Some(live) = self.route(cell).and_then(|id| self.cells.get_mut(&id)) else {
            self.write_between(cell, matches!(to, output::StreamName::Stderr), &text);
            return Ok(());
        };
        let Some(left) = live.budget.output_left else { return Ok(()) };
        let size = text.len() as u64;
        live.budget.output_left = left.checked_sub(size);
        if live.budget.output_left.is_none() {
            text.truncate(prefix(&text, left).len());
        }
        self.print(cell, matches!(to, output::StreamName::Stderr), &text).await;
        Ok(())
    }

    async fn display(&mut self, cell: u32, display: output::DisplayData) -> wasmtime::Result<()> {
        let mut data = mime_bundle(display.data);
        let count = data.0.len();
        match status_of(&data) {
            Ok(Some((op, fields))) => {
                let op = HostStatus::of_cell(op);
                self.send(cell, |index| EventKind::Status { index, op, fields }).await;
                return Ok(());
            }
            Err(problem) => {
                data.0.retain(|(mime_type, _)| mime_type != STATUS_TYPE);
                let text = format!("{STATUS_TYPE} was left out of a display: {problem}\n");
                output::Host::write(self, cell, output::StreamName::Stderr, text).await?;
            }
            Ok(None) => {}
        }
        for mime_type in take_false_images(&mut data) {
            let text = format!("{mime_type} was left out of a display: its bytes are those of no such image\n");
            output::Host::write(self, cell, output::StreamName::Stderr, text).await?;
        }
        // A display of nothing keeps a place for later ones.
        if data.0.is_empty() && count > 0 {
            return Ok(());
        }
        let named = display.display_id.as_ref().map_or(0, String::len);
        let notes;
        (data, notes) = with_smaller_images(data, self.binding.limits.display_bytes).await;
        for note in notes {
            output::Host::write(self, cell, output::StreamName::Stderr, note).await?;
        }
        let limits = &self.binding.limits;
        if let Err(LeftOut { what, size, of, limit }) = within(&mut data, named, limits) {
            let text = format!("a {what} of {size} {of} was left out; at most {limit} are allowed\n");
            output::Host::write(self, cell, output::StreamName::Stderr, text).await?;
            if what == "display" {
                return Ok(());
            }
        }
        let (display_id, is_value) = (display.display_id, display.is_value);
        let event = |index| match (display.update, display_id) {
            (true, Some(display_id)) => EventKind::UpdateDisplay { index, data, display_id },
            (_, display_id) => EventKind::Display { index, data, display_id, is_value },
        };
        if self.is_between() {
            self.binding.backlog.display(cell, event(0));
            return Ok(());
        }
        if self.is_late(cell) && !display.update {
            self.print(cell, false, "").await;
        }
        self.send(cell, event).await;
        Ok(())
    }

    async fn clear(&mut self, cell: u32, wait: bool) -> wasmtime::Result<()> {
        // What another cell shows is not its to clear.
        if !self.is_late(cell) {
            self.send(cell, |index| EventKind::ClearOutput { index, wait }).await;
        }
        Ok(())
    }

    async fn status(&mut self, cell: u32, op: String, fields: Vec<(String, types::Scalar)>) -> wasmtime::Result<()> {
        let value = |value| match value {
            types::Scalar::Text(text) => Scalar::Text(word(&text)),
            other => other.into(),
        };
        let fields = fields.into_iter().take(STATUS_FIELDS_MAX);
        let fields = fields.map(|(name, scalar)| (word(&name), value(scalar))).collect();
        let op = HostStatus::of_cell(word(&op));
        self.send(cell, |index| EventKind::Status { index, op, fields }).await;
        Ok(())
    }

    async fn bound(&mut self, cell: u32, names: output::BoundNames) -> wasmtime::Result<()> {
        let output::BoundNames { bound, deleted, read, left_out } = names;
        let (bound, deleted, read) = (reported(bound), reported(deleted), reported(read));
        self.note_bound(cell, Reported { bound, deleted, read, left_out }).await;
        Ok(())
    }
}

/// Returns the names that the guest reports, within the bounds.
fn reported(names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| name.len() <= NAME_BYTES_MAX).take(REPORTED_MAX).collect()
}

impl StoreData {
    /// Waits for a moment of the guest's clock, or until `cell` must stop.
    async fn wait_until(&mut self, cell: u32, until: u64) {
        let wake = self.binding.link.resident.wake.clone();
        let until = self.clock.instant(until);
        loop {
            self.settle();
            self.end_overdue();
            if until.is_some_and(|until| Instant::now() >= until) || self.stop_reason(cell, None).is_some() {
                return;
            }
            let look_at = self.look_at(cell);
            let next = until.map_or(look_at, |until| until.min(look_at));
            tokio::select! {
                () = tokio::time::sleep_until(next.into()) => {}
                () = wake.notified() => {}
            }
        }
    }

    /// Lets others have their turn when a guest gives way, at a tick or at a safepoint.
    ///
    /// # Errors
    /// It has ignored a soft stop for the whole grace.
    pub(crate) fn let_others_go(&mut self) -> wasmtime::Result<impl Future<Output = ()> + Send + use<>> {
        if self.must_trap() {
            return Err(Trap::Interrupt.into());
        }
        self.cpu.yields();
        // tokio's own yield, because it lets timers and sockets have their turn as well; a task that merely wakes itself
        // keeps them waiting for 61 ticks.
        Ok(tokio::task::yield_now())
    }

    /// Answers `should-stop`; `fuel_left` is that of the store when it counts fuel.
    fn poll_stop(&mut self, cell: u32, fuel_left: Option<u64>) -> wasmtime::Result<Option<StopReason>> {
        self.note_running(cell);
        self.settle();
        self.flush_old_text();
        self.taped(Import::ShouldStop, cell, |data| {
            let reason = data.stop_reason(cell, fuel_left);
            data.note_stop(cell, reason);
            data.note_told(cell, reason);
            Ok(reason)
        })
    }
}

/// Replaces `should-stop` in a linker for the fuel flavour, where the answer depends on the store's fuel: a cell that
/// is told in time that its fuel is spent keeps its state.
pub(crate) fn link_fuel(linker: &mut Linker<StoreData>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let control = format!("{WORLD_PACKAGE}control@{WORLD_VERSION}");
    linker.instance(&control)?.func_wrap(
        "should-stop",
        |mut context: StoreContextMut<'_, StoreData>, (cell,): (u32,)| {
            let mut left = context.get_fuel()?;
            let data = context.data_mut();
            if data.payer.0 != cell && data.cells.contains_key(&cell) && !data.is_looking() {
                data.charge(left);
                left = data.begin_to_pay(cell);
                context.set_fuel(left)?;
            }
            Ok((context.data_mut().poll_stop(cell, Some(left))?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

impl control::Host for StoreData {
    fn should_stop(&mut self, cell: u32) -> wasmtime::Result<Option<StopReason>> {
        self.poll_stop(cell, None)
    }

    fn wall_clock(&mut self) -> wasmtime::Result<u64> {
        self.taped(Import::WallClock, (), |_| Ok(wall_nanos()))
    }

    fn monotonic_clock(&mut self) -> wasmtime::Result<u64> {
        self.taped(Import::MonotonicClock, (), |data| Ok(data.clock.nanos(Instant::now())))
    }

    fn cpu_clock(&mut self) -> wasmtime::Result<u64> {
        self.taped(Import::CpuClock, (), |data| Ok(data.cpu.now()))
    }

    async fn sleep_until(&mut self, cell: u32, until: u64) -> wasmtime::Result<()> {
        self.note_running(cell);
        self.flush_text().await;
        if !self.binding.tape.is_replaying() {
            self.wait_until(cell, until).await;
        }
        self.taped(Import::SleepUntil, (cell, until), |_| Ok(()))
    }

    async fn wait(&mut self, cell: u32, until: u64) -> wasmtime::Result<Vec<types::Completion>> {
        self.note_running(cell);
        self.flush_text().await;
        let is_live = !self.binding.tape.is_replaying();
        let ended = if is_live { self.wait_for_calls(cell, until).await } else { Vec::new() };
        self.taped(Import::Wait, (cell, until), |_| Ok(ended))
    }

    /// Does at a safepoint what is done at the tick of an epoch.
    async fn give_way(&mut self) -> wasmtime::Result<()> {
        if let Some(beat) = &self.beat {
            beat.given();
        }
        self.let_others_go()?.await;
        Ok(())
    }

    fn threads(&mut self, wanted: Option<u32>) -> wasmtime::Result<u32> {
        self.taped(Import::Threads, wanted, |data| {
            let threads = &mut data.binding.threads;
            Ok(wanted.map_or(threads.count(), |wanted| threads.reserve(wanted)))
        })
    }

    fn random(&mut self, length: u32) -> wasmtime::Result<Vec<u8>> {
        self.taped(Import::Random, length, |_| {
            let mut bytes = vec![0; length.min(RANDOM_BYTES_MAX) as usize];
            rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(wasmtime::Error::new)?;
            Ok(bytes)
        })
    }

    fn log(&mut self, message: String) -> wasmtime::Result<()> {
        if self.may_log() {
            tracing::info!(target: "cellar::guest", "{}", prefix(&message, 8 << 10));
        }
        Ok(())
    }
}

impl types::Host for StoreData {}
