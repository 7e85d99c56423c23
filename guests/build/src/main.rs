//! Builds the Cellar guests: the WebAssembly components that run cells.
//!
//! Every guest is built from pinned sources with a pinned compiler, and imports nothing but the kernel world. The
//! result is `target/guests/<name>/` with `guest.wasm` and `manifest.json`; baking and precompiling are the engine's.
//! To read the code, start with [`guest::Guest`].

mod c_libraries;
mod cache;
mod component;
mod debian;
mod deno;
mod exceptions;
mod fonts;
mod guest;
mod host;
mod inputs;
mod javascript;
mod javascript_charts;
mod libraries;
mod link;
mod native;
mod patches;
mod plan;
mod probe;
mod process;
mod profile;
mod program;
mod progress;
mod prune;
mod python;
mod python_data;
mod quickjs;
mod rebase;
mod sources;
mod suites;
mod test262;
mod times;
mod toolchain;
mod unroll;
mod workshop;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use crate::guest::Guest;
use crate::plan::Plan;
use crate::workshop::Workshop;

/// All guests, in the order they are built.
const GUESTS: &[&dyn Guest] = &[
    &probe::Probe,
    &javascript::JavaScript,
    &javascript_charts::JavaScriptCharts,
    &python::Python,
    &python_data::PythonData,
];

#[derive(Debug, Parser)]
#[command(name = "cellar-guests", about, version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build guests, all of them unless named. What the cache has is not built again.
    Build {
        /// Guests to build.
        names: Vec<String>,
        /// Where the finished guests go [default: target/guests in the checkout].
        #[arg(long)]
        out: Option<PathBuf>,
        /// Build again what the cache has.
        #[arg(long)]
        force: bool,
        /// Compile the host meanwhile, and bake the guests with it.
        #[arg(long)]
        host: bool,
    },
    /// Name the guests that can be built.
    List,
    /// Print the path of a native interpreter of a guest's version, built when there is none: benchmarks compare with it.
    Native {
        /// Whose interpreter.
        guest: native::Interpreter,
    },
    /// Print how long each step of the last builds with this cache took.
    Times {
        /// Write the table into this file, in the place of the last one.
        #[arg(long, value_name = "FILE")]
        record: Option<PathBuf>,
    },
    /// Print the path of a WASI program that is compiled from a C file, compiled unless the cache has it: a tool.
    Program {
        /// The C file.
        source: PathBuf,
    },
    /// Remove from the cache what was not used for some time: what older recipes and older engines left.
    Prune(prune::Prune),
    /// Try the patches of some sources on another version of these, and name each hunk that does not fit. Exits with 1 when one
    /// fails.
    Rebase(rebase::Rebase),
    /// Print the path of a test-suite that a guest must pass, fetched and unpacked when it is not there.
    Suite {
        /// Whose suite.
        suite: suites::Suite,
    },
}

fn main() -> ExitCode {
    let done = execute(Arguments::parse().command);
    progress::finish();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error must not turn a failure into a panic.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Result<()> {
    match command {
        Command::Build { names, out, force, host } => {
            let workshop = Workshop::open()?;
            let out = out.unwrap_or_else(|| workshop.root.join("target/guests"));
            Plan { guests: select(&names)?, out: &out, force, host }.carry_out(&workshop)?;
        }
        Command::List => {
            for guest in GUESTS {
                writeln!(std::io::stdout(), "{}\t{}", guest.name(), guest.language())?;
            }
        }
        Command::Native { guest } => {
            let path = native::find(&Workshop::open()?, guest)?;
            writeln!(std::io::stdout(), "{}", path.display())?;
        }
        Command::Times { record } => {
            let workshop = Workshop::open()?;
            let table = times::table(workshop.cache.root())?;
            match record {
                Some(path) => times::record(&table, &path)?,
                None => write!(std::io::stdout(), "{table}")?,
            }
        }
        Command::Program { source } => {
            let path = program::find(&Workshop::open()?, &source)?;
            writeln!(std::io::stdout(), "{}", path.display())?;
        }
        Command::Prune(options) => prune::prune(&Workshop::open()?.cache, options, &mut std::io::stdout())?,
        Command::Rebase(options) => rebase::rebase(&Workshop::open()?, &options, &mut std::io::stdout())?,
        Command::Suite { suite } => {
            let path = suites::find(&Workshop::open()?, suite)?;
            writeln!(std::io::stdout(), "{}", path.display())?;
        }
    }
    Ok(())
}

/// The guests of these names, or all when there is no name.
fn select(names: &[String]) -> Result<Vec<&'static dyn Guest>> {
    if names.is_empty() {
        return Ok(GUESTS.to_vec());
    }
    let mut selected = Vec::new();
    for name in names {
        let Some(guest) = GUESTS.iter().find(|guest| guest.name() == name) else {
            let known: Vec<_> = GUESTS.iter().map(|guest| guest.name()).collect();
            bail!("no guest `{name}`; there are {}", known.join(", "));
        };
        selected.push(*guest);
    }
    Ok(selected)
}
