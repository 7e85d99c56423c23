//! The remote procedures by which clients run commands: each is a command of the tenant, or a terminal, which is one
//! command after the other.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum_core::body::Body;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use cellar_core::sync::lock;
use cellar_hub::{Delivery, OnDisconnect, Reader};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Map, Value, json};

use super::{
    Account, Call, connect, control, dead,
    files::Place,
    sandboxes::Sandbox,
    terminal::{self, Heard, Terminal},
    told,
};
use crate::{
    http::check_values,
    problem::{Answer, Problem},
    tenant::{Command, CommandRequest, End, Part, Program, parts},
};

/// Interval of heartbeats of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Time that a command which is killed is waited for.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of one message of a stream of input.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Procedures that are answered by a stream.
const STREAMS: [&str; 3] = ["Start", "Connect", "StreamInput"];

/// Command that a client has started.
#[derive(Clone)]
struct Process {
    running: Running,
    /// Configuration as the client gave it.
    config: Value,
    tag: Option<String>,
}

#[derive(Clone)]
enum Running {
    Command(Arc<Command>),
    Terminal(Arc<Terminal>),
}

/// The processes of a tenant, by sandbox and number.
#[derive(Clone, Default)]
pub(super) struct Processes(Arc<Mutex<BTreeMap<(String, u32), Process>>>);

impl Processes {
    fn add(&self, sandbox: &str, process: Process) {
        lock(&self.0).insert((sandbox.to_owned(), process.running.pid()), process);
    }

    /// Removes a process when it has ended.
    fn watch(&self, sandbox: &str, running: Running) {
        let (processes, key) = (self.0.clone(), (sandbox.to_owned(), running.pid()));
        tokio::spawn(async move {
            running.ended().await;
            lock(&processes).remove(&key);
        });
    }

    fn list(&self, sandbox: &str) -> Vec<Value> {
        let first = (sandbox.to_owned(), 0);
        let processes = lock(&self.0);
        let own = processes.range(first..).take_while(|((of, _), _)| of == sandbox);
        own.map(|((_, pid), process)| {
            let mut shown = json!({"pid": pid, "config": process.config});
            process.tag.iter().for_each(|tag| shown["tag"] = tag.as_str().into());
            shown
        })
        .collect()
    }

    /// Returns the process that a client selects, by its number or its tag.
    fn find(&self, sandbox: &str, object: &Map<String, Value>) -> Result<Process, Problem> {
        let selector = object.get("process").and_then(Value::as_object);
        let number = selector.and_then(|of| of.get("pid")?.as_u64()).and_then(|pid| u32::try_from(pid).ok());
        let tag = selector.and_then(|of| of.get("tag")?.as_str());
        let processes = lock(&self.0);
        let found = match (number, tag) {
            (Some(pid), _) => processes.get(&(sandbox.to_owned(), pid)).filter(|process| !process.running.is_ended()),
            (None, Some(tag)) => processes
                .range((sandbox.to_owned(), 0)..)
                .take_while(|((of, _), _)| of == sandbox)
                .map(|(_, process)| process)
                .find(|process| process.tag.as_deref() == Some(tag)),
            (None, None) => return Err(Problem::bad("`process` has a `pid` or a `tag`")),
        };
        let unknown = || {
            let name = number.map_or_else(|| tag.unwrap_or_default().to_owned(), |pid| pid.to_string());
            let name: String = name.chars().take(40).collect();
            Problem::new(StatusCode::NOT_FOUND, "unknown", format!("no process {name} runs in this sandbox"))
        };
        found.cloned().ok_or_else(unknown)
    }
}

impl Running {
    fn pid(&self) -> u32 {
        match self {
            Running::Command(command) => command.pid,
            Running::Terminal(terminal) => terminal.pid,
        }
    }

    fn is_ended(&self) -> bool {
        match self {
            Running::Command(command) => command.run.is_ended(),
            Running::Terminal(terminal) => terminal.is_ended(),
        }
    }

    async fn ended(&self) {
        match self {
            Running::Command(command) => drop(command.run.result().await),
            Running::Terminal(terminal) => terminal.ended().await,
        }
    }

    fn kill(&self) {
        match self {
            Running::Command(command) => command.run.cancel(),
            Running::Terminal(terminal) => terminal.kill(),
        }
    }

