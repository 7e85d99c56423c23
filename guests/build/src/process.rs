//! Running other programs: silent when they succeed, with the end of what they said when they fail.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Lines of a failed program's output that are shown.
const LINES_SHOWN: usize = 40;

/// Runs `command` to its end, with its output in the file `log`.
///
/// # Errors
/// When it cannot be started or does not exit with success; the message carries the last lines of the log.
pub(crate) fn run(command: &mut Command, log: &Path) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let file = File::create(log).with_context(|| format!("could not create `{}`", log.display()))?;
    command.stdin(std::process::Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = wait(command, |_| Ok(())).with_context(|| format!("could not run `{program}`"))?;
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
    bail!("`{program}` failed ({status}); the end of `{}`:\n{tail}", log.display())
}

/// Programs that run, for [`stop_all`].
#[derive(Debug, Default)]
struct Running {
    is_stopped: bool,
    processes: Vec<Pid>,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { is_stopped: false, processes: Vec::new() });

/// Asks all programs that run to end, and lets none begin: the build has failed elsewhere.
pub(crate) fn stop_all() {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.is_stopped = true;
    for process in &running.processes {
        let _ = kill_process(*process, Signal::TERM);
    }
}

/// Starts a program, has `read` take what it writes, and waits for its end.
///
/// # Errors
/// It cannot be started, or reading fails. All were stopped.
pub(crate) fn wait(command: &mut Command, read: impl FnOnce(&mut Child) -> Result<()>) -> Result<ExitStatus> {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if running.is_stopped {
        bail!("stopped: another step has failed");
    }
    let mut child = command.spawn()?;
    let process = Pid::from_child(&child);
    running.processes.push(process);
    drop(running);
    let was_read = read(&mut child);
    let status = child.wait();
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner).processes.retain(|other| *other != process);
    was_read?;
    Ok(status?)
}

/// Programs of [`run_all`] that run at once: a build has two cores.
const AT_ONCE: usize = 2;

/// A program to run, and where its output goes.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) command: Command,
    pub(crate) log: PathBuf,
}

/// Runs several programs, in any order. None is started after one has failed.
///
/// # Errors
/// That of [`run`] of one that failed.
pub(crate) fn run_all(jobs: Vec<Job>) -> Result<()> {
    let left = Mutex::new(jobs.into_iter());
    let work = || {
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(mut job) = next else { return Ok(()) };
            if let Err(error) = run(&mut job.command, &job.log) {
                left.lock().unwrap_or_else(PoisonError::into_inner).by_ref().for_each(drop);
                return Err(error);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers = [(); AT_ONCE].map(|()| scope.spawn(work));
        let ends = workers.map(|worker| worker.join().unwrap_or_else(|_| bail!("a thread of the builder panicked")));
        ends.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(folder: &Path, number: usize, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(folder);
        Job { command, log: folder.join(format!("{number}.log")) }
    }

    #[test]
    fn all_programs_are_run_and_a_failure_is_told_with_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = |failing: &str| {
            let mut jobs: Vec<Job> = (0..5).map(|n| job(folder.path(), n, &format!("touch {n}.made"))).collect();
            jobs.push(job(folder.path(), 5, failing));
            jobs
        };
        run_all(jobs("true")).unwrap();
        assert!((0..5).all(|n| folder.path().join(format!("{n}.made")).exists()));
        let error = run_all(jobs("echo no such thing; exit 3")).unwrap_err().to_string();
        assert!(error.contains("no such thing"), "{error}");
    }
}
