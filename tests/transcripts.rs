//! One test per fixture in `fixtures/transcripts/<subject>/`: cells, and the events they must lead to.
//!
//! A fixture is source in the `# %%` cell format; its extension names the language, and `# %% js` changes it for one
//! cell. Comments before the first cell that look like `# key: value` set limits and grants (see [`Header`]). The
//! events stand beside it in `<case>.<extension>.events`. `make bless` rewrites those; the diff is the review.
//!
//! The same fixtures, recorded and replayed, must lead to the same events twice: those are the tests whose names begin
//! with `replay`.

#[path = "transcripts/granted.rs"]
mod granted;
#[path = "transcripts/network.rs"]
mod network;
#[path = "transcripts/texts.rs"]
mod texts;

use std::{
    collections::VecDeque,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use cellar_engine::{
    Bridges, Cell, Event, EventKind, GuestName, Host, HostConfig, HostFolders, Language, Outcome, Session,
    SessionConfig,
    artifacts::{ArtifactQuota, ArtifactStore},
    bridges::{Call, CallError, CallErrorKind, CallFuture, Caller, PackSpec, Response, ToolSpec, ToolsFuture, denied},
    config::{Rests, Stops},
    event::Scalar,
    files::{Access, Mount},
    guests::{BakeOptions, bake},
    limits::{LIMITS, Limit, Unit},
    mime::{MimeBundle, MimeData},
    outcome::{Failure, FailureKind},
    replay::Replayed,
};
use futures::StreamExt;
use libtest_mimic::{Arguments, Failed, Trial};

use network::Network;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let trials = match fixtures(&root.join("fixtures/transcripts")) {
        Ok(fixtures) => fixtures
            .into_iter()
            .flat_map(|path| [trial("", &path, check), trial("replay::", &path, check_replay)])
            .collect(),
        Err(error) => vec![Trial::test("fixtures", move || Err(error.into()))],
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(kind: &str, path: &Path, check: fn(&Path) -> Result<(), Failed>) -> Trial {
    let subject = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let case = path.file_name().unwrap_or_default().to_string_lossy();
    // The language leads, so that a filter can leave the slow guests out.
    let language = path.extension().unwrap_or_default().to_string_lossy();
    let name = format!("{kind}{language}::{subject}::{case}");
    let path = path.to_owned();
    Trial::test(name, move || check(&path))
}

/// Every fixture; a file that is neither a fixture nor the events of one is an error.
fn fixtures(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for subject in read_folder(folder)? {
        for path in read_folder(&subject)? {
            let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
            if extension == "events" {
                if !path.with_extension("").exists() {
                    return Err(format!("`{}` belongs to no fixture", path.display()));
                }
            } else if Language::from_code(&extension).is_some() {
                found.push(path);
            } else {
                return Err(format!("`{}` is no fixture: unknown extension", path.display()));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn read_folder(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("`{}`: {error}", folder.display()))?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(|error| error.to_string())).collect()
}

fn read(path: &Path) -> Result<(Header, Vec<Cell>), Failed> {
    let source = std::fs::read_to_string(path)?;
    let language = path.extension().and_then(|code| Language::from_code(&code.to_string_lossy()));
    parse(&source, language.ok_or("unknown language")?)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Records the fixture and replays it: each run must hear the same, to the last digit of every time.
fn check_replay(path: &Path) -> Result<(), Failed> {
    let (header, cells) = read(path)?;
    if std::env::var_os("CELLAR_BLESS").is_some() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("recording");
    let guests: Vec<GuestName> = header.guests(&cells);
    let recorded = runtime()?.block_on(record(header, cells, &file))?;
    // Everything that was there is gone now: the session, its folders, its tools.
    let replayed = own_runs(&recorded, runtime()?.block_on(replay(guests, &file))?);
    for (run, (recorded, replayed)) in (1..).zip(recorded.iter().zip(&replayed)) {
        for (recorded, replayed) in recorded.iter().zip(replayed) {
            if recorded != replayed {
                return Err(format!("run {run} differs\nrecorded: {recorded:?}\nreplayed: {replayed:?}").into());
            }
        }
        if recorded.len() != replayed.len() {
            return Err(format!("run {run} has {} events, {} in the replay", recorded.len(), replayed.len()).into());
        }
    }
    if recorded.len() != replayed.len() {
        return Err(format!("{} runs were recorded, {} replayed", recorded.len(), replayed.len()).into());
    }
    Ok(())
}

/// The events of each run.
type Runs = Vec<Vec<Event>>;

/// The runs of a replay without those that agents made, whose events `record` does not hear.
fn own_runs(recorded: &Runs, replayed: Runs) -> Runs {
    let mut wanted = recorded.iter().map(|run| run.first()).peekable();
    replayed.into_iter().filter(|run| wanted.next_if(|first| *first == run.first()).is_some()).collect()
}

async fn record(mut header: Header, cells: Vec<Cell>, file: &Path) -> Result<Runs, Failed> {
    let folder = tempfile::tempdir()?;
    header.config.record = Some(file.to_owned());
    let mut answers = std::mem::take(&mut header.answers);
    let (session, runs) = open_session(header, cells, folder.path())?;
    let mut recorded = Runs::new();
    for cells in runs {
        let run = session.run(cells)?;
        recorded.push(run.inspect(|event| answers.give(&session, event)).collect().await);
    }
    session.end_recording()?;
    Ok(recorded)
}

async fn replay(guests: Vec<GuestName>, file: &Path) -> Result<Runs, Failed> {
    let mut replay = open_host(guests, None)?.replay(file)?;
    let mut runs = Runs::new();
    while let Some(Replayed { run, event }) = replay.next().await? {
        let run = run as usize;
        runs.resize(runs.len().max(run), Vec::new());
        runs[run - 1].push(event);
    }
    Ok(runs)
}

fn check(path: &Path) -> Result<(), Failed> {
    let (header, cells) = read(path)?;
    let found = runtime()?.block_on(play(header, cells))?;
    let expected_path = PathBuf::from(format!("{}.events", path.display()));
    if std::env::var_os("CELLAR_BLESS").is_some() {
        std::fs::write(&expected_path, found)?;
        return Ok(());
    }
    let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
    if expected == found {
        return Ok(());
    }
    let diff = similar::TextDiff::from_lines(&expected, &found).unified_diff().header("expected", "found").to_string();
    Err(format!("events differ (`make bless` accepts them)\n{diff}").into())
}

/// Settings of the comments before the first cell: any limit, as `timeout: 1` and `grace: 0.2` in seconds, `fuel: 1000000`,
/// `memory: 64` in MiB, other sizes in bytes (`output: 1000`), `forks: 2` for how many run at a time; `environment: NAME=value`,
/// `guest: python-data` to run its language with, `packages: FOLDER` of the checkout to import from, `npm: FOLDER` of the checkout to be `/node_modules`, `data: yes` for a folder to escape from, `http: yes` for a network, `granted: yes` for a pack of primitives and agents, `kernels: N` for how many the host has, `llm: yes` for models, or with bounds (`llm: calls=3 tokens=100 timeout=1 key=VARIABLE`), `calls: no` to leave call events out where their order is a matter of
/// chance, `places: yes` to tell the lines at which cells were stopped, `keep-going: yes` to run later cells after a failure, `input: Ada|36` for the lines that answer requests for
/// input, each `input-after: 0.2` seconds after it was asked for, and then the end; `input-idle: 0.2` for none within
/// that time.
#[derive(Default)]
struct Header {
    config: SessionConfig,
    /// Each cell is a run of its own, so that a failed one does not end the transcript.
    keep_going: bool,
    /// Leaves the events of bridge calls out.
    hides_calls: bool,
    /// Tells where cells were stopped, by line: the fixture's loops stand on one.
    shows_stops: bool,
    /// Answers to requests for input.
    answers: Answers,
    /// Keeps artifacts in a place of its own.
    keeps_artifacts: bool,
    /// Kernels of the host.
    kernels: Option<u32>,
    /// Makes `/data`, a read-only folder with `greeting.txt`, and links and pipes that lead out of it.
    data: bool,
}

fn parse(source: &str, default: Language) -> Result<(Header, Vec<Cell>), Failed> {
    let mut header = Header::default();
    header.config.bridges = Arc::new(TestTools::default());
    let mut cells: Vec<(Cell, String)> = Vec::new();
    for line in source.lines() {
        let comment = line.strip_prefix("# ").or(line.strip_prefix("// "));
        if let Some(marker) = comment.and_then(|comment| comment.strip_prefix("%%")) {
            cells.push((new_cell(marker.trim(), default), String::new()));
        } else if let Some((_, code)) = cells.last_mut() {
            code.push_str(line);
            code.push('\n');
        } else if let Some((key, value)) = comment.and_then(|comment| comment.split_once(": ")) {
            header.set(key, value)?;
        }
    }
    let finished = |(cell, code): (Cell, String)| Cell { code: code.trim_end().into(), ..cell };
    Ok((header, cells.into_iter().map(finished).collect()))
}

/// `%% [language] [reset] [timeout=SECONDS] [title]`
fn new_cell(marker: &str, default: Language) -> Cell {
    let mut cell = Cell::new(default, "");
    for word in marker.split_whitespace() {
        if let Some(language) = Language::from_code(word) {
            cell.language = language;
        } else if word == "reset" {
            cell.reset = true;
        } else if let Some(seconds) = word.strip_prefix("timeout=").and_then(|value| value.parse().ok()) {
            cell.timeout = Some(Duration::from_secs(seconds));
        } else {
            cell.title = Some(word.to_owned());
        }
    }
    cell
}

/// Answers to requests for input.
#[derive(Default)]
struct Answers {
    lines: VecDeque<String>,
    /// Delay after each request.
    after: Duration,
    /// There are none, not even the end.
    is_idle: bool,
}

impl Answers {
    /// Answers a request, if the event is one.
    fn give(&mut self, session: &Session, event: &Event) {
        let EventKind::InputRequest { request_id, .. } = &event.kind else { return };
        if self.is_idle {
            return;
        }
        let (session, id, line, after) = (session.clone(), request_id.clone(), self.lines.pop_front(), self.after);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            // The cell may have gone meanwhile.
            let _ = match line {
                Some(line) => session.submit_input(&id, line),
                None => session.end_input(&id),
            };
        });
    }
}

impl Header {
    /// The guests that these cells need.
    fn guests(&self, cells: &[Cell]) -> Vec<GuestName> {
        cells.iter().map(|cell| self.config.kernels.guest(cell.language)).collect()
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Failed> {
        let name = |limit: &Limit| limit.field.trim_end_matches("_bytes").replace('_', "-");
        if let Some(limit) = LIMITS.iter().find(|limit| name(limit) == key) {
            let number = match limit.unit {
                Unit::Seconds | Unit::Milliseconds => {
                    u64::try_from(Duration::from_secs_f64(value.parse()?).as_millis())?
                }
                Unit::Mib if key == "memory" => value.parse::<u64>()? << 20,
                Unit::Mib | Unit::Count => value.replace('_', "").parse()?,
            };
            limit.set(&mut self.config.limits, number);
            return Ok(());
        }
        match key {
            "guest" => self.config.kernels.guests.push(GuestName::from_name(value).ok_or("no such guest")?),
            "keep-going" => self.keep_going = value == "yes",
            "packages" => self.config.folders.packages.push(Path::new(env!("CARGO_MANIFEST_DIR")).join(value)),
            "npm" => self.config.folders.mounts.push(npm_mount(value)),
            "http" => self.config.bridges = Arc::new(TestTools { others: Some(Box::new(Network::start()?)) }),
            "llm" => self.config.bridges = Arc::new(TestTools { others: Some(Box::new(Network::with_models(value)?)) }),
            "granted" => {
                self.keeps_artifacts = true;
                self.config.bridges = Arc::new(TestTools { others: Some(Box::new(granted::bridges())) });
            }
            "kernels" => self.kernels = Some(value.parse()?),
            "data" => self.data = value == "yes",
            "calls" => self.hides_calls = value == "no",
            "places" => self.shows_stops = value == "yes",
            "input" => {
                self.config.input = Some(cellar_engine::limits::INPUT_IDLE_TIMEOUT);
                self.answers.lines = value.split('|').map(str::to_owned).collect();
            }
            "input-after" => self.answers.after = Duration::from_secs_f64(value.parse()?),
            "input-idle" => {
                self.config.input = Some(Duration::from_secs_f64(value.parse()?));
                self.answers.is_idle = true;
            }
            "environment" => {
                let (name, value) = value.split_once('=').ok_or("expected NAME=value")?;
                self.config.environment.push((name.to_owned(), value.to_owned()));
            }
            "why" => {}
            _ => return Err(format!("unknown key `{key}` in the header").into()),
        }
        Ok(())
    }
}

/// The session of a fixture, and the cells of its runs.
fn open_session(mut header: Header, cells: Vec<Cell>, folder: &Path) -> Result<(Session, Vec<Vec<Cell>>), Failed> {
    let host = open_host(header.guests(&cells), header.kernels)?;
    if header.data {
        header.config.folders.mounts.push(data_mount(folder)?);
    }
    if header.keeps_artifacts {
        header.config.outputs.artifacts =
            Some(ArtifactStore::open(folder.join("artifacts"), ArtifactQuota::default())?);
    }
    header.config.id = Some("test".to_owned());
    let session = host.session(header.config)?;
    let runs = if header.keep_going { cells.into_iter().map(|cell| vec![cell]).collect() } else { vec![cells] };
    Ok((session, runs))
}

async fn play(mut header: Header, cells: Vec<Cell>) -> Result<String, Failed> {
    let folder = tempfile::tempdir()?;
    let Header { hides_calls, shows_stops, .. } = header;
    let mut answers = std::mem::take(&mut header.answers);
    let (session, runs) = open_session(header, cells, folder.path())?;
    let mut text = String::new();
    let mut number = 0;
    for cells in runs {
        let count = cells.len();
        let mut run = session.run(cells)?;
        let mut transcript = Transcript { text: &mut text, offset: number, stream: None, shows_stops };
        while let Some(event) = run.next().await {
            answers.give(&session, &event);
            let is_call = matches!(event.kind, EventKind::CallStarted { .. } | EventKind::CallFinished { .. });
            let is_of_calls = matches!(&event.kind, EventKind::Status { op, .. } if op.starts_with("calls_"));
            if !((is_call || is_of_calls) && hides_calls) {
                transcript.add(&event);
            }
        }
        number += count;
    }
    Ok(texts::collapse(&text))
}

/// Opens a host on the guests that `make guests` built, baked when they are not.
fn open_host(guests: Vec<GuestName>, kernels: Option<u32>) -> Result<Host, Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cache = std::env::var_os("CELLAR_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| dirs::cache_dir().map(|cache| cache.join("cellar"))).ok_or("no cache folder")?;
    // Which checkpoint a session goes back to must not depend on what the machine does besides.
    let rests = Rests { checkpoint_credit: Duration::from_secs(3_600), ..Rests::default() };
    // All of them can be played with guests that are stopped in another way.
    let stops = match std::env::var("CELLAR_STOPS") {
        Ok(name) => Stops::from_name(&name).ok_or("CELLAR_STOPS is neither `epochs` nor `safepoints`")?,
        Err(_) => Stops::default(),
    };
    let config = HostConfig {
        kernels_max: kernels.unwrap_or(16),
        rests,
        stops,
        ..HostConfig::new(HostFolders { guests: root.join("target/guests"), cache })
    };
    for guest in guests {
        bake(&config, guest, BakeOptions::default()).map_err(|error| format!("{error}; run `{}`", remedy(guest)))?;
    }
    Ok(Host::open(config)?)
}

/// Returns the command that makes a guest.
fn remedy(guest: GuestName) -> &'static str {
    if guest == GuestName::PythonData { "make data-guest" } else { "make guests" }
}

fn npm_mount(folder: &str) -> Mount {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    Mount { host, guest: "/node_modules".to_owned(), access: Access::ReadOnly }
}

fn data_mount(folder: &Path) -> Result<Mount, Failed> {
    let data = folder.join("data");
    std::fs::create_dir(&data)?;
    std::fs::write(data.join("greeting.txt"), "hello\n")?;
    std::fs::write(folder.join("secret.txt"), "the secret\n")?;
    std::os::unix::fs::symlink(folder.join("secret.txt"), data.join("absolute-link"))?;
    std::os::unix::fs::symlink("../secret.txt", data.join("relative-link"))?;
    std::os::unix::fs::symlink("..", data.join("up"))?;
    Ok(Mount { host: data, guest: "/data".to_owned(), access: Access::ReadOnly })
}

/// The tools of every transcript, and the network, the models, the primitives and the agents of some.
#[derive(Default)]
struct TestTools {
    /// Bridges that answer all other calls.
    others: Option<Box<dyn Bridges>>,
}

impl Bridges for TestTools {
    fn tools(&self) -> ToolsFuture {
        let names = ["echo", "fail", "hang", "panic", "sleep"];
        let spec = |name: &str| ToolSpec { name: name.to_owned(), description: String::new(), schema: None };
        Box::pin(std::future::ready(names.map(spec).to_vec()))
    }

    fn packs(&self) -> Vec<PackSpec> {
        self.others.as_ref().map(|others| others.packs()).unwrap_or_default()
    }

    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        let Call::Tool { name, arguments } = &call else {
            if let Some(others) = &self.others {
                return others.call(call, caller);
            }
            let error = denied(&call);
            return Box::pin(async { Err(error) });
        };
        let arguments = arguments.clone();
        match name.as_str() {
            "echo" => Box::pin(async move { Ok(Response::Json(arguments)) }),
            "fail" => Box::pin(async { Err(CallError::new(CallErrorKind::Failed, "the tool failed on purpose")) }),
            "hang" => Box::pin(std::future::pending()),
            "panic" => Box::pin(async { panic!("a bridge that panics") }),
            "sleep" => Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok(Response::Json(arguments))
            }),
            _ => {
                let error = denied(&call);
                Box::pin(async { Err(error) })
            }
        }
    }
}

