//! Starting a process, by this one or by its helper.

use std::{fs::File, io, path::PathBuf, process::ExitStatus, process::Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::helper::{self, Leash};

/// How a program is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// The program and its arguments. A program with a `/` in it is relative to `folder`; others are looked for on `PATH`.
    pub argv: Vec<String>,
    /// Where it runs; where this program does unless given.
    pub folder: Option<PathBuf>,
    /// The variables that it gets.
    pub environment: Vec<(String, String)>,
    /// Names of variables that it gets of this program's own environment, where they are there.
    pub inherit: Vec<String>,
    /// Whether further arguments may be given.
    pub is_open: bool,
    /// Whether what it writes on standard error is dropped; else it is a pipe.
    pub is_quiet: bool,
}

/// What a process reads.
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
    /// What it reads, unless that is a file.
    pub stdin: Option<ChildStdin>,
    /// What it writes.
    pub stdout: Option<ChildStdout>,
    /// What it complains of, unless that is dropped.
    pub stderr: Option<ChildStderr>,
    running: Running,
    ended: Option<ExitStatus>,
}

#[derive(Debug)]
enum Running {
    Here(Box<Child>, Group),
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
    Ok(Process { stdin, stdout, stderr, running: Running::Here(Box::new(child), group), ended: None })
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
            return Ok(ended);
        }
        let ended = match &mut self.running {
            Running::Here(child, group) => {
                let ended = child.wait().await?;
                group.kill();
                ended
            }
            Running::There(leash) => leash.ended().await?,
        };
        Ok(*self.ended.insert(ended))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = match &mut self.running {
                Running::Here(child, _) => child.try_wait().ok().flatten(),
                Running::There(leash) => leash.try_ended(),
            };
        }
        self.ended
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
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
