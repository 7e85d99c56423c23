//! `cellar run` and `cellar eval`: run cells and follow them to their end.

use std::{collections::VecDeque, io, path::PathBuf, sync::Arc};

use cellar_bridges::SOCKET_VARIABLE;
use cellar_engine::{
    Cell, Event, EventKind, Language, RunResult, Session,
    config::RunOptions,
    results::{OutputPolicy, View},
};
use cellar_hub::{Delivery, Reader, RunHandle};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Split, Stdin},
    signal::unix::{Signal, SignalKind, signal},
};

use crate::{
    args::{EvalArguments, Folders, OutputArguments, PlaceArguments, RunArguments},
    artifacts::{self, SETTLED_WITHIN},
    output::{Follower, Form, Plain},
    render::{Options, Transcript},
    report::{CliError, print_progress},
    setup,
    socket::RemoteRun,
    source::{self, Source},
    terminal::{Cleaner, Look, Transcribed, write_stderr},
};

/// Exit code that shells report of a command that was interrupted.
const EXIT_INTERRUPTED: u8 = 130;

/// Runs the cells of a file.
///
/// # Errors
/// The run is not valid, or the engine fails. A failed cell is an exit code.
pub(crate) async fn run(folders: &Folders, arguments: RunArguments) -> Result<u8, CliError> {
    let source = source::load(&arguments.file, arguments.language.map(Language::from))?;
    let (cells, notebook) = match source {
        Source::Cells(_) if arguments.inplace => {
            let message = format!("outputs cannot be written into `{}`", arguments.file.display());
            return Err(CliError::usage(message, "--inplace is for notebooks (.ipynb)"));
        }
        Source::Cells(cells) => (cells, None),
        Source::Notebook(notebook) => (notebook.cells().to_vec(), arguments.inplace.then_some(notebook)),
    };
    let options = Options::of_stdout(arguments.output, arguments.images);
    let form = form(arguments.output, || Form::Transcript(Box::new(Transcript::new(Transcribed, options))));
    let follower = Follower::new(form, notebook);
    let options = arguments.lineage.options();
    start(folders, &arguments.session, (cells, options), arguments.keep_going, follower).await
}

/// Runs one cell.
///
/// # Errors
/// As [`run`].
pub(crate) async fn eval(folders: &Folders, arguments: EvalArguments) -> Result<u8, CliError> {
    let code = if arguments.code == "-" { source::load_stdin()? } else { arguments.code };
    let cells = vec![Cell::new(arguments.language.into(), code)];
    let form = form(arguments.output, || Form::Plain(Plain::new()));
    let what = (cells, arguments.lineage.options());
    start(folders, &arguments.session, what, false, Follower::new(form, None)).await
}

/// Returns the form of the output that the flags ask for; `otherwise` if they ask for none.
pub(crate) fn form(output: OutputArguments, otherwise: impl FnOnce() -> Form) -> Form {
    match output {
        OutputArguments { json: true, .. } => Form::Json(Box::<RunResult>::default()),
        OutputArguments { events: true, .. } => Form::Events,
        OutputArguments { llm: true, rows, characters, .. } => {
            let usual = View::default();
            let characters = characters.map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            let (rows, characters) = (rows.unwrap_or(usual.rows), characters.unwrap_or(usual.characters));
            Form::Llm(Box::default(), View { rows, characters, ..usual })
        }
        _ => otherwise(),
    }
}

/// A run, wherever its session lives.
enum Running {
    /// Here.
    Local { run: RunHandle, reader: Reader },
    /// In another process.
    Remote(RemoteRun),
}

impl Running {
    /// # Cancel safety
    /// Cancel safe.
    async fn next(&mut self) -> Option<Result<Arc<Event>, CliError>> {
        match self {
            Running::Local { run, reader } => next_event(run, reader).await.transpose(),
            Running::Remote(run) => run.next().await.map(|event| event.map(Arc::new)),
        }
    }
}

/// The next event of a run that this process owns; none at its end.
///
/// # Errors
/// The run was refused.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn next_event(run: &RunHandle, reader: &mut Reader) -> Result<Option<Arc<Event>>, CliError> {
    loop {
        match reader.next().await {
            Some(Delivery::Event(event)) => return Ok(Some(event)),
            // An owner misses nothing.
            Some(_) => {}
            None => return run.result().await.map(|_| None).map_err(CliError::Hub),
        }
    }
}

