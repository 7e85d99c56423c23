//! `cellar stdio`, driven by a client in another language, by scripts of lines, and by lines that are none. Whatever is
//! said either way must fit the schemas that are checked in.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::{PATIENCE, cellar, cellar_with_guests, check_shape, root};

/// Plays one case of `fixtures/wire/client.py`.
fn check(case: &str) {
    let cellar = cellar_with_guests(["--version"]);
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut python = Command::new("python3");
    python.arg(root().join("fixtures/wire/client.py")).arg(cellar.get_program()).arg(case).current_dir(root());
    python.envs(cellar.get_envs().filter_map(|(name, value)| Some((name, value?)))).env_remove("CELLAR_SESSION_SOCKET");
    let output = python.env("CELLAR_WIRE_LOG", log.path()).output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(&format!("ok {case}")), "{said}");
    let lines = std::fs::read_to_string(log.path()).expect("the log");
    let is_request = |message: &Value| REQUESTS.iter().any(|kind| message["type"] == *kind);
    for line in lines.lines() {
        let message: Value = serde_json::from_str(line).expect("JSON");
        // Both ways there are `sessions` and `origins`; only the answers list them.
        let is_list = ["sessions", "origins"].iter().any(|kind| message.get(kind).is_some());
        let is_answer = is_list || !is_request(&message);
        let is_refused_on_purpose = message["grants"].get("limit").is_some();
        if !is_refused_on_purpose {
            check_shape(if is_answer { "answer" } else { "request" }, &message);
        }
    }
    assert!(lines.lines().count() > 2, "{lines}");
}

const REQUESTS: [&str; 14] = [
    "open",
    "run",
    "cancel",
    "to_llm",
    "get",
    "origins",
    "reply",
    "submit_input",
    "reset",
    "snapshot",
    "restore",
    "fork",
    "sessions",
    "close",
];

#[test]
fn runs_and_events() {
    check("runs_and_events");
}

#[test]
fn runs_at_once_in_several_sessions() {
    check("runs_at_once_in_several_sessions");
}

#[test]
fn tools_of_the_caller() {
    check("tools_of_the_caller");
}

#[test]
fn a_cancelled_call() {
    check("a_cancelled_call");
}

#[test]
fn input() {
    check("input");
}

#[test]
fn cancel_reset_and_close() {
    check("cancel_reset_and_close");
}

#[test]
fn sessions_of_one_snapshot() {
    check("sessions_of_one_snapshot");
}

#[test]
fn servers_of_one_snapshot() {
    check("servers_of_one_snapshot");
}

#[test]
fn grants() {
    check("grants");
}

#[test]
fn a_caller_that_does_not_read() {
    check("a_caller_that_does_not_read");
}

#[test]
fn the_end_of_the_input() {
    check("the_end_of_the_input");
}

/// A `cellar stdio` and what it has said that nobody asked about yet.
pub(super) struct Talk {
    process: Option<Child>,
    /// Sends a line.
    input: Box<dyn FnMut(&str)>,
    answers: Receiver<Value>,
    unread: Vec<Value>,
    /// Values that the script has named.
    names: HashMap<String, Value>,
}

impl Talk {
    /// A conversation over something else: what sends a line, and what comes back.
    pub(super) fn over(input: impl FnMut(&str) + 'static, answers: Receiver<Value>) -> Talk {
        Talk { process: None, input: Box::new(input), answers, unread: Vec::new(), names: HashMap::new() }
    }

    fn start(mut command: Command) -> Talk {
        let mut process = command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                let answer = serde_json::from_str(&line.expect("a line")).expect("JSON");
                let _ = sender.send(answer);
            }
        });
        let mut input = process.stdin.take().expect("a pipe");
        let input = move |line: &str| {
            input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).expect("reads");
        };
        Talk { process: Some(process), ..Talk::over(input, answers) }
    }

    pub(super) fn line(&mut self, line: &str) {
        (self.input)(line);
    }

    /// The next answer; none at the end.
    pub(super) fn answer(&mut self) -> Option<Value> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(answer) => {
                check_shape("answer", &answer);
                Some(answer)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no answer; unread are {:#?}", self.unread),
        }
    }

    /// Waits for an answer that has what `pattern` has, and takes the names that it gives.
    pub(super) fn expect(&mut self, pattern: &Value) {
        let began = Instant::now();
        let mut looked_at = 0;
        loop {
            while let Some(answer) = self.unread.get(looked_at) {
                let mut names = self.names.clone();
                if has(answer, pattern, &mut names) {
                    self.names = names;
                    self.unread.remove(looked_at);
                    return;
                }
                looked_at += 1;
            }
            assert!(began.elapsed() < PATIENCE, "no {pattern}; unread are {:#?}", self.unread);
            match self.answer() {
                Some(answer) => self.unread.push(answer),
                None => panic!("it ended without {pattern}; unread are {:#?}", self.unread),
            }
        }
    }

    fn step(&mut self, step: &Value) {
        let step = step.as_object().expect("an object");
        let (kind, what) = step.iter().find(|(kind, _)| *kind != "here").expect("a step");
        if self.process.is_none() && step.contains_key("here") {
            return;
        }
        match kind.as_str() {
            "send" => {
                let request = filled(what, &self.names);
                check_shape("request", &request);
                self.line(&request.to_string());
            }
            "line" => self.line(what.as_str().expect("a text")),
            "bytes" => self.line(&"x".repeat(usize::try_from(what.as_u64().expect("a number")).expect("small"))),
            "pause" => std::thread::sleep(Duration::from_secs_f64(what.as_f64().expect("seconds"))),
            "expect" => self.expect(what),
            _ => panic!("unknown step `{kind}`"),
        }
    }

    /// No more requests: it ends well, and has said nothing that was not asked for but events and what has no id.
    pub(super) fn end(mut self) {
        drop(self.input);
        if let Some(mut process) = self.process {
            assert!(process.wait().expect("ends").success());
        }
        while let Ok(answer) = self.answers.recv() {
            self.unread.push(answer);
        }
        self.unread.retain(|answer| !matches!(answer["type"].as_str(), Some("hello" | "event" | "call_cancelled")));
        assert!(self.unread.is_empty(), "nobody expected {:#?}", self.unread);
    }
}

