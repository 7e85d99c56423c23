//! Test-suites of other people, run inside the sandbox: one test per module or file of a suite.
//!
//! A list in `fixtures/conformance` names the modules and the failures that are expected, with reasons; a failure that
//! is not listed fails the module, and so does a listed one that does not happen any more. The quick part of each suite
//! runs with all other tests; `CELLAR_CONFORMANCE=all` (`make conformance`) adds the rest, and
//! `CELLAR_CONFORMANCE=python-library,test262` all of some suites and nothing else.

mod expected;
mod javascript;
mod python;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use cellar_engine::{
    GuestName, Host, HostConfig, HostFolders,
    guests::{BakeOptions, bake},
};
use libtest_mimic::{Arguments, Failed, Trial};

/// A suite by name, and what makes its tests.
type Suite = (&'static str, fn(Selection) -> Result<Vec<Trial>, String>);

const SUITES: &[Suite] = &[
    ("python-library", python::library),
    ("python-packages", python::packages),
    ("python-data", python::data),
    ("python-data-packages", python::data_packages),
    ("test262", javascript::test262),
];

/// Selection of a suite's modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selection {
    Quick,
    All,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let wanted = std::env::var("CELLAR_CONFORMANCE").unwrap_or_default();
    let trials = match trials(&wanted) {
        Ok(trials) => trials,
        Err(error) => vec![Trial::test("lists", move || Err(error.into()))],
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trials(wanted: &str) -> Result<Vec<Trial>, String> {
    let names: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
    let wanted_names: Vec<&str> = match wanted {
        "" | "all" => names.clone(),
        wanted => wanted.split(',').collect(),
    };
    if let Some(unknown) = wanted_names.iter().find(|name| !names.contains(name)) {
        return Err(format!("no suite `{unknown}`: CELLAR_CONFORMANCE is `all` or some of {}", names.join(",")));
    }
    let selection = if wanted.is_empty() { Selection::Quick } else { Selection::All };
    let mut trials = Vec::new();
    for (name, make) in SUITES.iter().filter(|(name, _)| wanted_names.contains(name)) {
        trials.extend(make(selection).map_err(|error| format!("{name}: {error}"))?);
    }
    Ok(trials)
}

/// The top of the checkout.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of a suite. The builder of the guests knows where it is, or fetches it.
fn suite_folder(suite: &str) -> Result<PathBuf, String> {
    let builder = PathBuf::from(env!("CARGO_BIN_EXE_cellar")).with_file_name("cellar-guests");
    let output = Command::new(&builder).args(["suite", suite]).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("`{}`: {error}; run `make build`", builder.display()))?;
    if !output.status.success() {
        return Err(format!("the suite `{suite}` could not be fetched"));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// A host with one guest.
fn open_host(guest: GuestName) -> Result<Host, Failed> {
    let cache = std::env::var_os("CELLAR_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| dirs::cache_dir().map(|cache| cache.join("cellar"))).ok_or("no cache folder")?;
    let config =
        HostConfig { kernels_max: 4, ..HostConfig::new(HostFolders { guests: root().join("target/guests"), cache }) };
    bake(&config, guest, BakeOptions::default()).map_err(|error| format!("{error}; run `make guests data-guest`"))?;
    Ok(Host::open(config)?)
}
