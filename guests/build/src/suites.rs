//! Test-suites of other people that the guests must pass: fetched, checked and kept like the guests' own sources.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use crate::javascript;
use crate::python;
use crate::python_data;
use crate::test262;
use crate::workshop::Workshop;

/// A test-suite.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Suite {
    /// CPython's own tests of its standard library.
    PythonLibrary,
    /// Popular packages of Python with their own tests.
    PythonPackages,
    /// The tests of NumPy and pandas.
    PythonData,
    /// The tests of other packages that the data guest has.
    PythonDataPackages,
    /// ECMA's tests of JavaScript.
    Test262,
    /// The web's tests of addresses.
    Urls,
}

/// The folder of a suite, made unless the cache has it.
pub(crate) fn find(workshop: &Workshop, suite: Suite) -> Result<PathBuf> {
    match suite {
        Suite::PythonLibrary => python::suite::library_tests(workshop),
        Suite::PythonPackages => python::suite::package_tests(workshop),
        Suite::PythonData => python_data::suite::tests(workshop),
        Suite::PythonDataPackages => python_data::suite::package_tests(workshop),
        Suite::Test262 => test262::find(workshop),
        Suite::Urls => Ok(workshop.crate_source(&javascript::ADA)?.join("tests/wpt")),
    }
}
