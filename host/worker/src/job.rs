//! Jobs: work that this same program does in a process of its own.

use std::{ffi::OsString, io, path::PathBuf, sync::OnceLock};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

use crate::process::{Input, Process, Recipe, start};

/// Environment variables of this program that jobs get: they tell where fonts are.
const ENVIRONMENT: [&str; 5] = ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "FONTCONFIG_FILE", "FONTCONFIG_PATH"];

/// The program, and its arguments before the name of a job.
static PROGRAM: OnceLock<(PathBuf, Vec<OsString>)> = OnceLock::new();

/// Offers a program for jobs, which run in processes from now on: this program with these arguments, then the name of the
/// job. Only the first call counts.
pub fn offer(program: PathBuf, arguments: Vec<OsString>) {
    // A second one changes nothing, as is said.
    let _ = PROGRAM.set((program, arguments));
}

/// Returns the offered program and its arguments.
pub(crate) fn program() -> Option<&'static (PathBuf, Vec<OsString>)> {
    PROGRAM.get()
}

/// Returns the recipe of jobs; `None` when no program was offered, or one whose path or arguments are not UTF-8.
pub fn job_recipe() -> Option<Recipe> {
    let (program, arguments) = PROGRAM.get()?;
    let argv = std::iter::once(program.as_os_str()).chain(arguments.iter().map(OsString::as_os_str));
    Some(Recipe {
        argv: argv.map(|text| text.to_str().map(str::to_owned)).collect::<Option<_>>()?,
        folder: None,
        environment: Vec::new(),
        inherit: ENVIRONMENT.map(str::to_owned).to_vec(),
        is_open: true,
        is_quiet: true,
        memory_bytes: None,
    })
}

/// Starts a job with `seconds` of processor time, and with no more of the environment than where fonts are. `None` when no
/// program was offered, or when the system refuses, which is logged. Dropping the process kills it.
///
/// # Cancel safety
/// Dropping the future leaves no process.
pub async fn start_job(job: &str, seconds: u64, request: Option<String>, input: Input) -> Option<Process> {
    let recipe = job_recipe()?;
    let arguments: Vec<String> = [job.to_owned(), seconds.to_string()].into_iter().chain(request).collect();
    let started = start(&recipe, &arguments, &[], input).await;
    started.inspect_err(|error| tracing::warn!(%error, "no process to work in")).ok()
}

/// Limits this process, which does a job, to `seconds` of processor time, to `memory_bytes` that it may write to, to no file,
/// and to the life of its parent.
///
/// # Errors
/// A limit cannot be set.
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
