//! Code that keeps a processor busy, in a sandbox and natively, in turns so that both see the same machine.

use std::time::Duration;

use cellar_engine::{GuestName, Language, Limits, Session, config::Stops};

use crate::{
    Offer,
    lab::{Lab, Plan},
    native::{self, Native},
    table::{Line, Samples, Unit},
};

pub(crate) const MEASUREMENTS: &[Offer] =
    &[("processor loops, Python", python), ("processor loops, JavaScript", javascript), ("arrays and tables", data)];

/// The file with the loops for a guest.
pub(crate) fn source(guest: GuestName) -> &'static str {
    match guest {
        GuestName::PythonData => include_str!("data.py"),
        GuestName::Python => include_str!("loops.py"),
        _ => include_str!("loops.js"),
    }
}

/// The loops of a language.
pub(crate) fn names(language: Language) -> &'static [&'static str] {
    match language {
        Language::Python => &[
            "nbody", "fannkuch", "json", "text", "queens", "spectral", "points", "digits", "trees", "bills", "cipher",
            "schedule",
        ],
        _ => &["fib", "sort", "json", "regex", "loop", "map", "nbody", "trees", "sieve", "rays", "schedule", "powers"],
    }
}

fn python(plan: &Plan) -> Vec<Line> {
    compare(plan, GuestName::Python, names(Language::Python), Some((2.0, 1.75)))
}

fn javascript(plan: &Plan) -> Vec<Line> {
    compare(plan, GuestName::JavaScript, names(Language::JavaScript), Some((1.4, 1.3)))
}

/// Against wheels that use vectors of up to 512 bits and OpenBLAS, on one thread.
fn data(plan: &Plan) -> Vec<Line> {
    let arrays = ["elementwise", "transcendental", "reductions", "sort", "argsort", "matmul", "solve", "fft"];
    let tables = ["groupby", "merge", "pivot", "read_csv", "to_csv", "strings"];
    compare(plan, GuestName::PythonData, &[arrays.as_slice(), &tables].concat(), Some((1.35, 1.35)))
}

/// The ways in which a sandbox meters.
const METERS: [(&str, Stops, Option<u64>); 3] = [
    ("epochs", Stops::Epochs, None),
    ("epochs and fuel", Stops::Epochs, Some(u64::MAX / 4)),
    ("safepoints", Stops::Safepoints, None),
];

/// Processor times of one loop: the sandbox in each way of [`METERS`], then native.
type Times = [Samples; METERS.len() + 1];

fn compare(plan: &Plan, guest: GuestName, loops: &[&str], target: Option<(f64, f64)>) -> Vec<Line> {
    let sessions = METERS.map(|(_, stops, fuel)| {
        let lab = Lab::open_stopped(plan, guest, stops);
        let limits = Limits { fuel, timeout: Duration::from_secs(120), ..Limits::default() };
        let session = lab.session_with(limits);
        lab.run(&session, source(guest));
        (lab, session)
    });
    let mut native = Native::start(guest);
    let mut times: Vec<Times> = vec![Times::default(); loops.len()];
    for round in 0..plan.pick(12, 3) {
        eprintln!("round {}", round + 1);
        for (name, times) in loops.iter().zip(&mut times) {
            let expected = measure_native(&mut native, name, times);
            for ((lab, session), samples) in sessions.iter().zip(times.iter_mut()) {
                samples.push(measure_cell(lab, session, name, &expected));
            }
        }
    }
    lines(guest, loops, &times, target)
}

fn measure_native(native: &mut Native, name: &str, times: &mut Times) -> String {
    let (result, time) = native.run(name);
    times[METERS.len()].push(time);
    result
}

pub(crate) fn measure_cell(lab: &Lab, session: &Session, name: &str, expected: &str) -> Duration {
    let cell = lab.run(session, &format!("LOOPS['{name}']()"));
    assert_eq!(cell.output().text, expected, "{name} did other work than natively");
    cell.usage.expect("a cell that ended has a usage").cpu
}

fn lines(guest: GuestName, loops: &[&str], times: &[Times], target: Option<(f64, f64)>) -> Vec<Line> {
    let mut lines = Vec::new();
    let title = if guest == GuestName::PythonData { "Data" } else { guest.language().title() };
    let count = loops.len() as f64;
    for (way, (meter, stops, fuel)) in METERS.into_iter().enumerate() {
        let (mut best_sum, mut median_sum) = (0.0_f64, 0.0_f64);
        for (name, times) in loops.iter().zip(times) {
            let (own, other) = (&times[way], &times[METERS.len()]);
            let (best, median) = (own.best() / other.best(), own.median() / other.median());
            best_sum += best.ln();
            median_sum += median.ln();
            let what = format!("{title}: {name}, {meter} (native {:.0} ms)", other.best() / 1e3);
            lines.push(Line::new(what, Unit::Times, best, median, None));
        }
        let what = format!("{title}: all {count} loops, {meter} ({})", native::describe(guest));
        let target = target.filter(|_| fuel.is_none()).map(|(epochs, safepoints)| match stops {
            Stops::Epochs => epochs,
            Stops::Safepoints => safepoints,
        });
        lines.push(Line::new(what, Unit::Times, (best_sum / count).exp(), (median_sum / count).exp(), target));
    }
    lines
}
