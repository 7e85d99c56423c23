//! The tests of NumPy and pandas, which the guest leaves out.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::packages;
use crate::inputs::{Inputs, files_below};
use crate::python::archives;
use crate::workshop::Workshop;

/// pytest, and what the tests import besides.
const NEEDED: &str = include_str!("test_requirements.txt");

/// A folder with `packages`, as `pip install --target` leaves it, and `tests`, where each file lies as in its package.
pub(crate) fn tests(workshop: &Workshop) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    let sources_list = [packages::NUMPY, packages::PANDAS].concat();
    inputs.text("sources", &sources_list).text("needed", NEEDED);
    inputs.text("recipe", include_str!("suite.rs"));
    workshop.cache.product("suites", "python-data", &inputs, |bench| {
        bench.step("fetch what the tests need", || {
            packages::install(NEEDED, &bench.out.join("packages"), &bench.work)
        })?;
        let (fetched, sources) = (bench.work.join("archives"), bench.work.join("sources"));
        bench.step("fetch the tests", || archives::fetch(&sources_list, &bench.work, &fetched))?;
        bench.step("unpack the tests", || archives::unpack(&fetched, &sources, &bench.work.join("tar.log")))?;
        bench.step("copy the tests", || {
            let package = |name: &str| copy_tests(&sources.join(name), name, &bench.out.join("tests"));
            ["numpy", "pandas"].into_iter().try_for_each(package)
        })
    })
}

/// Copies what lies in folders named `tests`, and the settings of pytest.
fn copy_tests(source: &Path, package: &str, to: &Path) -> Result<()> {
    for file in files_below(&source.join(package))? {
        let name = file.strip_prefix(source)?;
        if name.components().any(|part| part.as_os_str() == "tests") || name.ends_with("conftest.py") {
            let copy = to.join(name);
            fs::create_dir_all(copy.parent().unwrap_or(to))?;
            fs::copy(&file, copy)?;
        }
    }
    Ok(())
}
