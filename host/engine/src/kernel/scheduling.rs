//! Resources that kernels share on a host: processor time, memory, threads, and room to be awake. They are counted here, handed out, and
//! taken back.

mod beats;
mod credit;
mod meter;
mod offhand;
mod recent;
mod resident;
mod sweep;
mod threads;
mod turns;

pub(crate) use beats::{Beat, Beats};
pub(crate) use credit::Credit;
pub use meter::MemoryBudget;
pub(crate) use meter::{
    CpuMeter, GuestClock, MemoryLimiter, MemoryPool, Spent, StopFlag, TABLE_ELEMENTS_MAX, WayIn, earlier, start_ticker,
    thread_time,
};
pub use offhand::answers_soon;
pub(crate) use offhand::{Job, panicked};
pub(crate) use recent::Unpacked;
pub(crate) use resident::Resident;
pub(crate) use sweep::{Room, Sweep};
pub(crate) use threads::{ThreadRoom, Threads};
pub(crate) use turns::{Claim, Turn, Turns};
pub use turns::{CpuShare, WEIGHT, WEIGHT_MAX};
