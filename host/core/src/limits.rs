//! Every bound, with its default, its maximum and its reason. Limits that callers set are declared in one table.

mod declared;

use std::{ops::RangeInclusive, time::Duration};

use schemars::SchemaGenerator;
use serde::{Deserialize, Serialize};

use declared::{Value, limits};

pub use declared::{Limit, LimitGrants, LimitsJson, Unit};

/// Shortest cell timeout.
pub const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Longest timeout that a cell may ask for.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Longest timeout that a session may give to cells that ask for none: of one at which a person sits, who can interrupt.
pub const TIMEOUT_GRANTED_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Longest time between the soft and the hard stop of a cell.
pub const GRACE_MAX: Duration = TIMEOUT_MAX;
/// Largest linear memory: all that a guest can address.
pub const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Cells of one run.
pub const CELLS_MAX: usize = 1_000;
/// Source of one cell, in bytes.
pub const CODE_BYTES_MAX: usize = 16 << 20;
/// Events that wait for the reader of a run; more suspend the guest.
pub const EVENTS_QUEUED_MAX: usize = 64;
/// An event with more bytes than this is a large one. What waits for a reader has 16 MiB of small events at most.
pub const EVENT_BYTES_LARGE: usize = 256 << 10;
/// An event with more bytes than this waits until no other does.
pub const EVENT_BYTES_HUGE: usize = 1 << 20;
/// Large events that wait for the reader of a run; a further one suspends the guest.
pub const LARGE_EVENTS_MAX: usize = 4;
/// Size in bytes from which an event counts as unread until its reader takes it; smaller ones have 2 MiB a run together.
pub const EVENT_BYTES_COUNTED: usize = 16 << 10;
/// Bytes of unread events of all runs of a process. Beyond it, each account without unread events may still have one event,
/// and each run without any may have one that is not huge; more suspend their guests. It is what a dozen readers of large
/// pictures need to be kept busy.
pub const UNREAD_BYTES_MAX: usize = 256 << 20;
/// Calls that a kernel may have begun and not seen answered, queued ones included.
pub const CALLS_QUEUED_MAX: usize = 4_096;
/// Bytes of the arguments of one bridge call, and of its answer.
pub const CALL_BYTES_MAX: usize = 64 << 20;
/// Values of the JSON of one bridge call, which are made into a tree to be checked: that takes up to 200 bytes for each.
pub const CALL_VALUES_MAX: usize = 500_000;
/// Values of the JSON of one request, line or message of a client, each of which may take 200 bytes where it is read.
pub const REQUEST_VALUES_MAX: usize = 1_000_000;
/// Values of the JSON of one display. Readers make trees of it.
pub const DISPLAY_VALUES_MAX: usize = 1_000_000;
/// Bytes of the rows of one fetch, in the columns that a guest takes.
pub const TABLE_BYTES_MAX: usize = CALLS_BYTES_MAX;
/// Bytes of the arguments of all calls of a kernel that were not answered yet.
pub const CALLS_BYTES_MAX: usize = 4 * CALL_BYTES_MAX;
/// Default time that a request for input waits for its answer, unless a session sets another.
pub const INPUT_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest time that a session may set.
pub const INPUT_IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Depth of agents that run cells in their parent's session.
pub const AGENT_DEPTH_MAX: u32 = 3;
/// Bytes the guest may hand to the host in one crossing, whatever its lists claim. Covers the largest output, and a table
/// with what else is displayed of it.
pub const CROSSING_BYTES_MAX: usize = 96 << 20;
/// Factor by which the table of a displayed value may be larger than the rest of the display. The host makes a file of it.
pub const TABLE_FACTOR: usize = 4;
/// Notes that a session remembers.
pub const EXPERIENCES_MAX: usize = 1_000;
/// Bytes of all that a session remembers: its notes and its summary.
pub const REMEMBERED_BYTES_MAX: usize = 1 << 20;
/// Cells that a look at what a session remembers tells of.
pub const MESSAGES_MAX: usize = 1_000;
/// Forks that have ended whose results a session keeps.
pub const FORK_RESULTS_MAX: usize = 16;
/// Bytes of the result of a fork, as JSON.
pub const FORK_RESULT_BYTES_MAX: usize = 1 << 20;
/// Processes, kernels that cells start, that run at the same time at each depth, over a session and all that were made of it
/// by its cells; more wait in line. Where fuel is counted it is one, so that none is given fuel that another one burns.
pub const PROCESSES_MAX: usize = 8;
/// Processes that a cell may start, those of its processes included.
pub const PROCESSES_OF_CELL_MAX: u32 = 1_000;
/// Bytes that a process may print, on both of its streams together. Escaped as JSON they are an answer of a call.
pub const PROCESS_OUTPUT_BYTES_MAX: usize = 16 << 20;
/// Pipes, queues, locks and shared values between the processes of a session.
pub const CHANNELS_MAX: usize = 4_096;
/// Bytes that wait in a pipe between processes: as much as a process may print, so that one who waits for its end before
/// reading what it printed waits in vain no sooner than before.
pub const CHANNEL_BYTES_MAX: usize = PROCESS_OUTPUT_BYTES_MAX;
/// Bytes that wait in all channels between the processes of a session.
pub const CHANNELS_BYTES_MAX: usize = 64 << 20;
/// Cells whose processes are counted: more than can be live in the kernels of a session.
pub const PROCESS_COUNTS_MAX: usize = 1_024;
/// Cells of a kernel that have started and not ended. Guests keep tables of them.
pub const CELLS_LIVE_MAX: usize = 64;
/// The same with the cells of agents, for which other cells wait: these do not wait for a place.
pub const CELLS_SERVING_MAX: usize = 2 * CELLS_LIVE_MAX;
/// Cells that wait until fewer than [`CELLS_LIVE_MAX`] of their kernel have started and not ended.
pub const CELLS_WAITING_MAX: usize = 256;
/// Threads of a kernel besides its first: 64 of programs, 32 of cells that wait in the middle of their code, and one for the next
/// entry.
pub const KERNEL_THREADS_MAX: u32 = 97;
/// Threads of all kernels of a host, of which each takes a stack of the pool: the address space is reserved beforehand, and
/// a guard page is made for each.
pub const HOST_THREADS_MAX: u32 = 1_024;
/// Threads for each kernel of a host that capacity is reserved for, up to [`HOST_THREADS_MAX`]: few kernels have any.
pub const THREADS_OF_KERNEL_MEAN: u32 = 4;
/// Time that an answer to a look into a session may take before it is stopped; its kernel is kept when it stops within
/// the session's grace. A shorter [`Limits::timeout`] holds for it as well.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Names that a look into a session tells of.
pub const NAMES_MAX: usize = 10_000;
/// Completions that are offered.
pub const COMPLETIONS_MAX: usize = 1_000;
/// Bytes of a name, a type or a preview; longer ones are cut.
pub const PREVIEW_BYTES_MAX: u64 = 1 << 10;
/// Cells whose source a session keeps.
pub const HISTORY_CELLS_MAX: usize = 10_000;
/// Bytes of those sources.
pub const HISTORY_BYTES_MAX: usize = 16 << 20;
/// Names that a seed may bind.
pub const SEED_BINDINGS_MAX: usize = 1_000;
/// Bytes of the bindings of a seed, and of its source.
pub const SEED_BYTES_MAX: usize = 16 << 20;
/// Bytes of sleeping kernels that a host keeps unpacked, of those that fell asleep last: unpacking is most of what waking one
/// with megabytes takes, and this is what some dozens of such hold.
pub const SLEEPERS_UNPACKED_BYTES_MAX: usize = 256 << 20;
/// Time that a request other than a cell waits for capacity, when all kernels of a host are in use. A cell waits as long as
/// it may run.
pub const ROOM_WAIT: Duration = Duration::from_secs(30);
/// Wait for capacity after which a cell's run is notified of it.
pub const ROOM_WAIT_TOLD: Duration = Duration::from_millis(250);
/// Bytes of what a session's code writes between cells that wait for its next cell.
pub const BACKGROUND_BYTES_MAX: usize = 64 << 10;
/// Bytes of what it displays then that wait for its next cell.
pub const BACKGROUND_DISPLAYS_BYTES_MAX: usize = 8 << 20;
/// Such texts that wait, and those that wait for each listener.
pub const BACKGROUND_HEARD_MAX: usize = 64;
/// Bytes of a recording. One that has become as large ends, and its session goes on.
pub const RECORDING_BYTES_MAX: u64 = 4 << 30;
/// One tick of the epoch clock: how soon an unpollable cell is noticed, and how long a busy kernel keeps its thread.
pub const EPOCH_TICK: Duration = Duration::from_millis(10);

