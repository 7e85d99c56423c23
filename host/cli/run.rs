//! `cellar run` and `cellar eval`: run cells and follow them to their end.

use std::{collections::VecDeque, path::PathBuf, sync::Arc};

use cellar_bridges::SOCKET_VARIABLE;
use cellar_config::{Overrides, SessionRequest};
use cellar_engine::{
    Cell, Event, EventKind, GuestName, Language, RunResult, Session,
    config::{RunOptions, Stops},
    guests::guest_status,
    results::{OutputPolicy, View},
};
use cellar_hub::{Delivery, Reader, RunHandle};
use tokio::io::{AsyncBufReadExt, BufReader, Split, Stdin};

use crate::{
    args::{EvalArguments, Folders, GuestCode, OutputArguments, PlaceArguments, RunArguments},
    artifacts::{self, SETTLED_WITHIN},
    notebook::Notebook,
    output::{End, Follower, Form, Plain},
    program::{arguments_variable, folder_of, hint},
    render::{Options, Transcript},
    report::{CliError, print_hint, print_progress},
    setup,
    signals::Interrupts,
    socket::RemoteRun,
    source::{self, Source},
    terminal::{Cleaner, Look, Transcribed, write_stderr},
};

/// Runs the cells of a file.
///
/// # Errors
/// The run is not valid, or the engine fails. A failed cell is an exit code.
pub(crate) async fn run(folders: &Folders, mut arguments: RunArguments) -> Result<u8, CliError> {
    let file = match arguments.file {
        Some(file) => file,
        None if Look::is_stdin_terminal() => {
            return Err(CliError::usage(
                "no file is named",
                "name one, as in `cellar run hello.py`, or pipe a program",
            ));
        }
        None => PathBuf::from("-"),
    };
    let source = source::load(&file, arguments.language.map(Language::from))?;
    if !matches!(source, Source::Program { .. }) && !arguments.arguments.is_empty() {
        let message = format!("`{}` takes no arguments", file.display());
        return Err(CliError::usage(message, "programs do, which are .py, .js, .ts and their kin"));
    }
    let mut what = What::new(arguments.lineage.options(), folder_of(&file));
    what.keep_going = arguments.keep_going;
    let (cells, notebook, hides_values) = match source {
        Source::Notebook(notebook) => {
            if let Some(guest) = notebook_guest(folders, &arguments.session, &notebook)? {
                arguments.session.own.granted.chosen.push(guest);
            }
            (notebook.cells().to_vec(), arguments.inplace.then_some(notebook), false)
        }
        _ if arguments.inplace => {
            let message = format!("outputs cannot be written into `{}`", file.display());
            return Err(CliError::usage(message, "--inplace is for notebooks (.ipynb)"));
        }
        Source::Cells(cells) => (cells, None, false),
        Source::Program { cells, has_markers } => {
            what.is_program = true;
            what.arguments = Some(arguments_variable(&file.display().to_string(), &arguments.arguments));
            (cells, None, !has_markers)
        }
    };
    what.cells = cells;
    let output = arguments.output;
    let wants_transcript = output.plain || output.lines.is_some() || arguments.images.is_some();
    let is_quiet = arguments.quiet || (!Look::of_stdout().is_terminal && !wants_transcript);
    let form = form(output, || match is_quiet {
        true => Form::Plain(Plain::new(hides_values)),
        false => {
            let options = Options::of_stdout(output, arguments.images);
            Form::Transcript(Box::new(Transcript::new(Transcribed, options)))
        }
    });
    start(folders, &arguments.session, what, Follower::new(form, notebook)).await
}

/// The guest that runs a notebook for which nothing else is said: that of the kernel which it names, and for any other kernel of
/// Python the one with pandas, where it is there.
fn notebook_guest(
    folders: &Folders,
    place: &PlaceArguments,
    notebook: &Notebook,
) -> Result<Option<GuestCode>, CliError> {
    let own = &place.own;
    if socket(place)?.is_some() || !own.granted.chosen.is_empty() {
        return Ok(None);
    }
    let file = Overrides::from(&own.granted).file()?;
    let (named, has_python) = notebook.guest();
    if !has_python || file.session.guests.iter().any(|guest| guest.language() == Language::Python) {
        return Ok(None);
    }
    let wanted = match named {
        Some(guest) => Some(guest),
        // A stored session goes on with the guest that it has.
        None => own.name.is_none().then_some(GuestName::PythonData),
    };
    let config = setup::host_config(folders, Stops::default())?;
    let is_there = |guest: &GuestName| guest_status(&config, *guest).digest.is_some();
    Ok(wanted.filter(|guest| named.is_some() || is_there(guest)).map(|guest| match guest {
        GuestName::PythonData => GuestCode::PythonData,
        GuestName::JavaScript => GuestCode::JavaScript,
        _ => GuestCode::Python,
    }))
}