    /// Writes bytes to its standard input.
    async fn write(&self, bytes: &[u8]) -> Result<(), Problem> {
        match self {
            Running::Command(command) => match command.input() {
                Some(input) if input.write(bytes).await => Ok(()),
                _ => Err(Problem::bad("nobody reads the standard input of this command: it is closed")),
            },
            Running::Terminal(terminal) => terminal.type_in(bytes).await,
        }
    }
}

/// Answers a call.
pub(super) async fn answer(call: Call, sandbox: Sandbox, procedure: &str) -> Answer {
    let granted = call.account.tenant.check_commands(&sandbox.id);
    let answered = match granted {
        Ok(()) => carried_out(call, sandbox, procedure).await,
        Err(problem) => {
            super::hear_out(call.body).await;
            Err(problem)
        }
    };
    match answered {
        // A stream says in its last message why there is none.
        Err(problem) if STREAMS.contains(&procedure) => Ok(connect::stream(Body::from(connect::end(Some(&problem))))),
        answered => answered,
    }
}

async fn carried_out(mut call: Call, sandbox: Sandbox, procedure: &str) -> Answer {
    let account = call.account.clone();
    match procedure {
        "StreamInput" => return stream_input(call, sandbox).await,
        "Start" | "Connect" => {
            let bytes = call.body().await?;
            let object = message(connect::opened(&bytes)?)?;
            return match procedure {
                "Start" => start(account, sandbox, &object, &call.headers).await,
                _ => {
                    let process = account.processes.find(&sandbox.id, &object)?;
                    Ok(follow(account, sandbox, process.running, false))
                }
            };
        }
        _ => {}
    }
    let object = call.object().await?;
    if procedure == "List" {
        return Ok(told(StatusCode::OK, &json!({"processes": account.processes.list(&sandbox.id)})));
    }
    if !["SendInput", "CloseStdin", "SendSignal", "Update"].contains(&procedure) {
        return Err(Problem::new(StatusCode::NOT_FOUND, "unknown", "there is no such procedure"));
    }
    let running = account.processes.find(&sandbox.id, &object)?.running;
    match (procedure, &running) {
        ("SendInput", _) => running.write(&input(&object)?).await?,
        ("CloseStdin", Running::Command(command)) => command.input().iter().for_each(|input| input.close()),
        ("SendSignal", _) => {
            if !matches!(object.get("signal").and_then(Value::as_str), Some("SIGNAL_SIGKILL" | "SIGNAL_SIGTERM")) {
                return Err(Problem::bad("`signal` is SIGNAL_SIGKILL or SIGNAL_SIGTERM"));
            }
            running.kill();
            let _ = tokio::time::timeout(KILLED_WITHIN, running.ended()).await;
        }
        ("Update", Running::Terminal(terminal)) => {
            if let Some(size) = size(object.get("pty"))? {
                terminal.resize(size).await;
            }
        }
        _ => return Err(Problem::bad("this is of use for a command, or for a terminal, and this is none")),
    }
    Ok(told(StatusCode::OK, &json!({})))
}

fn message(bytes: &[u8]) -> Result<Map<String, Value>, Problem> {
    check_values(bytes)?;
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(Problem::bad("a message of this call is a JSON object")),
    }
}

/// Bytes of `input`, for a command or for a terminal.
fn input(object: &Map<String, Value>) -> Result<Vec<u8>, Problem> {
    let given = object.get("input").and_then(Value::as_object);
    let text = given.and_then(|input| input.get("stdin").or_else(|| input.get("pty"))?.as_str()).unwrap_or_default();
    STANDARD.decode(text).map_err(|_| Problem::bad("`input` has bytes in base64"))
}

/// Rows and columns of `pty`, if there is one.
fn size(pty: Option<&Value>) -> Result<Option<(u16, u16)>, Problem> {
    let Some(pty) = pty.filter(|pty| !pty.is_null()) else { return Ok(None) };
    let number = |name: &str, usual: u64| {
        let number = pty["size"].get(name).map_or(Some(usual), Value::as_u64);
        let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0);
        number.ok_or_else(|| Problem::bad(format!("`{name}` of a terminal is a number from 1 to 65535")))
    };
    Ok(Some((number("rows", 24)?, number("cols", 80)?)))
}