/// Events as text. Neighbouring pieces of one stream are joined: how output is cut is nobody's business.
struct Transcript<'a> {
    text: &'a mut String,
    /// Cells of earlier runs.
    offset: usize,
    stream: Option<(usize, &'static str, String)>,
    shows_stops: bool,
}

impl Transcript<'_> {
    fn add(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Stdout { index, text } => return self.stream(*index, "stdout", text),
            EventKind::Stderr { index, text } => return self.stream(*index, "stderr", text),
            EventKind::Background { index, is_stderr, text, .. } => {
                let stream = if *is_stderr { "background stderr" } else { "background stdout" };
                return self.stream(*index, stream, text);
            }
            // They come when they come.
            EventKind::Fork { .. } => return,
            _ => self.flush(),
        }
        let offset = self.offset + 1;
        let text = &mut *self.text;
        match &event.kind {
            EventKind::Display { index, data, display_id, .. } => {
                let id = display_id.as_ref().map(|id| format!(" id={id}")).unwrap_or_default();
                let _ = writeln!(text, "[{}] display{id}{}", index + offset, bundle(data));
            }
            EventKind::UpdateDisplay { index, data, display_id } => {
                let _ = writeln!(text, "[{}] update_display id={display_id}{}", index + offset, bundle(data));
            }
            EventKind::ClearOutput { index, wait } => {
                let _ = writeln!(text, "[{}] clear_output wait={wait}", index + offset);
            }
            EventKind::Status { index, op, fields } => {
                // Times are a matter of chance.
                let value = |name: &str, value| if name.ends_with("_ms") { "…".to_owned() } else { scalar(value) };
                let fields: String = fields.iter().map(|(name, it)| format!(" {name}={}", value(name, it))).collect();
                let _ = writeln!(text, "[{}] status {op}{fields}", index + offset);
            }
            EventKind::CallStarted { index, bridge, name, .. } => {
                let _ = writeln!(text, "[{}] call_started {} {name}", index + offset, bridge.as_str());
            }
            EventKind::CallFinished { index, error, .. } => {
                let error = error.as_ref().map(|error| format!(" error {error:?}")).unwrap_or_default();
                let _ = writeln!(text, "[{}] call_finished{error}", index + offset);
            }
            EventKind::InputRequest { index, request_id, prompt, .. } => {
                let _ = writeln!(text, "[{}] input_request {request_id} {}", index + offset, texts::shown(prompt));
            }
            EventKind::CellFinished { index, outcome, .. } => {
                let _ = writeln!(text, "[{}] {}", index + offset, ending(outcome, self.shows_stops));
            }
            _ => {}
        }
    }

    fn stream(&mut self, index: usize, name: &'static str, text: &str) {
        match &mut self.stream {
            Some((place, stream, joined)) if *place == index && *stream == name => joined.push_str(text),
            _ => {
                self.flush();
                self.stream = Some((index, name, text.to_owned()));
            }
        }
    }

    fn flush(&mut self) {
        if let Some((index, name, text)) = self.stream.take() {
            let _ = writeln!(self.text, "[{}] {name} {}", index + self.offset + 1, texts::shown(&text));
        }
    }
}

