//! Other sandboxes for the same languages, in the same run, where `make bench-peers` has installed them.
//!
//! Each runs in a process that answers questions (`peers/python.py`, `peers/pyodide.mjs`), so that its memory and its processor
//! time are its own. Cellar is asked the same in this one. Where a peer has no answer, its line is missing and standard error
//! says why.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use cellar_engine::{Language, Limits, Session};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Offer,
    lab::{LANGUAGES, Lab, Plan, trivial},
    loops,
    native::Native,
    sessions, stops,
    table::{Line, Samples, Unit},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("peers", peers)];

/// Names that the programs of the peers know, and what runs them. The packages are Cellar's own, from a program of Python.
const PEERS: [(&str, Language); 6] = [
    ("package, Python", Language::Python),
    ("package, JavaScript", Language::JavaScript),
    ("eryx", Language::Python),
    ("monty", Language::Python),
    ("pyodide", Language::Python),
    ("quickjs-rs", Language::JavaScript),
];
/// Calls of one cell.
const CALLS: u32 = 100;
/// Sessions that are idle at a time.
const IDLE: u32 = 20;

fn peers(plan: &Plan) -> Vec<Line> {
    let folder = plan.cache.join("peers");
    if !folder.join(".installed").is_file() {
        eprintln!("no peers are installed: `make bench-peers` installs and measures them");
        return Vec::new();
    }
    LANGUAGES.into_iter().flat_map(|language| compare(plan, &folder, language)).collect()
}

fn compare(plan: &Plan, folder: &Path, language: Language) -> Vec<Line> {
    let mut peers: Vec<Peer> =
        PEERS.iter().filter(|(_, runs)| *runs == language).map(|(name, _)| Peer::start(folder, name)).collect();
    let own = Own::open(plan, language);
    let mut questions = vec![
        ("session to first result", json!({"do": "first_result", "count": plan.pick(15, 3)})),
        ("next trivial cell", json!({"do": "next_cell", "count": plan.pick(200, 20)})),
        ("a call of the host", json!({"do": "calls", "count": plan.pick(20, 3), "each": CALLS})),
        ("private memory per idle session", json!({"do": "memory", "count": IDLE})),
        ("an endless loop ends, past its second", json!({"do": "stop"})),
    ];
    if language == Language::Python {
        let imports = json!({"do": "imports", "count": plan.pick(10, 2), "code": sessions::NINE});
        questions.insert(2, ("import of nine modules in a new session", imports));
    }
    let mut lines = Vec::new();
    for (what, question) in &questions {
        lines.push(own.answer(question).line(what, &own.title));
        for peer in &mut peers {
            let answer = peer.ask(question);
            match answer.lacks {
                Some(why) => eprintln!("{what}: {} has none ({why})", peer.name),
                None => lines.push(answer.line(what, peer.name)),
            }
        }
    }
    lines.extend(compare_loops(plan, &own, &mut peers));
    lines
}

/// Processor time of the loops against that of a native interpreter, in turns. A peer that cannot run one is compared by those
/// that it can.
fn compare_loops(plan: &Plan, own: &Own, peers: &mut [Peer]) -> Vec<Line> {
    let guest = own.lab.language.guest();
    let source = loops::source(guest);
    let names = loops::names(own.lab.language);
    let session = own.lab.session_with(Limits { timeout: Duration::from_secs(120), ..Limits::default() });
    own.lab.run(&session, source);
    for peer in &mut *peers {
        if let Some(why) = peer.ask(&json!({"do": "load", "source": source})).lacks {
            eprintln!("loops: {} has none ({why})", peer.name);
        }
    }
    let mut native = Native::start(guest);
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); peers.len() + 1];
    for name in names {
        let mut natively = Samples::default();
        let mut times: Vec<Samples> = vec![Samples::default(); peers.len() + 1];
        for _ in 0..plan.pick(5, 2) {
            let (expected, time) = native.run(name);
            natively.push(time);
            times[0].push(loops::measure_cell(&own.lab, &session, name, &expected));
            for (peer, samples) in peers.iter_mut().zip(&mut times[1..]) {
                let answer = peer.ask(&json!({"do": "loop", "name": name}));
                if answer.lacks.is_none() {
                    assert_eq!(answer.result, expected, "{name} did other work in {}", peer.name);
                    answer.times.iter().for_each(|time| samples.push(Duration::from_secs_f64(time / 1e6)));
                }
            }
        }
        for (ratios, samples) in ratios.iter_mut().zip(&times) {
            ratios.extend(Some(samples.best() / natively.best()).filter(|ratio| ratio.is_finite()));
        }
    }
    let titles = std::iter::once(own.title.as_str()).chain(peers.iter().map(|peer| peer.name));
    let compared = titles.zip(&ratios).filter(|(_, ratios)| !ratios.is_empty());
    let line = |(title, ratios): (&str, &Vec<f64>)| {
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let what = format!("peers: {} of {} loops, against native: {title}", ratios.len(), names.len());
        Line::new(what, Unit::Times, mean, mean, None)
    };
    compared.map(line).collect()
}

