//! Arguments of `cellar test`.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;

use super::GrantArguments;

#[derive(Debug, Args)]
pub(crate) struct TestArguments {
    /// Files of tests, and folders to look for them in: `test_*.py` and `*_test.py` for pytest, `*.test.js`, `test-*.js` and
    /// what lies in folders `test` for node:test, also as .mjs, .cjs, .ts, .mts and .cts
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) paths: Vec<PathBuf>,
    /// Arguments of pytest, such as `-k NAME`
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) arguments: Vec<String>,
    /// Run all files of a language in one sandbox, rather than each in one of its own
    #[arg(long)]
    pub(crate) together: bool,
    /// Sandboxes at the same time [default: the number of cores]
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Write the results into this file as JUnit has them
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Write failures into this file as a report of code quality, as GitLab shows it
    #[arg(long, value_name = "FILE")]
    pub(crate) code_quality: Option<PathBuf>,
    /// Print the results as TAP, and nothing else
    #[arg(long)]
    pub(crate) tap: bool,
    /// Tell how much of the code the tests of Python have run, if the package `coverage` is granted
    #[arg(long)]
    pub(crate) coverage: bool,
    #[command(flatten)]
    pub(crate) granted: GrantArguments,
}