fn bundle(bundle: &MimeBundle) -> String {
    let item = |(name, data): &(String, MimeData)| match data {
        MimeData::Text(text) => format!("\n    {name} {}", texts::shown(text)),
        MimeData::Binary(bytes) => format!("\n    {name} {} bytes", bytes.len()),
    };
    bundle.0.iter().map(item).collect()
}

fn scalar(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Text(text) => format!("{:?}", texts::unkeyed(text)),
        Scalar::Integer(number) => number.to_string(),
        Scalar::Number(number) => number.to_string(),
        Scalar::Boolean(yes) => yes.to_string(),
    }
}

fn ending(outcome: &Outcome, shows_stops: bool) -> String {
    match outcome {
        Outcome::Complete => "done".to_owned(),
        Outcome::Exited(status) => format!("exited {status}"),
        Outcome::Failed(failure) => failed(failure, shows_stops),
    }
}

fn failed(failure: &Failure, shows_stops: bool) -> String {
    let mut text = format!("failed {} {}: {}", failure.kind.as_str(), failure.name, failure.message);
    // Where a loop was when its time was up is a matter of chance.
    let has_place = !matches!(failure.kind, FailureKind::Timeout | FailureKind::Interrupted | FailureKind::Output);
    if has_place {
        place(failure, &mut text);
    } else if shows_stops {
        stop(failure, &mut text);
    }
    if !failure.state_kept {
        text.push_str("\n    state lost");
    }
    text
}

fn place(failure: &Failure, text: &mut String) {
    if let (Some(line), Some(column)) = (failure.line, failure.column) {
        let _ = write!(text, "\n    at {line}:{column}");
    }
    for part in [&failure.snippet, &failure.pointer].into_iter().flatten() {
        let _ = write!(text, "\n    > {part}");
    }
    for line in failure.traceback.lines() {
        let _ = write!(text, "\n    | {line}");
    }
}

/// The lines of a stop. The columns are a matter of chance.
fn stop(failure: &Failure, text: &mut String) {
    if let (Some(line), Some(snippet)) = (failure.line, &failure.snippet) {
        let _ = write!(text, "\n    at {line}\n    > {snippet}");
    }
    for line in failure.traceback.lines().skip(1) {
        let is_frame = line.trim_start().starts_with("at ");
        let place = line.trim_end_matches(')').trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(':');
        let _ = write!(text, "\n    | {}", if is_frame { place } else { line });
    }
}
