//! Work on strangers' data in processes of their own, which can be killed.
//!
//! What draws a picture or reads a file format is no program of ours, and a few kilobytes can keep it busy for minutes or
//! have it ask for all memory. A process of its own has bounds of its own, which the system keeps, and ends with whoever
//! waits. It is this same program, started with the arguments that [`offer`] was given, then the name of the job; what it
//! does then begins with [`bound`].

#![forbid(unsafe_code)]

use std::{ffi::OsString, io, path::PathBuf, process::Stdio, sync::OnceLock};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use tokio::process::{Child, Command};

/// The program, and its arguments before the name of a job.
static PROGRAM: OnceLock<(PathBuf, Vec<OsString>)> = OnceLock::new();

/// Has work done in processes from now on: this program with these arguments. The first call counts.
pub fn offer(program: PathBuf, arguments: Vec<OsString>) {
    // A second one changes nothing, as is said.
    let _ = PROGRAM.set((program, arguments));
}

/// A process that will do a job, to be started by [`start`]: it is given so many seconds of processor time, and no environment.
/// Its standard input and output are pipes unless the caller says otherwise. `None` when no program was offered.
pub fn command(job: &str, seconds: u64) -> Option<Command> {
    let (program, arguments) = PROGRAM.get()?;
    let mut command = Command::new(program);
    command.args(arguments).arg(job).arg(seconds.to_string()).env_clear().kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    Some(command)
}

/// Starts it; `None` when the system refuses, which is logged. Dropping the child kills it.
pub fn start(command: &mut Command) -> Option<Child> {
    command.spawn().inspect_err(|error| tracing::warn!(%error, "no process to work in")).ok()
}

/// Bounds this process, which does a job: so many seconds of processor time, so many bytes of memory that it may write to,
/// no file, and no life without its parent.
///
/// # Errors
/// A bound cannot be set.
pub fn bound(seconds: u64, memory_bytes: u64) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    for (resource, bound) in
        [(Resource::Cpu, seconds), (Resource::Data, memory_bytes), (Resource::Fsize, 0), (Resource::Core, 0)]
    {
        // No more than there was, which nobody may raise.
        let most = getrlimit(resource).maximum.map_or(bound, |most| most.min(bound));
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    Ok(())
}
