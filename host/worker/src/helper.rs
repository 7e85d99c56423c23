//! The helper: a process that starts others for one that may not.
//!
//! ```text
//! server ── control ──► helper     descriptors of a new process: its leash, standard input, output and error
//!        ◄── leash ───►            on the leash: an order (a length, then JSON); then that it was started; then how it ended
//! ```
//!
//! A leash that closes ends its process. The helper ends with the control, and whatever runs then with it. It was told at
//! the beginning what it may run: an order with anything else is refused.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::ExitStatusExt},
    },
    process::{ExitStatus, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStderr, ChildStdin, ChildStdout},
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::job;
use crate::process::{Ended, Group, Input, Recipe, command};

/// The name of the job that a helper does.
pub const HELP: &str = "help-start";
/// Bytes of an order, or of what may be run.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Descriptors that come with an order: leash, standard input, output and error.
const DESCRIPTORS: usize = 4;
/// Prefix of the variables that an order adds.
const VARIABLE_PREFIX: &str = "CELLAR_";
/// Orders that wait to be executed.
const ORDERS_WAITING_MAX: usize = 64;

/// Messages of the helper on a leash: a letter, and a number.
const STARTED: u8 = b's';
const REFUSED: u8 = b'r';
const FAILED: u8 = b'f';
const ENDED: u8 = b'e';
const ENDED_BEYOND: u8 = b'm';
const WORD_BYTES: usize = 5;

static HELPER: OnceLock<Helper> = OnceLock::new();

/// Helper process, which starts processes for this one.
#[derive(Debug)]
pub(crate) struct Helper {
    control: Mutex<UnixStream>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    recipe: Recipe,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

/// Process that the helper runs.
#[derive(Debug)]
pub(crate) struct Leash {
    stream: tokio::net::UnixStream,
    /// Bytes of the next message that were read so far.
    word: Vec<u8>,
}

type Streams = (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>);

/// Starts a helper that may run these recipes, and has it start all processes from now on. It is the program that was
/// [offered](crate::offer), which must do the job [`HELP`]. Blocks.
///
/// # Errors
/// No program was offered, it cannot be started, or there is a helper.
pub fn use_helper(recipes: &[Recipe]) -> io::Result<()> {
    let (program, arguments) = job::program().ok_or_else(|| io::Error::other("no program was offered"))?;
    let (control, theirs) = UnixStream::pair()?;
    let mut command = std::process::Command::new(program);
    command.args(arguments).args([HELP, "0"]).stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
    command.spawn()?;
    let mut written = &control;
    let recipes = serde_json::to_vec(recipes)?;
    written.write_all(&length(&recipes)?)?;
    written.write_all(&recipes)?;
    let helper = Helper { control: Mutex::new(control) };
    HELPER.set(helper).map_err(|_| io::Error::other("there is a helper already"))
}

pub(crate) fn in_force() -> Option<&'static Helper> {
    HELPER.get()
}

fn length(message: &[u8]) -> io::Result<[u8; 4]> {
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= MESSAGE_BYTES_MAX);
    Ok(length.ok_or_else(|| io::Error::other("too long"))?.to_le_bytes())
}

/// Converts an error of the connection to the helper to one that says that the helper is gone. If a helper ends between an
/// order and its answer, the first of these shows it: descriptors that are not received, an order that is not read, or an
/// answer that does not come.
fn gone(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), "the helper that starts processes is gone")
}

impl Helper {
    pub(crate) async fn start(
        &self,
        recipe: &Recipe,
        arguments: &[String],
        variables: &[(String, String)],
        input: Input,
    ) -> io::Result<(Streams, Leash)> {
        let (mine, theirs) = UnixStream::pair()?;
        let (stdin, their_stdin) = match input {
            Input::Pipe => {
                let (reader, writer) = io::pipe()?;
                (Some(OwnedFd::from(writer)), OwnedFd::from(reader))
            }
            Input::File(file) => (None, OwnedFd::from(file)),
        };
        let ((stdout, their_stdout), (stderr, their_stderr)) = (io::pipe()?, io::pipe()?);
        let theirs = [OwnedFd::from(theirs), their_stdin, their_stdout.into(), their_stderr.into()];
        self.send(&theirs)?;
        drop(theirs);
        mine.set_nonblocking(true)?;
        let mut leash = Leash { stream: tokio::net::UnixStream::from_std(mine)?, word: Vec::new() };
        let order = Order { recipe: recipe.clone(), arguments: arguments.to_vec(), variables: variables.to_vec() };
        let order = serde_json::to_vec(&order)?;
        leash.stream.write_all(&length(&order)?).await.map_err(gone)?;
        leash.stream.write_all(&order).await.map_err(gone)?;
        match leash.next().await? {
            (STARTED, _) => {}
            (FAILED, code) => return Err(io::Error::from_raw_os_error(code)),
            _ => return Err(io::Error::other("the helper was not told that this may be run")),
        }
        let stdin = stdin.map(|end| ChildStdin::from_std(end.into())).transpose()?;
        let stderr =
            Some(stderr).filter(|_| !recipe.is_quiet).map(|end| ChildStderr::from_std(OwnedFd::from(end).into()));
        let streams = (stdin, Some(ChildStdout::from_std(OwnedFd::from(stdout).into())?), stderr.transpose()?);
        Ok((streams, leash))
    }