/// Time that a client gives a stream, and its command with it.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("connect-timeout-ms")?.to_str().ok()?;
    text.parse().ok().filter(|milliseconds| *milliseconds > 0).map(Duration::from_millis)
}

async fn start(account: Arc<Account>, sandbox: Sandbox, object: &Map<String, Value>, headers: &HeaderMap) -> Answer {
    let none = Map::new();
    let config = object.get("process").and_then(Value::as_object).unwrap_or(&none);
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let arguments = match config.get("args") {
        None | Some(Value::Null) => Vec::new(),
        Some(list) => serde_json::from_value(list.clone()).map_err(|_| Problem::bad("`args` are texts"))?,
    };
    let environment = control::environment(config, "envs")?;
    let folder = match text("cwd") {
        "" => None,
        cwd => Some(Place::of(cwd)?.guest),
    };
    let terminal = size(object.get("pty"))?;
    let request = CommandRequest {
        program: Program::Shell(words(text("cmd"), arguments)),
        folder,
        environment,
        timeout: timeout(headers),
        has_input: object.get("stdin").and_then(Value::as_bool).unwrap_or(true),
        is_owned: true,
        on_disconnect: OnDisconnect::Continue,
    };
    let tenant = &account.tenant;
    let place = Arc::new(tenant.commands.place(&sandbox.id)?);
    let (running, heard) = match terminal {
        None => {
            let (command, driving) = tenant.command(&sandbox.id, request, place).await?;
            drop(driving);
            (Running::Command(command), None)
        }
        Some(size) => {
            let (terminal, heard) = terminal::open(tenant, &sandbox.id, request, place, size);
            (Running::Terminal(terminal), Some(heard))
        }
    };
    let tag = object.get("tag").and_then(Value::as_str).map(str::to_owned);
    let process = Process { running: running.clone(), config: Value::Object(config.clone()), tag };
    account.processes.add(&sandbox.id, process);
    account.processes.watch(&sandbox.id, running.clone());
    Ok(match (running, heard) {
        (Running::Terminal(terminal), Some(heard)) => follow_terminal(&terminal, heard),
        (running, _) => follow(account.clone(), sandbox, running, true),
    })
}

/// Words of a shell that runs a program: the shell that clients name with its arguments, or one that runs something else.
fn words(program: &str, mut arguments: Vec<String>) -> Vec<String> {
    let name = program.rsplit('/').next().unwrap_or_default();
    if ["bash", "sh"].contains(&name) {
        // That it is a login shell changes nothing here.
        arguments.retain(|argument| argument != "-l");
        arguments.insert(0, name.to_owned());
        return arguments;
    }
    let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    let line: Vec<String> = std::iter::once(program).chain(arguments.iter().map(String::as_str)).map(quoted).collect();
    vec!["bash".to_owned(), "-c".to_owned(), line.join(" ")]
}

fn event(event: &Value) -> Bytes {
    connect::envelope(0, &json!({ "event": event }))
}

fn data(stream: &str, bytes: &[u8]) -> Bytes {
    event(&json!({"data": {stream: STANDARD.encode(bytes)}}))
}

/// Last messages of the stream of a process.
fn last(end: &End) -> [Option<Bytes>; 2] {
    let ended = match end {
        End::Exited(status) => {
            // What did not go well has no error of its own: its status says so.
            event(&json!({"end": {"exitCode": status, "exited": true, "status": format!("exit status {status}")}}))
        }
        End::Killed(why) => event(&json!({"end": {"exitCode": -1, "exited": false, "status": why, "error": why}})),
        End::Late => {
            let detail = "the command ran past the time that it was given";
            let problem = Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail);
            return [None, Some(connect::end(Some(&problem)))];
        }
    };
    [Some(ended), Some(connect::end(None))]
}

