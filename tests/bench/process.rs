//! Time of a whole process, as a shell sees it.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use cellar_engine::{GuestName, Language};

use crate::{
    Offer,
    lab::{LANGUAGES, Plan, trivial},
    native,
    table::{Line, Samples},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("whole process", eval), ("cells over a pipe", pipe)];

/// Targets for a client in Python, in microseconds: a cell, and a session's first cell.
const OVER_A_PIPE: f64 = 80.0;
const FIRST_OVER_A_PIPE: f64 = 300.0;

/// Rounds that find files and code in memory which the first ones had to read.
const WARM_UP_ROUNDS: usize = 3;

fn eval(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for language in LANGUAGES {
        let once = || {
            let mut command = Command::new(cellar_bench::command());
            command.args(["eval", "-l", language.code(), trivial(language)]).stdin(Stdio::null());
            time_process(&mut command, "2\n")
        };
        for _ in 0..WARM_UP_ROUNDS {
            once();
        }
        let mut samples = Samples::default();
        for _ in 0..plan.pick(60, 10) {
            samples.push(once());
        }
        let what = format!("{}: `cellar eval -l {} 1+1`, whole process", language.title(), language.code());
        lines.push(Line::time(what, &samples, None));
    }
    lines
}

/// Measures cells of `cellar stdio` as a client in Python sees them.
fn pipe(plan: &Plan) -> Vec<Line> {
    let (cells, sessions) = plan.pick((5_000, 300), (300, 30));
    let measure = |language: Language| {
        let arguments = format!("{:?}, {:?}, {cells}, {sessions}", cellar_bench::command(), language.code());
        let program = format!("import sys\nsys.argv = ['-', {arguments}]\n{}", include_str!("pipe.py"));
        let output = native::output(GuestName::Python, &program);
        let (next, first) = output.split_once("\n\n").expect("two lists of times");
        let line = |what: &str, times: &str, target| {
            let mut samples = Samples::default();
            let micros = times.lines().map(|time| time.parse().expect("microseconds"));
            micros.for_each(|micros: f64| samples.push(Duration::from_secs_f64(micros / 1e6)));
            Line::time(format!("{}: {what} over a pipe, from Python", language.title()), &samples, target)
        };
        [line("next trivial cell", next, OVER_A_PIPE), line("session to first result", first, FIRST_OVER_A_PIPE)]
    };
    LANGUAGES.into_iter().flat_map(measure).collect()
}

fn time_process(command: &mut Command, expected: &str) -> Duration {
    let began = Instant::now();
    let output = command.stderr(Stdio::inherit()).output().expect("the command line can be started");
    let time = began.elapsed();
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    time
}