    /// Sends descriptors; a byte goes with them, so that there is something to send.
    fn send(&self, descriptors: &[OwnedFd; DESCRIPTORS]) -> io::Result<()> {
        let borrowed = descriptors.each_ref().map(AsFd::as_fd);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(io::Error::other("no room for descriptors"));
        }
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = sendmsg(&*control, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL);
        sent.map(drop).map_err(|error| gone(error.into()))
    }
}

impl Leash {
    /// The next word of the helper.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    async fn next(&mut self) -> io::Result<(u8, i32)> {
        while self.word.len() < WORD_BYTES {
            let mut piece = [0; WORD_BYTES];
            let missing = WORD_BYTES.saturating_sub(self.word.len());
            match self.stream.read(&mut piece[..missing]).await.map_err(gone)? {
                0 => return Err(gone(io::ErrorKind::UnexpectedEof.into())),
                count => self.word.extend_from_slice(&piece[..count]),
            }
        }
        Ok(self.take())
    }

    /// The word that was read whole.
    fn take(&mut self) -> (u8, i32) {
        let mut number = [0; 4];
        number.copy_from_slice(&self.word[1..WORD_BYTES]);
        let letter = self.word[0];
        self.word.clear();
        (letter, i32::from_le_bytes(number))
    }

    pub(crate) async fn ended(&mut self) -> io::Result<Ended> {
        Ok(Leash::told(self.next().await?))
    }

    fn told((letter, status): (u8, i32)) -> Ended {
        Ended { status: ExitStatus::from_raw(status), is_beyond: letter == ENDED_BEYOND }
    }

    pub(crate) fn try_ended(&mut self) -> Option<Ended> {
        let mut piece = [0; WORD_BYTES];
        let missing = WORD_BYTES.saturating_sub(self.word.len());
        let count = self.stream.try_read(&mut piece[..missing]).ok()?;
        self.word.extend_from_slice(&piece[..count]);
        (self.word.len() == WORD_BYTES).then(|| Leash::told(self.take()))
    }
}

/// Runs the helper: starts processes on request until the requesting process is gone. The control is its standard input.
///
/// # Errors
/// The control fails before any request, or the system gives no runtime.
pub fn help() -> io::Result<()> {
    let mut control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut bytes = [0; 4];
    control.read_exact(&mut bytes)?;
    let count = usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX).min(MESSAGE_BYTES_MAX);
    let mut recipes = vec![0; count];
    control.read_exact(&mut recipes)?;
    let recipes: Vec<Recipe> = serde_json::from_slice(&recipes)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        // Whoever stops the server lets it end first what runs.
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut ignored = signal(kind)?;
            tokio::spawn(async move { while ignored.recv().await.is_some() {} });
        }
        let (sender, mut orders) = mpsc::channel(ORDERS_WAITING_MAX);
        std::thread::spawn(move || {
            while let Some(descriptors) = receive(&control) {
                if sender.blocking_send(descriptors).is_err() {
                    return;
                }
            }
        });
        let recipes: &'static [Recipe] = recipes.leak();
        while let Some(descriptors) = orders.recv().await {
            tokio::spawn(async move {
                // Whoever is gone hears nothing.
                let _ = follow(recipes, descriptors).await;
            });
        }
        Ok(())
    })
}

