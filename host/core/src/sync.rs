//! Locks that a panic does not poison, and how many threads can work at once.

use std::{
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
};

/// Returns the processor cores that this process may use, as of the first call: a query reads files of its control group.
pub fn cores() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));
    *CORES
}

/// Locks a mutex whose data stays valid whatever a panicking holder did.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
