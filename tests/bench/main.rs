//! Measures what the engine promises to be good at, and prints one table that sets it against the targets.
//!
//! `cargo bench --bench bench [-- --quick] [-- WORD...]`. Words select the measurements whose name contains one of them.
//! Each measurement runs in a process of its own, so that none finds the memory and the threads of another; progress,
//! criterion's comparison with the last time included, goes to standard error. The best time of each is the one to
//! read on a machine that does other things too.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the table is the product")]

mod bridges;
mod charts;
mod imports;
mod lab;
mod loops;
mod machine;
mod native;
mod process;
mod sessions;
mod state;
mod stops;
mod table;

use std::{
    io::stderr,
    process::{Command, ExitCode},
};

use tikv_jemallocator::Jemalloc;

use crate::{
    lab::Plan,
    table::{Line, print_table},
};

/// That of the command line.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Something to measure, and the lines of the table that come of it.
struct Measurement {
    name: &'static str,
    measure: fn(&Plan) -> Vec<Line>,
}

/// Everything that is measured, in the order of the table.
fn measurements() -> Vec<Measurement> {
    [
        sessions::MEASUREMENTS,
        imports::MEASUREMENTS,
        bridges::MEASUREMENTS,
        stops::MEASUREMENTS,
        state::MEASUREMENTS,
        process::MEASUREMENTS,
        charts::MEASUREMENTS,
        loops::MEASUREMENTS,
    ]
    .concat()
    .into_iter()
    .map(|(name, measure)| Measurement { name, measure })
    .collect()
}

/// What a module offers to [`measurements`].
type Offer = (&'static str, fn(&Plan) -> Vec<Line>);

fn main() -> ExitCode {
    let mut words = Vec::new();
    let (mut is_quick, mut only) = (false, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // Given by cargo.
            "--bench" => {}
            "--quick" => is_quick = true,
            "--only" => only = arguments.next().zip(arguments.next()),
            _ => words.push(argument.to_lowercase()),
        }
    }
    let plan = Plan::new(is_quick);
    if let Some((name, file)) = only {
        return measure_here(&plan, &name, &file);
    }
    if let Err(hint) = plan.prepare() {
        eprintln!("error: {hint}");
        return ExitCode::FAILURE;
    }
    measure_all(&words, is_quick)
}

/// Measures one thing and leaves its lines in a file.
fn measure_here(plan: &Plan, name: &str, file: &str) -> ExitCode {
    let measurement = measurements().into_iter().find(|measurement| measurement.name == name);
    let lines = (measurement.expect("a measurement of that name").measure)(plan);
    std::fs::write(file, serde_json::to_vec(&lines).expect("lines are plain data")).expect("the file can be written");
    ExitCode::SUCCESS
}

fn measure_all(words: &[String], is_quick: bool) -> ExitCode {
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.to_lowercase().contains(word));
    let selected: Vec<Measurement> = measurements().into_iter().filter(|found| wanted(found.name)).collect();
    if selected.is_empty() {
        eprintln!("error: no measurement's name contains one of these words; there are");
        measurements().iter().for_each(|found| eprintln!("  {}", found.name));
        return ExitCode::FAILURE;
    }
    let before = machine::load();
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    for measurement in &selected {
        eprintln!("--- {}", measurement.name);
        match measure_apart(measurement.name, is_quick) {
            Some(found) => lines.extend(found),
            None => failed.push(measurement.name),
        }
    }
    print_table(&lines);
    println!("\n{}; load average {before} before, {} after", machine::describe(), machine::load());
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: these failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Measures one thing in a process of its own. Criterion's own report would spoil standard output.
fn measure_apart(name: &str, is_quick: bool) -> Option<Vec<Line>> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.arg("--only").arg(name).arg(file.path()).stdout(stderr());
    if is_quick {
        command.arg("--quick");
    }
    let status = command.status().expect("this program can be started again");
    if !status.success() {
        return None;
    }
    let text = std::fs::read(file.path()).expect("the lines were written");
    Some(serde_json::from_slice(&text).expect("the lines were written by this program"))
}