/// Returns true if `found` has all that `pattern` has. `$name` stands for any text, and for the same one everywhere.
fn has(found: &Value, pattern: &Value, names: &mut HashMap<String, Value>) -> bool {
    match (found, pattern) {
        (found, Value::String(text)) if text.starts_with('$') && !text.contains(' ') => {
            found.is_string() && names.entry(text.clone()).or_insert_with(|| found.clone()) == found
        }
        (found, Value::String(_)) => *found == filled(pattern, names),
        (Value::Object(found), Value::Object(pattern)) => pattern.iter().all(|(key, pattern)| {
            // What is null may be left out.
            has(found.get(key).unwrap_or(&Value::Null), pattern, names)
        }),
        (Value::Array(found), Value::Array(pattern)) => {
            found.len() == pattern.len() && found.iter().zip(pattern).all(|(found, pattern)| has(found, pattern, names))
        }
        _ => found == pattern,
    }
}

/// A value with what `$names` stand for.
fn filled(value: &Value, names: &HashMap<String, Value>) -> Value {
    match value {
        Value::String(text) => {
            let filled = names
                .iter()
                .fold(text.clone(), |text, (name, value)| text.replace(name.as_str(), value.as_str().expect("a text")));
            Value::String(filled)
        }
        Value::Array(items) => items.iter().map(|item| filled(item, names)).collect(),
        Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), filled(value, names))).collect(),
        other => other.clone(),
    }
}

/// Plays a script: what is sent, and what must come back, in any order among answers.
/// `$folder` is a folder of its own.
fn play(case: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut talk = Talk::start(cellar_with_guests(["stdio"]));
    talk.names.insert("$folder".to_owned(), folder.path().to_str().expect("text").into());
    talk.play(case);
}

impl Talk {
    /// Plays a script, to its end.
    pub(super) fn play(mut self, case: &Path) {
        eprintln!("{}", case.display());
        if self.process.is_none() {
            // A server has no folders: there, a snapshot has a name.
            self.names.insert("$folder/".to_owned(), "".into());
        }
        for line in std::fs::read_to_string(case).expect("a script").lines() {
            self.step(&serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")));
        }
        self.end();
    }
}

/// The scripts, in order.
pub(super) fn cases() -> Vec<PathBuf> {
    let folder = root().join("fixtures/wire/stdio");
    let mut cases: Vec<_> =
        std::fs::read_dir(folder).expect("scripts").map(|entry| entry.expect("one").path()).collect();
    cases.sort();
    assert!(cases.len() >= 7);
    cases
}

#[test]
fn scripts() {
    cases().iter().for_each(|case| play(case));
}

/// Each line of the fixture says what is sent and what must come back. A message may be given by its beginning, with …
#[test]
fn lines_that_are_refused_are_named_with_their_faults() {
    let cases = std::fs::read_to_string(root().join("fixtures/wire/refusals.ndjson")).expect("the fixture");
    let mut talk = Talk::start(cellar(["stdio"]));
    assert_eq!(talk.answer().expect("hello")["type"], "hello");
    for (number, case) in (1_u64..).zip(cases.lines()) {
        let case: Value = serde_json::from_str(case).expect("a case");
        talk.line(case["send"].as_str().expect("a line"));
        let answer = talk.answer().expect("an answer");
        let at = format!("line {number}: {answer}");
        assert_eq!(
            (&answer["type"], &answer["line"], &answer["id"]),
            (&"error".into(), &number.into(), &case["id"]),
            "{at}"
        );
        assert_eq!(answer["error"]["code"], case["code"], "{at}");
        let (found, expected) = (answer["error"]["message"].as_str(), case["message"].as_str().expect("a message"));
        let found = found.expect("a message");
        match expected.strip_suffix('…') {
            Some(start) => assert!(found.starts_with(start), "{at}"),
            None => assert_eq!(found, expected, "{at}"),
        }
    }
    talk.end();
}
