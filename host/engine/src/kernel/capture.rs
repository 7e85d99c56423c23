//! Host side of a kernel: captured into a snapshot, and restored from one.

use std::time::{Duration, Instant};

use cellar_core::{cell::Language, limits::TIMEOUT_GRANTED_MAX, sync::lock, time::wall_nanos};
use tokio::sync::mpsc;

use crate::{
    formats::snapshot::{CellState, KernelState},
    kernel::{
        border::WORLD_VERSION,
        calls::Memo,
        origins::Origins,
        scheduling::{CpuMeter, GuestClock},
        state::{Binding, CellBudget, CellOrigin, LiveCell, StoreData},
    },
};

mod memory;

pub(crate) use memory::Live;

/// Cells that can be live in a kernel: more than its sessions have commands and completions for.
const CELLS_MAX: usize = 4_096;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Captures what the host keeps for a kernel of the guest with this digest.
pub(crate) fn state_of(data: &StoreData, language: Language, guest: &str, wake_at: Option<Instant>) -> KernelState {
    let now = Instant::now();
    let cell = |(id, cell): (&u32, &LiveCell)| CellState {
        id: *id,
        time_left: nanos(cell.time_left(now)),
        output_left: cell.budget.output_left,
        fuel_left: cell.fuel_unspent(),
        depth: cell.origin.depth,
    };
    KernelState {
        language: language.code().to_owned(),
        guest: guest.to_owned(),
        world: WORLD_VERSION.to_owned(),
        wall_clock: wall_nanos(),
        monotonic_clock: data.clock.nanos(now),
        cpu_time: nanos(data.cpu.total()),
        memory_peak: data.limiter.peak_bytes,
        wake_at: wake_at.map(|wake_at| data.clock.nanos(wake_at)),
        next_call: data.binding.calls.next_number(),
        calls: data.binding.calls.unseen(),
        cells: data.cells.iter().map(cell).collect(),
        abandoned: Vec::new(),
        deepest: data.deepest,
        configuration: 0,
        files: data.binding.files.table(),
        fetches: lock(&data.binding.link.memo).all(),
        origins: lock(&data.binding.link.origins).as_ref().map(Origins::stamped).unwrap_or_default(),
        gated: lock(&data.binding.link.ended).gated(),
    }
}

/// Restores the host side of a kernel, with what its session grants now, but without what it had open.
///
/// Cells that awaited something go on without a reader: their runs are those of another life. Their calls fail as
/// cancelled. The guest's clock goes on by the time that has passed since.
pub(crate) fn data_of(state: &KernelState, mut binding: Binding) -> StoreData {
    binding.calls.go_on_from(state.next_call, &state.calls);
    *lock(&binding.link.memo) = Memo::of(&state.fetches);
    *lock(&binding.link.origins) = Some(Origins::of(&state.origins));
    lock(&binding.link.ended).close(&state.gated, state.language().unwrap_or(Language::Probe));
    let mut data = StoreData::new(binding);
    let elapsed = wall_nanos().saturating_sub(state.wall_clock);
    data.clock = GuestClock::showing(state.monotonic_clock.saturating_add(elapsed));
    data.cpu = CpuMeter::starting_at(Duration::from_nanos(state.cpu_time));
    data.limiter.peak_bytes = state.memory_peak;
    data.deepest = state.deepest;
    let cpu_before = data.cpu.total();
    for cell in state.cells.iter().take(CELLS_MAX) {
        if let Some(mut live) = orphan(cell, cpu_before) {
            // Whoever wrote the snapshot does not widen what the session may use now.
            let limits = &data.binding.limits;
            live.budget.output_left = live.budget.output_left.map(|left| left.min(limits.output_bytes));
            live.budget.fuel_left = limits.fuel.map(|limit| cell.fuel_left.unwrap_or(limit).min(limit));
            data.cells.insert(cell.id, live);
        }
    }
    data
}

/// A cell whose run is gone.
fn orphan(state: &CellState, cpu_before: Duration) -> Option<LiveCell> {
    // Open for as long as it takes to reserve the place of the last event.
    let (events, _unread) = mpsc::channel(1);
    let last = events.clone().try_reserve_owned().ok()?;
    let timeout = Duration::from_nanos(state.time_left).min(TIMEOUT_GRANTED_MAX);
    let CellState { output_left, fuel_left, depth, .. } = *state;
    Some(LiveCell {
        origin: CellOrigin { depth, ..CellOrigin::default() },
        budget: CellBudget { cpu_before, output_left, fuel_left, ..CellBudget::default() },
        ..LiveCell::unheard(events, last, timeout)
    })
}
