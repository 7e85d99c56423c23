//! What a whole process takes, as a shell sees it.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    Offer,
    lab::{LANGUAGES, Plan, trivial},
    table::{Line, Samples},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("whole process", eval)];

/// Rounds that find files and code in memory which the first ones had to read.
const WARM_UP_ROUNDS: usize = 3;

fn eval(plan: &Plan) -> Vec<Line> {
    let mut lines = Vec::new();
    for language in LANGUAGES {
        let once = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_cellar"));
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

fn time_process(command: &mut Command, expected: &str) -> Duration {
    let began = Instant::now();
    let output = command.stderr(Stdio::inherit()).output().expect("the command line can be started");
    let time = began.elapsed();
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    time
}