async fn start(
    folders: &Folders,
    arguments: &PlaceArguments,
    (cells, options): (Vec<Cell>, RunOptions),
    keep_going: bool,
    follower: Follower,
) -> Result<u8, CliError> {
    let own = &arguments.own;
    let running = match socket(arguments)? {
        Some(_) if keep_going => {
            let hint = "leave out --keep-going, or run the cells one by one";
            return Err(CliError::usage("a run in a session of another process ends with its first failure", hint));
        }
        Some(path) => Running::Remote(RemoteRun::start(&path, &cells, &options).await?),
        None => {
            let opened = setup::open_session(folders, own.into()).await?;
            let run = opened.start(cells, keep_going, options)?;
            Running::Local { reader: run.own(0), run }
        }
    };
    let kept = match &running {
        Running::Local { run, .. } if own.name.is_some() || own.record.is_some() => Some(run.session().clone()),
        _ => None,
    };
    let policy = match &running {
        Running::Local { run, .. } => run.session().output_policy(),
        Running::Remote(_) => own.granted.output_policy.map(OutputPolicy::from).unwrap_or_default(),
    };
    let artifacts = match &running {
        Running::Local { run, .. } if follower.reads_tables() => Some(run.session().artifacts()?),
        _ => None,
    };
    let code = follow(running, follower.with_policy(policy).with_artifacts(artifacts)).await?;
    if let Some(session) = kept {
        session.end_recording()?;
        if own.name.is_some() {
            session.save().await?;
            artifacts::settle(move || session.artifacts().ok()?.settle(SETTLED_WITHIN).ok()).await;
        }
    }
    Ok(code)
}

/// The socket of the session to run in, if it is not one of our own.
fn socket(arguments: &PlaceArguments) -> Result<Option<PathBuf>, CliError> {
    match &arguments.connect {
        Some(_) if arguments.own.is_described() => Err(CliError::usage(
            "a session of another process cannot be described here",
            "leave out either --connect or the flags that describe a session",
        )),
        Some(path) => Ok(Some(path.clone())),
        None if arguments.own.is_described() => Ok(None),
        None => Ok(std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)),
    }
}

/// Follows a run to its end. The first interrupt asks it to stop, which keeps its output; the second leaves at once.
async fn follow(mut running: Running, mut follower: Follower) -> Result<u8, CliError> {
    let mut interrupts = Interrupts::listen().map_err(CliError::Start)?;
    let mut is_stopping = false;
    let mut asked = Asked::default();
    loop {
        let event = tokio::select! {
            event = running.next() => event,
            answer = asked.answer() => {
                if let Running::Local { run, .. } = &running {
                    asked.pass_on(run.session(), answer);
                }
                continue;
            }
            () = interrupts.next() => match &running {
                Running::Local { run, .. } if !is_stopping => {
                    is_stopping = true;
                    run.cancel();
                    print_progress("stopping; interrupt again to leave at once");
                    continue;
                }
                _ => return Ok(EXIT_INTERRUPTED),
            },
        };
        let Some(event) = event else { return follower.finish() };
        let event = event?;
        follower.event(&event)?;
        if let (EventKind::InputRequest { request_id, prompt, .. }, Running::Local { .. }) = (&event.kind, &running) {
            asked.ask(request_id, prompt);
        }
    }
}

/// The requests for input that wait for a line of standard input, the oldest first.
#[derive(Default)]
struct Asked {
    open: VecDeque<String>,
    /// Opened by the first request.
    lines: Option<Split<BufReader<Stdin>>>,
}

impl Asked {
    fn ask(&mut self, request_id: &str, prompt: &str) {
        // The terminal shows what is typed, and so the end of the line.
        let mut cleaner = Cleaner::new(Look::of_stderr());
        write_stderr(&(cleaner.clean(prompt) + cleaner.finish()));
        self.open.push_back(request_id.to_owned());
        self.lines.get_or_insert_with(|| BufReader::new(tokio::io::stdin()).split(b'\n'));
    }

    /// The next line, or the end, if it is waited for.
    ///
    /// # Cancel safety
    /// Cancel safe: a line that was begun is kept.
    async fn answer(&mut self) -> Option<String> {
        match &mut self.lines {
            Some(lines) if !self.open.is_empty() => {
                let line = lines.next_segment().await.ok().flatten()?;
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                // What is no text is answered as what it says of that.
                Some(String::from_utf8_lossy(line).into_owned())
            }
            _ => std::future::pending().await,
        }
    }

    fn pass_on(&mut self, session: &Session, answer: Option<String>) {
        let Some(request) = self.open.pop_front() else { return };
        let passed = match answer {
            Some(line) => session.submit_input(&request, line),
            None => session.end_input(&request),
        };
        if let Err(error) = passed {
            // The cell has ended, or has waited too long.
            tracing::debug!(%error, "an answer came too late");
        }
    }
}

/// Signals that ask the process to stop: Ctrl-C (SIGINT), and SIGTERM.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(crate) fn listen() -> io::Result<Interrupts> {
        Ok(Interrupts { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