/// Timeouts of cells, in milliseconds.
const TIMES: RangeInclusive<u64> = 100..=600_000;
const _: () = assert!(TIMEOUT_MIN.as_millis() == 100 && TIMEOUT_MAX.as_millis() == 600_000);

limits! {
    /// Time of a cell that asks for none
    /// Long enough for most work; a cell that hangs holds its caller no longer.
    timeout: Duration { timeout: Seconds, TIMES, Some(30), --timeout }
    /// The longest that a cell may ask for
    /// Longer work goes into several cells, which share names.
    timeout_max: Duration { timeout_max: Seconds, TIMES, Some(TIMEOUT_MAX.as_secs()) }
    /// Time between the soft and the hard stop
    /// The soft stop keeps the session's state, the hard one may not.
    grace: Duration { grace_ms: Milliseconds, 10..=60_000, Some(1_000) }
    /// Instructions of a cell
    /// Counting them, as wasmtime does, makes cells slower.
    fuel: Option<u64> { fuel: Count, 1..=u64::MAX, None, --fuel }
    /// Memory of a kernel
    /// It is linear memory, of which a guest can address 4 GiB.
    memory_bytes: u64 { memory_mib: Mib, 32..=MEMORY_BYTES_MAX >> 20, Some(512), --memory }
    /// Text of a cell
    /// A loop that prints must not fill its reader's memory or disk.
    output_bytes: u64 { output_mib: Mib, 1..=1_024, Some(64) }
    /// One displayed value
    /// Over all its representations; its table may be four times as large.
    display_bytes: usize { display_mib: Mib, 1..=64, Some(16) }
    /// Calls at the same time
    /// Further bridge calls of the session wait.
    calls_in_flight: usize { calls_in_flight: Count, 1..=1_024, Some(64) }
    /// Forks at the same time
    /// Over a session and all that its cells forked of it, each with kernels of its own; 0 turns them off.
    forks: usize { forks: Count, 0..=64, Some(8) }
    /// What the session may add to its folders
    /// The disk is shared with others.
    disk_bytes: u64 { disk_mib: Mib, 0..=1 << 20, Some(256) }
    /// Files and folders it may create
    /// Empty files take room as well.
    disk_files: u64 { disk_files: Count, 0..=10_000_000, Some(10_000) }
    /// Open files of a kernel
    /// Each is an open file of the host.
    descriptors: u32 { descriptors: Count, 8..=65_536, Some(256) }
}

