//! Confines this process to what it needs, so that who breaks out of a sandbox finds himself in another one.
//!
//! Two layers of the kernel are used. *landlock* bounds which files may be read and written, forbids every other program,
//! and, as far as the kernel has it, TCP, signals to other processes and their abstract sockets. *seccomp* leaves the system
//! calls that a host of sandboxes makes, and none else. Both hold for this process and whatever it starts, for good.
//!
//! [`available`] says what the kernel has, [`confine`] does it. It must be called while the process has one thread.

// Callers and strangers say how much there is: nothing here wraps or panics.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod files;
mod system_calls;

use std::path::PathBuf;

/// Needs of a process. After confinement it cannot reach anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files and folders that it reads, besides those that every program of the system may need. Missing ones are left out.
    pub read: Vec<PathBuf>,
    /// Folders in which it reads, writes, makes and removes.
    pub write: Vec<PathBuf>,
    /// True if it connects to other machines, or to servers of this one. It may serve its existing listeners in any case.
    pub connects: bool,
    /// True if it creates sockets in folders that it may write in, for other processes to connect to.
    pub local_sockets: bool,
}

/// Isolation features of the kernel and the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// The features of landlock, by the version of its interface: 1 bounds files, 4 TCP, 6 signals. `None` without it.
    /// Those later than 6 are of no use here.
    pub landlock: Option<u32>,
    /// True if system calls can be filtered.
    pub seccomp: bool,
    /// True if the processor has keys that protect memory, and the kernel uses them.
    pub protection_keys: bool,
}

/// Isolation in force for this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// The version of landlock's interface that bounds it, as in [`Available`].
    pub landlock: Option<u32>,
    /// True if its system calls are filtered.
    pub seccomp: bool,
}

/// Reason for which a process is not confined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IsolationError {
    /// The kernel has none, or has it turned off.
    #[error("the kernel has no {0}")]
    Missing(&'static str),
    /// The kernel refused.
    #[error("{layer} cannot be put in force: {reason}")]
    Refused {
        /// The layer.
        layer: &'static str,
        /// Error message of the layer.
        reason: String,
    },
}

/// Returns the isolation features of this machine.
pub fn available() -> Available {
    Available {
        landlock: files::version(),
        seccomp: system_calls::is_available(),
        protection_keys: has_protection_keys(),
    }
}

/// Returns true if the kernel lists `ospke`, as it does if it has turned protection keys on.
fn has_protection_keys() -> bool {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split_whitespace().any(|flag| flag == "ospke")
}

/// Confines this process to what it needs, for good. A layer that the kernel does not have is left out, unless
/// `is_required`.
///
/// # Errors
/// A layer is required and missing, or the kernel refuses it.
pub fn confine(needs: &Needs, is_required: bool) -> Result<InForce, IsolationError> {
    let Available { landlock, seccomp, .. } = available();
    let missing = [(landlock.is_none(), "landlock"), (!seccomp, "seccomp")];
    if let Some((_, layer)) = missing.into_iter().find(|(is_missing, _)| *is_missing && is_required) {
        return Err(IsolationError::Missing(layer));
    }
    if landlock.is_some() {
        files::restrict(needs)?;
    }
    if seccomp {
        system_calls::restrict(needs)?;
    }
    Ok(InForce { landlock, seccomp })
}