/// Answer of a sandbox to a question; most fields are absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    /// In microseconds.
    times: Vec<f64>,
    /// Result of a loop.
    result: String,
    bytes: Option<f64>,
    /// True if a stopped session kept its state.
    kept: Option<bool>,
    /// Reason for the lack of an answer.
    lacks: Option<String>,
}

impl Answer {
    /// Adds the times to others.
    ///
    /// # Panics
    /// The peer has no answer.
    pub(crate) fn add_to(&self, samples: &mut Samples) {
        assert!(self.lacks.is_none(), "{:?}", self.lacks);
        self.times.iter().for_each(|time| samples.push(Duration::from_secs_f64(time.max(0.0) / 1e6)));
    }

    fn line(&self, what: &str, title: &str) -> Line {
        let left = match self.kept {
            None => "",
            Some(true) => " (state kept)",
            Some(false) => " (state lost)",
        };
        let what = format!("peers: {what}: {title}{left}");
        if let Some(bytes) = self.bytes {
            return Line::new(what, Unit::Megabytes, bytes / 1e6, bytes / 1e6, None);
        }
        let mut samples = Samples::default();
        self.add_to(&mut samples);
        Line::time(what, &samples, None)
    }
}

/// Cellar's own answers.
struct Own {
    lab: Lab,
    title: String,
}

impl Own {
    fn open(plan: &Plan, language: Language) -> Own {
        Own { lab: Lab::open(plan, language), title: format!("Cellar, {}", language.title()) }
    }

    fn answer(&self, question: &Value) -> Answer {
        let lab = &self.lab;
        let count = question["count"].as_u64().unwrap_or(1);
        let times = |once: &mut dyn FnMut() -> Duration| Answer {
            times: (0..count).map(|_| once().as_secs_f64() * 1e6).collect(),
            ..Answer::default()
        };
        match question["do"].as_str() {
            Some("first_result") => times(&mut || lab.time_first(trivial(lab.language))),
            Some("next_cell") => {
                let session = lab.session();
                times(&mut || lab.time(&session, trivial(lab.language)))
            }
            Some("imports") => times(&mut || lab.time_in_new(sessions::NINE)),
            Some("calls") => {
                let session = lab.session();
                times(&mut || self.time_calls(&session) / CALLS)
            }
            Some("memory") => Answer { bytes: Some(sessions::private_memory(lab, IDLE)), ..Answer::default() },
            _ => {
                let late = stops::time_soft_stop(lab, &lab.session());
                Answer { kept: Some(true), ..times(&mut || late) }
            }
        }
    }

    /// Calls within a function, as those of the peers are: none of them is awaited.
    fn time_calls(&self, session: &Session) -> Duration {
        self.lab.time(
            session,
            &match self.lab.language {
                Language::Python => {
                    format!("def calls():\n    for each in range({CALLS}):\n        tool.echo(value=each)\ncalls()")
                }
                _ => {
                    format!("(() => {{ for (let each = 0; each < {CALLS}; each++) tool.echo({{ value: each }}); }})()")
                }
            },
        )
    }
}

/// A process that answers for a peer.
pub(crate) struct Peer {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(folder: &Path, name: &'static str) -> Peer {
        let programs = cellar_bench::root().join("tests/bench/peers");
        let command = if name == "pyodide" {
            let mut command = Command::new("node");
            command.arg(programs.join("pyodide.mjs")).arg(folder.join("node_modules/pyodide/pyodide.mjs"));
            command
        } else {
            let mut command = Command::new(folder.join("bin/python"));
            command.arg(programs.join("python.py")).arg(name);
            command
        };
        Peer::of(name, command)
    }

    /// A peer that a command answers for.
    pub(crate) fn of(name: &'static str, mut command: Command) -> Peer {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a peer can be started");
        let input = child.stdin.take().expect("it was asked for");
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        Peer { name, child, input, output }
    }

    pub(crate) fn ask(&mut self, question: &Value) -> Answer {
        let mut line = String::new();
        let answered = writeln!(self.input, "{question}").and_then(|()| self.output.read_line(&mut line));
        match answered {
            Ok(1..) => serde_json::from_str(&line).expect("a peer answers in JSON"),
            _ => Answer { lacks: Some("its process has died".to_owned()), ..Answer::default() },
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
