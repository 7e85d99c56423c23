//! The tests of what the data guest has, which it leaves out.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::packages;
use crate::inputs::{Inputs, files_below};
use crate::python::archives;
use crate::workshop::Workshop;

/// pytest, and what the tests of NumPy and pandas import besides.
const NEEDED: &str = include_str!("test_requirements.txt");
/// Packages in pure Python whose tests are run.
const TESTED: &str = include_str!("tested_packages.txt");

/// The tests of NumPy and pandas.
pub(crate) fn tests(workshop: &Workshop) -> Result<PathBuf> {
    let folders = &[("numpy/numpy", "numpy"), ("pandas/pandas", "pandas")];
    product(workshop, "python-data", NEEDED, &[packages::NUMPY, packages::PANDAS], folders)
}

/// The tests of the other packages. They need nothing that the guest has not, pytest among it.
pub(crate) fn package_tests(workshop: &Workshop) -> Result<PathBuf> {
    let sources =
        &[packages::KIWISOLVER, packages::LXML, packages::MATPLOTLIB, packages::PILLOW, packages::REGEX, TESTED];
    let folders = &[
        ("kiwisolver/py", "kiwisolver"),
        ("lxml/src/lxml", "lxml"),
        ("matplotlib/lib/matplotlib", "matplotlib"),
        ("matplotlib/lib/mpl_toolkits", "mpl_toolkits"),
        ("pillow", "pillow"),
        ("regex/regex", "regex"),
        ("soupsieve", "soupsieve"),
        ("tabulate", "tabulate"),
    ];
    product(workshop, "python-data-packages", "", sources, folders)
}

/// A folder with `packages` that are needed, as `pip install --target` leaves it, and `tests`. Each of `folders` is one of
/// the sources, and where its tests lie in `tests`.
fn product(
    workshop: &Workshop,
    name: &str,
    needed: &str,
    sources: &[&str],
    folders: &[(&str, &str)],
) -> Result<PathBuf> {
    let sources = sources.concat();
    let mut inputs = Inputs::default();
    inputs.text("sources", &sources).text("needed", needed);
    inputs.text("recipe", include_str!("suite.rs"));
    workshop.cache.product("suites", name, &inputs, |bench| {
        let folder = bench.out.join("packages");
        fs::create_dir_all(&folder)?;
        if !needed.is_empty() {
            bench.step("fetch what the tests need", || packages::install(needed, &folder, &bench.work))?;
        }
        let (fetched, unpacked) = (bench.work.join("archives"), bench.work.join("sources"));
        bench.step("fetch the tests", || archives::fetch(&sources, &bench.work, &fetched))?;
        bench.step("unpack the tests", || archives::unpack(&fetched, &unpacked, &bench.work.join("tar.log")))?;
        bench.step("copy the tests", || {
            let to = bench.out.join("tests");
            folders.iter().try_for_each(|(from, name)| copy_tests(&unpacked.join(from), &to.join(name)))
        })
    })
}

/// Copies what lies in folders of tests, and the settings of pytest.
fn copy_tests(source: &Path, to: &Path) -> Result<()> {
    let is_folder_of_tests = |part: &std::ffi::OsStr| ["Tests", "test", "tests"].iter().any(|name| part == *name);
    for file in files_below(source)? {
        let name = file.strip_prefix(source)?;
        if name.components().any(|part| is_folder_of_tests(part.as_os_str())) || name.ends_with("conftest.py") {
            let copy = to.join(name);
            fs::create_dir_all(copy.parent().unwrap_or(to))?;
            fs::copy(&file, copy)?;
        }
    }
    Ok(())
}
