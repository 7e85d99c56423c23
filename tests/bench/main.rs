//! Measures what the engine promises to be good at, and prints one table that sets it against the targets.
//!
//! `cargo bench --profile release --workspace --bench bench [-- --quick] [-- --guard | --record] [-- WORD...]`, with the command
//! built before. Words select the measurements whose name contains one of them. `--record` writes what was measured to
//! `host/figures.json`; `--guard` compares with what lies there, and fails when something became slower by more than its own
//! spread. Each measurement runs in a process of its own, so that none finds the memory and the threads of another; progress,
//! criterion's comparison with the last time included, goes to standard error. The best time of each is the one to
//! read on a machine that does other things too.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a measurement that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the table is the product")]

mod bridges;
mod charts;
mod figures;
mod frames;
mod images;
mod imports;
mod lab;
mod loops;
mod machine;
mod native;
mod package;
mod peers;
mod process;
mod served;
mod sessions;
mod state;
mod stops;
mod table;
mod traffic;

use std::{
    io::stderr,
    process::{Command, ExitCode},
};

use tikv_jemallocator::Jemalloc;

use crate::{
    figures::Figures,
    lab::Plan,
    table::{Line, print_slower, print_table},
};

/// Allocator of the command line.
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
        frames::MEASUREMENTS,
        stops::MEASUREMENTS,
        state::MEASUREMENTS,
        process::MEASUREMENTS,
        package::MEASUREMENTS,
        served::MEASUREMENTS,
        traffic::MEASUREMENTS,
        charts::MEASUREMENTS,
        images::MEASUREMENTS,
        loops::MEASUREMENTS,
        peers::MEASUREMENTS,
    ]
    .concat()
    .into_iter()
    .map(|(name, measure)| Measurement { name, measure })
    .collect()
}

/// Measurement that a module adds to [`measurements`]: its name and its function.
type Offer = (&'static str, fn(&Plan) -> Vec<Line>);

fn main() -> ExitCode {
    let mut words = Vec::new();
    let (mut is_quick, mut only, mut use_of_figures) = (false, None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // Given by cargo.
            "--bench" => {}
            "--quick" => is_quick = true,
            "--guard" => use_of_figures = Some(UseOfFigures::Guard),
            "--record" => use_of_figures = Some(UseOfFigures::Record),
            "--only" => only = arguments.next().zip(arguments.next()),
            _ => words.push(argument.to_lowercase()),
        }
    }
    // The profile that cargo takes by itself is that of unit tests: see `Cargo.toml`.
    if cfg!(debug_assertions) {
        eprintln!(
            "error: this was compiled without optimisation; run `make bench`, or `cargo bench --profile release`"
        );
        return ExitCode::FAILURE;
    }
    let plan = Plan::new(is_quick);
    if let Some((name, file)) = only {
        return measure_here(&plan, &name, &file);
    }
    if let Err(hint) = plan.prepare() {
        eprintln!("error: {hint}");
        return ExitCode::FAILURE;
    }
    let Some(lines) = measure_all(&words, is_quick) else { return ExitCode::FAILURE };
    let now = Figures { machine: machine::processor(), figures: lines.iter().map(Line::figure).collect() };
    match use_of_figures {
        None => ExitCode::SUCCESS,
        Some(UseOfFigures::Record) => record(now),
        Some(UseOfFigures::Guard) => guard(&now),
    }
}

/// Use of the figures of the last commit that wrote them.
enum UseOfFigures {
    Guard,
    Record,
}

/// Writes what was measured, and leaves what was not.
fn record(now: Figures) -> ExitCode {
    let path = Figures::path();
    let mut figures = Figures::read(&path).unwrap_or_else(|_| now.clone());
    figures.renew(now);
    figures.write(&path).expect("the figures can be written");
    println!("wrote {}", path.display());
    ExitCode::SUCCESS
}

/// Names what became slower.
fn guard(now: &Figures) -> ExitCode {
    let path = Figures::path();
    let before = match Figures::read(&path) {
        Ok(before) => before,
        Err(error) => {
            eprintln!("error: there is nothing to compare with in {}: {error}; write it with --record", path.display());
            return ExitCode::FAILURE;
        }
    };
    let comparison = now.compare(&before);
    println!("\n{} figures compared with those of {}", comparison.compared, before.machine);
    if now.machine != before.machine {
        let machine = comparison.machine;
        println!("this is another machine, where things take {machine:.2} times as long; that much is taken off");
    }
    if !comparison.unknown.is_empty() {
        println!("not measured before: {}", comparison.unknown.join("; "));
    }
    if comparison.slower.is_empty() {
        println!("nothing became slower by more than its spread");
        return ExitCode::SUCCESS;
    }
    print_slower(&comparison);
    ExitCode::FAILURE
}

/// Measures one thing and leaves its lines in a file.
fn measure_here(plan: &Plan, name: &str, file: &str) -> ExitCode {
    let measurement = measurements().into_iter().find(|measurement| measurement.name == name);
    let lines = (measurement.expect("a measurement of that name").measure)(plan);
    std::fs::write(file, serde_json::to_vec(&lines).expect("lines are plain data")).expect("the file can be written");
    ExitCode::SUCCESS
}

/// Measures what is wanted, and prints the table. `None` when something failed.
fn measure_all(words: &[String], is_quick: bool) -> Option<Vec<Line>> {
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.to_lowercase().contains(word));
    let selected: Vec<Measurement> = measurements().into_iter().filter(|found| wanted(found.name)).collect();
    if selected.is_empty() {
        eprintln!("error: no measurement's name contains one of these words; there are");
        measurements().iter().for_each(|found| eprintln!("  {}", found.name));
        return None;
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
        return Some(lines);
    }
    eprintln!("error: these failed: {}", failed.join(", "));
    None
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