impl Limits {
    /// Words on how a cell gets more than this time, to be added to the message of a timeout; empty if it cannot.
    pub fn more_time(&self, timeout: Duration) -> String {
        match timeout < self.timeout_max {
            true => format!("; a cell may ask for up to {} s (`timeout`)", self.timeout_max.as_secs_f64()),
            false => String::new(),
        }
    }

    /// Words on the memory that a kernel has, and how it gets more, to be added to the message of a cell that ran out of it.
    pub fn more_memory(&self) -> String {
        let most = match self.memory_bytes < MEMORY_BYTES_MAX {
            true => ", or have the limit raised (`memory_mib` under [limits] in cellar.toml, or --memory)",
            false => "",
        };
        format!("; the kernel may have {} MiB: free what is not needed{most}", self.memory_bytes >> 20)
    }

    /// The timeout of a cell that asks for `asked`: no more than [`Limits::timeout_max`].
    pub fn cell_timeout(&self, asked: Option<Duration>) -> Duration {
        asked.unwrap_or(self.timeout).min(self.timeout_max)
    }

    /// Checks that cells can have these times and kernels this memory, so that no computation with them overflows.
    ///
    /// # Errors
    /// Description of the violated bound.
    pub fn check(&self) -> Result<(), String> {
        if self.grace > GRACE_MAX {
            return Err(format!("the limit `grace` is {:?}; it may be {} s", self.grace, GRACE_MAX.as_secs()));
        }
        if self.memory_bytes > MEMORY_BYTES_MAX {
            let mib = |bytes: u64| bytes >> 20;
            let (asked, most) = (mib(self.memory_bytes), mib(MEMORY_BYTES_MAX));
            return Err(format!("the limit `memory_bytes` is {asked} MiB; it may be {most} MiB"));
        }
        let range = TIMEOUT_MIN..=TIMEOUT_GRANTED_MAX;
        for (name, timeout) in [("timeout", self.timeout), ("timeout_max", self.timeout_max)] {
            if !range.contains(&timeout) {
                let (least, most) = (TIMEOUT_MIN.as_secs_f64(), TIMEOUT_GRANTED_MAX.as_secs_f64());
                return Err(format!("the limit `{name}` is {timeout:?}; it may be {least} to {most} s"));
            }
        }
        Ok(())
    }

    /// Bytes of a table that is displayed, beside [`Limits::display_bytes`].
    pub fn table_bytes(&self) -> usize {
        self.display_bytes.saturating_mul(TABLE_FACTOR)
    }
}