/// The descriptors of the next order; `None` at the end.
fn receive(control: &UnixStream) -> Option<[OwnedFd; DESCRIPTORS]> {
    loop {
        let (mut space, mut byte) = ([MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))], [0]);
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        match received {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(message) if message.bytes > 0 => {}
            _ => return None,
        }
        let rights = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        if let Ok(descriptors) = rights.flatten().collect::<Vec<_>>().try_into() {
            return Some(descriptors);
        }
    }
}

/// Executes one order, to the end of its process.
async fn follow(recipes: &[Recipe], descriptors: [OwnedFd; DESCRIPTORS]) -> io::Result<()> {
    let [leash, stdin, stdout, stderr] = descriptors;
    let leash = UnixStream::from(leash);
    leash.set_nonblocking(true)?;
    let mut leash = tokio::net::UnixStream::from_std(leash)?;
    let count = usize::try_from(leash.read_u32_le().await?).unwrap_or(usize::MAX);
    if count > MESSAGE_BYTES_MAX {
        return say(&mut leash, REFUSED, 0).await;
    }
    let mut order = vec![0; count];
    leash.read_exact(&mut order).await?;
    let Some(order) = serde_json::from_slice(&order).ok().filter(|order| may_run(recipes, order)) else {
        return say(&mut leash, REFUSED, 0).await;
    };
    let mut command = command(&order.recipe, &order.arguments, &order.variables)?;
    let stderr = if order.recipe.is_quiet { Stdio::null() } else { Stdio::from(stderr) };
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    let spawned = command.spawn();
    // This process's copies of the pipes would hold them open.
    drop(command);
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return say(&mut leash, FAILED, error.raw_os_error().unwrap_or_default()).await,
    };
    let mut group = Group::of(&child);
    say(&mut leash, STARTED, 0).await?;
    let mut byte = [0];
    let ended = tokio::select! {
        ended = group.ended(&mut child, order.recipe.memory_bytes) => ended?,
        // Nothing more is said on a leash: it was dropped.
        _ = leash.read(&mut byte) => {
            group.kill();
            child.wait().await?;
            return Ok(());
        }
    };
    let letter = if ended.is_beyond { ENDED_BEYOND } else { ENDED };
    say(&mut leash, letter, ended.status.into_raw()).await
}

/// Returns true if the recipes allow this order.
fn may_run(recipes: &[Recipe], order: &Order) -> bool {
    recipes.contains(&order.recipe)
        && (order.recipe.is_open || order.arguments.is_empty())
        // Another helper would be told by whoever asked for it what it may run.
        && !(job::job_recipe().as_ref() == Some(&order.recipe) && order.arguments.first().is_some_and(|job| job == HELP))
        && order.variables.iter().all(|(name, _)| name.starts_with(VARIABLE_PREFIX))
}

async fn say(leash: &mut tokio::net::UnixStream, letter: u8, number: i32) -> io::Result<()> {
    let mut word = [letter; WORD_BYTES];
    word[1..].copy_from_slice(&number.to_le_bytes());
    leash.write_all(&word).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe {
        Recipe {
            argv: vec!["/bin/true".to_owned()],
            folder: None,
            environment: Vec::new(),
            inherit: Vec::new(),
            is_open: true,
            is_quiet: false,
            memory_bytes: None,
        }
    }

    /// Returns the error of a start when the helper takes its descriptors and does this with the leash.
    async fn said(end: impl FnOnce(UnixStream) + Send + 'static) -> String {
        let (mine, theirs) = UnixStream::pair().expect("a pair");
        let ending = std::thread::spawn(move || {
            let [leash, ..] = receive(&theirs).expect("an order");
            end(leash.into());
        });
        let helper = Helper { control: Mutex::new(mine) };
        // More than a socket takes in, so that its end is noticed while it is written as well.
        let arguments = ["x".repeat(4 << 20)];
        let started = helper.start(&recipe(), &arguments, &[], Input::Pipe).await;
        ending.join().expect("it ends");
        started.expect_err("nothing was started").to_string()
    }

    #[tokio::test]
    async fn a_helper_that_ends_at_any_moment_is_said_to_be_gone() {
        let gone = "the helper that starts processes is gone";
        assert_eq!(said(drop).await, gone);
        // With an order that was not read whole, its end is a reset of the connection.
        assert_eq!(said(|mut leash| drop(leash.read_exact(&mut [0]))).await, gone);
        assert_eq!(
            said(|mut leash| drop(std::io::copy(&mut Read::by_ref(&mut leash).take((4 << 20) + 4), &mut io::sink())))
                .await,
            gone
        );
    }
}
