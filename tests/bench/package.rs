//! Cellar's own package of Python, in a process of Python: what `peers` asks of others, without others.
//!
//! Times are those of a program of Python. Beside them stand their ratios to the same cell of the engine in this process, in turns: what
//! the package adds.

use std::process::Command;

use cellar_engine::{GuestName, Language};
use serde_json::json;

use crate::{
    Offer,
    lab::{LANGUAGES, Lab, Plan, trivial},
    native,
    peers::Peer,
    table::{Line, Samples, Unit},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("package of Python", package)];

/// Calls of a tool in one cell.
const CALLS: u32 = 100;
/// Cells that are timed in a row.
const ROW: u32 = 25;

/// Name of the package in `peers/python.py`, and targets in microseconds: a cell, a session's first cell, a call of a tool.
fn targets(language: Language) -> (&'static str, [f64; 3]) {
    match language {
        Language::Python => ("package, Python", [60.0, 250.0, 12.0]),
        _ => ("package, JavaScript", [25.0, 100.0, 12.0]),
    }
}

fn package(plan: &Plan) -> Vec<Line> {
    LANGUAGES.into_iter().flat_map(|language| measure(plan, language)).collect()
}

fn measure(plan: &Plan, language: Language) -> Vec<Line> {
    let (name, targets) = targets(language);
    let mut command = Command::new(native::interpreter(GuestName::Python));
    command.arg(cellar_bench::root().join("tests/bench/peers/python.py")).arg(name);
    let mut package = Peer::of(name, command);
    let lab = Lab::open(plan, language);
    let session = lab.session();
    let (mut next, mut own) = (Samples::default(), Samples::default());
    for _ in 0..plan.pick(40, 4) {
        package.ask(&json!({"do": "next_cell", "count": ROW})).add_to(&mut next);
        (0..ROW).for_each(|_| own.push(lab.time(&session, trivial(language))));
    }
    let (mut first, mut calls) = (Samples::default(), Samples::default());
    package.ask(&json!({"do": "first_result", "count": plan.pick(100, 5)})).add_to(&mut first);
    package.ask(&json!({"do": "calls", "count": plan.pick(40, 4), "each": CALLS})).add_to(&mut calls);
    let title = language.title();
    let line = |what: &str, samples, target| Line::time(format!("{title}: {what}, in Python"), samples, target);
    let ratio = (next.best() / own.best(), next.median() / own.median());
    let added = format!("{title}: next trivial cell, in Python against in Rust");
    vec![
        line("next trivial cell", &next, targets[0]),
        Line::new(added, Unit::Times, ratio.0, ratio.1, None),
        line("session to first result", &first, targets[1]),
        line("a tool call back", &calls, targets[2]),
    ]
}