/// Streams a process from its first event, or from now on.
fn follow(account: Arc<Account>, sandbox: Sandbox, running: Running, is_new: bool) -> http::Response<Body> {
    let command = match running {
        Running::Terminal(terminal) => return follow_terminal(&terminal, terminal.listen()),
        Running::Command(command) => command,
    };
    let run = command.run.clone();
    let mut reader: Reader = if is_new { run.own(0) } else { run.watch(run.next_seq()) };
    let pid = command.pid;
    let body = async_stream::stream! {
        yield Ok::<Bytes, std::io::Error>(event(&json!({"start": {"pid": pid}})));
        let mut end = None;
        loop {
            match tokio::time::timeout(HEARTBEAT, reader.next()).await {
                Ok(Some(Delivery::Event(news))) => for part in parts(&news.kind) {
                    match part {
                        Part::Out(bytes) => yield Ok(data("stdout", &bytes)),
                        Part::Err(bytes) => yield Ok(data("stderr", &bytes)),
                        Part::End(ended) => end = Some(ended),
                    }
                },
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => yield Ok(event(&json!({"keepalive": {}}))),
            }
        }
        if let Err(error) = run.result().await {
            yield Ok(connect::end(Some(&Problem::from(error))));
            return;
        }
        let end = end.unwrap_or_else(|| End::Killed("signal: killed".to_owned()));
        let is_there = account.sandboxes.get(&sandbox.id).is_some_and(|sandbox| !sandbox.is_paused);
        if !is_there {
            // The client asks what became of the sandbox when a connection breaks off.
            yield Err(std::io::Error::other(dead(Some(&sandbox.id)).words()));
            return;
        }
        for message in last(&end).into_iter().flatten() {
            yield Ok(message);
        }
    };
    connect::stream(Body::from_stream(body))
}

fn follow_terminal(terminal: &Arc<Terminal>, mut heard: terminal::Listener) -> http::Response<Body> {
    let terminal = terminal.clone();
    let body = async_stream::stream! {
        yield Ok::<Bytes, std::io::Error>(event(&json!({"start": {"pid": terminal.pid}})));
        loop {
            match tokio::time::timeout(HEARTBEAT, heard.next()).await {
                Ok(Heard::Output(bytes)) => yield Ok(data("pty", &bytes)),
                Ok(Heard::End(end)) => {
                    for message in last(&end).into_iter().flatten() {
                        yield Ok(message);
                    }
                    return;
                }
                Err(_) => yield Ok(event(&json!({"keepalive": {}}))),
            }
        }
    };
    connect::stream(Body::from_stream(body))
}

/// Writes what comes in a stream to the standard input of a process.
async fn stream_input(call: Call, sandbox: Sandbox) -> Answer {
    let mut body = call.body;
    let (mut kept, mut running): (Vec<u8>, Option<Running>) = (Vec::new(), None);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::bad("the stream of input broke off"))?;
        let Ok(piece) = frame.into_data() else { continue };
        kept.extend_from_slice(&piece);
        while let Some(length) = connect::length(&kept, MESSAGE_BYTES_MAX)? {
            let object = message(connect::opened(&kept)?)?;
            kept.drain(..length);
            if let Some(start) = object.get("start").and_then(Value::as_object) {
                running = Some(call.account.processes.find(&sandbox.id, start)?.running);
            } else if let Some(data) = object.get("data").and_then(Value::as_object) {
                let running = running.as_ref().ok_or_else(|| Problem::bad("the stream of input has no start"))?;
                running.write(&input(data)?).await?;
            }
        }
    }
    let messages = [connect::envelope(0, &json!({})), connect::end(None)];
    Ok(connect::stream(Body::from(messages.concat())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_words_of_a_shell() {
        let of = |program: &str, arguments: &[&str]| {
            words(program, arguments.iter().map(|each| (*each).to_owned()).collect())
        };
        assert_eq!(of("/bin/bash", &["-l", "-c", "ls | wc"]), ["bash", "-c", "ls | wc"]);
        assert_eq!(of("python", &["-c", "print('a b')"]), ["bash", "-c", r"'python' '-c' 'print('\''a b'\'')'"]);
    }

    #[test]
    fn sizes_of_terminals_are_checked() {
        assert_eq!(size(Some(&json!({"size": {"rows": 3, "cols": 9}}))).expect("a size"), Some((3, 9)));
        assert_eq!(size(Some(&json!({}))).expect("a size"), Some((24, 80)));
        assert!(size(Some(&json!({"size": {"rows": 0}}))).is_err() && size(None).expect("none").is_none());
    }
}