/// Runs one cell.
///
/// # Errors
/// As [`run`].
pub(crate) async fn eval(folders: &Folders, arguments: EvalArguments) -> Result<u8, CliError> {
    let code = match arguments.code {
        Some(code) if code != "-" => code,
        None if Look::is_stdin_terminal() => {
            return Err(CliError::usage("there is no code", "say it, as in `cellar eval -l py '1 + 1'`, or pipe it"));
        }
        _ => source::load_stdin()?,
    };
    let form = form(arguments.output, || Form::Plain(Plain::new(false)));
    let mut what = What::new(arguments.lineage.options(), PathBuf::new());
    what.cells = vec![Cell::new(arguments.language.into(), code)];
    what.is_program = true;
    start(folders, &arguments.session, what, Follower::new(form, None)).await
}

/// A run to start, and what its end means.
struct What {
    cells: Vec<Cell>,
    options: RunOptions,
    keep_going: bool,
    /// Its exit status is that of the process.
    is_program: bool,
    /// The variable with the arguments of a program.
    arguments: Option<String>,
    /// Folder of the program.
    folder: PathBuf,
}

impl What {
    fn new(options: RunOptions, folder: PathBuf) -> What {
        What { cells: Vec::new(), options, keep_going: false, is_program: false, arguments: None, folder }
    }
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

async fn start(folders: &Folders, arguments: &PlaceArguments, what: What, follower: Follower) -> Result<u8, CliError> {
    let own = &arguments.own;
    let What { cells, options, keep_going, is_program, arguments: variable, folder } = what;
    let running = match socket(arguments)? {
        Some(_) if keep_going => {
            let hint = "leave out --keep-going, or run the cells one by one";
            return Err(CliError::usage("a run in a session of another process ends with its first failure", hint));
        }
        Some(path) => Running::Remote(RemoteRun::start(&path, &cells, &options).await?),
        None => {
            let mut request = SessionRequest::from(own);
            request.overrides.environment.extend(variable);
            let opened = setup::open_session(folders, request).await?;
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
    let sees_folder = own.granted.workspace.is_some() || matches!(running, Running::Remote(_));
    let followed = follow(running, follower.with_policy(policy).with_artifacts(artifacts)).await?;
    let Followed::Ended(end) = followed else { return Ok(followed.exit_code(is_program)) };
    if let Some(hint) = end.failure.as_ref().filter(|_| !sees_folder).and_then(|failure| hint(failure, &folder)) {
        print_hint(&hint);
    }
    if let Some(session) = kept {
        session.end_recording()?;
        if own.name.is_some() {
            session.save().await?;
            artifacts::settle(move || session.artifacts().ok()?.settle(SETTLED_WITHIN).ok()).await;
        }
    }
    Ok(Followed::Ended(end).exit_code(is_program))
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

/// The end of what [`follow`] follows.
enum Followed {
    /// The run has ended.
    Ended(End),
    /// It was left at a second signal.
    Left(u8),
}

impl Followed {
    /// Exit code of the process.
    fn exit_code(&self, is_program: bool) -> u8 {
        match self {
            Followed::Left(code) => *code,
            Followed::Ended(End { signal: Some(code), is_error: true, .. }) => *code,
            Followed::Ended(end) => end.exit_code(is_program),
        }
    }
}

/// Follows a run to its end. The first signal asks it to stop, which keeps its output; the second leaves at once.
async fn follow(mut running: Running, mut follower: Follower) -> Result<Followed, CliError> {
    let mut interrupts = Interrupts::listen().map_err(CliError::Start)?;
    let mut stopped_by = None;
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
            code = interrupts.next() => match &running {
                Running::Local { run, .. } if stopped_by.is_none() => {
                    stopped_by = Some(code);
                    run.cancel();
                    print_progress("stopping; interrupt again to leave at once");
                    continue;
                }
                _ => return Ok(Followed::Left(code)),
            },
        };
        let Some(event) = event else {
            let mut end = follower.finish()?;
            end.signal = stopped_by;
            return Ok(Followed::Ended(end));
        };
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
