//! Starting a process, by this one or by its helper.

use std::{
    fs::File,
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::{
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::MissedTickBehavior,
};

use crate::helper::{self, Leash};

/// Interval between measurements of a process's memory.
const MEMORY_LOOK: Duration = Duration::from_millis(100);
/// Interval, in such measurements, between those of the processes it has started.
const LOOKS_AT_OTHERS: u64 = 10;

/// Recipe for starting a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// The program and its arguments. A program with a `/` in it is relative to `folder`; others are looked for on `PATH`.
    pub argv: Vec<String>,
    /// Working directory; that of this program when absent.
    pub folder: Option<PathBuf>,
    /// The variables that it gets.
    pub environment: Vec<(String, String)>,
    /// Names of variables that it gets of this program's own environment, where they are there.
    pub inherit: Vec<String>,
    /// True if further arguments may be given.
    pub is_open: bool,
    /// True if its standard error is discarded; else it is a pipe.
    pub is_quiet: bool,
    /// Bytes of memory that it may hold of its own, with what it starts in its process group. With more it is killed.
    pub memory_bytes: Option<u64>,
}

/// Standard input of a process.
#[derive(Debug)]
pub enum Input {
    /// A pipe.
    Pipe,
    /// A file.
    File(File),
}

/// A process that runs, with its ends of the pipes. Dropping it kills its process group.
#[derive(Debug)]
pub struct Process {
    /// Standard input, unless that is a file.
    pub stdin: Option<ChildStdin>,
    /// Standard output.
    pub stdout: Option<ChildStdout>,
    /// Standard error, unless that is discarded.
    pub stderr: Option<ChildStderr>,
    running: Running,
    ended: Option<Ended>,
}

/// End of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// True if it was killed because it held more memory than it may.
    pub(crate) is_beyond: bool,
}

#[derive(Debug)]
enum Running {
    Here(Box<Child>, Group, Option<u64>),
    /// Its helper kills it when the leash is dropped.
    There(Leash),
}

/// Starts what a recipe says, with further arguments if it takes any, and further variables.
///
/// # Errors
/// The system refuses, or the helper does.
///
/// # Cancel safety
/// Dropping the future leaves no process.
pub async fn start(
    recipe: &Recipe,
    arguments: &[String],
    variables: &[(String, String)],
    input: Input,
) -> io::Result<Process> {
    if let Some(helper) = helper::in_force() {
        let ((stdin, stdout, stderr), leash) = helper.start(recipe, arguments, variables, input).await?;
        return Ok(Process { stdin, stdout, stderr, running: Running::There(leash), ended: None });
    }
    let mut command = command(recipe, arguments, variables)?;
    command.stdin(match input {
        Input::Pipe => Stdio::piped(),
        Input::File(file) => Stdio::from(file),
    });
    command.stdout(Stdio::piped()).stderr(if recipe.is_quiet { Stdio::null() } else { Stdio::piped() });
    let mut child = command.spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let group = Group::of(&child);
    let running = Running::Here(Box::new(child), group, recipe.memory_bytes);
    Ok(Process { stdin, stdout, stderr, running, ended: None })
}

/// The command of a recipe, without its streams, in a process group of its own.
pub(crate) fn command(recipe: &Recipe, arguments: &[String], variables: &[(String, String)]) -> io::Result<Command> {
    let no_program = || io::Error::new(io::ErrorKind::InvalidInput, "no program");
    let (program, own_arguments) = recipe.argv.split_first().ok_or_else(no_program)?;
    let program = match &recipe.folder {
        Some(folder) if program.contains('/') => folder.join(program),
        _ => PathBuf::from(program),
    };
    let inherited = recipe.inherit.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let mut command = Command::new(program);
    command.args(own_arguments).args(arguments).env_clear().envs(inherited);
    for (name, value) in recipe.environment.iter().chain(variables) {
        command.env(name, value);
    }
    if let Some(folder) = &recipe.folder {
        command.current_dir(folder);
    }
    command.process_group(0).kill_on_drop(true);
    Ok(command)
}

impl Process {
    /// Waits until it ends, then ends what it left running, which would hold its pipes open.
    ///
    /// # Errors
    /// The system fails, or the helper is gone.
    ///
    /// # Cancel safety
    /// The process goes on; it can be waited for again.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        if let Some(ended) = self.ended {
            return Ok(ended.status);
        }
        let ended = match &mut self.running {
            Running::Here(child, group, memory_bytes) => group.ended(child, *memory_bytes).await?,
            Running::There(leash) => leash.ended().await?,
        };
        Ok(self.ended.insert(ended).status)
    }

    /// Returns true if it was killed because it held more memory than it may.
    pub fn held_too_much(&self) -> bool {
        self.ended.is_some_and(|ended| ended.is_beyond)
    }

    /// Returns its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = match &mut self.running {
                Running::Here(child, ..) => {
                    child.try_wait().ok().flatten().map(|status| Ended { status, is_beyond: false })
                }
                Running::There(leash) => leash.try_ended(),
            };
        }
        self.ended.map(|ended| ended.status)
    }
}

/// A process group; killed when dropped, once: the number may pass to others afterwards.
#[derive(Debug)]
pub(crate) struct Group(Option<Pid>);

impl Group {
    pub(crate) fn of(leader: &Child) -> Group {
        Group(leader.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    pub(crate) fn kill(&mut self) {
        if let Some(leader) = self.0.take() {
            // The group may be gone already.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    /// Waits until the leader has ended, and ends what it left running. With more memory than they may hold, all are killed.
    ///
    /// # Cancel safety
    /// All goes on; it can be waited for again.
    pub(crate) async fn ended(&mut self, leader: &mut Child, memory_bytes: Option<u64>) -> io::Result<Ended> {
        let beyond = beyond(self.0, memory_bytes);
        let (ended, is_beyond) = tokio::select! {
            ended = leader.wait() => (Some(ended?), false),
            () = beyond => (None, true),
        };
        self.kill();
        let status = match ended {
            Some(status) => status,
            None => leader.wait().await?,
        };
        Ok(Ended { status, is_beyond })
    }
}

/// Waits until the processes of a group hold more memory of their own than this; for ever, if nothing is said of that.
async fn beyond(leader: Option<Pid>, bytes: Option<u64>) {
    let (Some(leader), Some(bytes)) = (leader, bytes) else { return std::future::pending().await };
    let leader = leader.as_raw_nonzero().get();
    let mut looks = tokio::time::interval(MEMORY_LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for look in 0_u64.. {
        looks.tick().await;
        // What it has started is looked for less often: that takes all processes of the machine.
        let others = if look % LOOKS_AT_OTHERS == 0 { held_by_others(leader) } else { 0 };
        if held(leader).saturating_add(others) > bytes {
            return;
        }
    }
}

/// Bytes of memory that a process holds of its own. A limit of the kernel would count what is reserved and never touched.
fn held(process: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [_, resident, shared, ..] = pages[..] else { return 0 };
    resident.saturating_sub(shared).saturating_mul(u64::try_from(rustix::param::page_size()).unwrap_or(4096))
}

/// Bytes of memory that others of a process group hold.
fn held_by_others(leader: i32) -> u64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let others = numbers.filter(|number: &i32| *number != leader && group_of(*number) == Some(leader));
    others.map(held).fold(0, u64::saturating_add)
}

/// The process group of a process.
fn group_of(process: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may have anything in it: the state, the parent, the group.
    text.rsplit_once(") ")?.1.split(' ').nth(2)?.parse().ok()
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
