//! The tests of what the data guest has, which it leaves out.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::packages;
use crate::inputs::{Inputs, files_below};
use crate::python::{archives, copy_tree};
use crate::workshop::Workshop;

/// What the tests import that the guest has not.
const NEEDED: &str = include_str!("test_requirements.txt");
/// Packages in pure Python whose tests are run.
const TESTED: &str = include_str!("tested_packages.txt");

/// Where the tests of NumPy and pandas lie in the sources, and where in `tests`.
const ARRAYS: &[(&str, &str)] = &[("numpy/numpy", "numpy"), ("pandas/pandas", "pandas")];
/// The same of the other packages.
const OTHERS: &[(&str, &str)] = &[
    ("beautifulsoup4/bs4", "bs4"),
    ("charset_normalizer", "charset_normalizer"),
    ("contourpy", "contourpy"),
    ("cssselect", "cssselect"),
    ("html5lib/html5lib", "html5lib"),
    ("kiwisolver/py", "kiwisolver"),
    ("lxml/src/lxml", "lxml"),
    ("markdown", "markdown"),
    ("markdown_it_py", "markdown_it"),
    ("matplotlib/lib/matplotlib", "matplotlib"),
    ("matplotlib/lib/mpl_toolkits", "mpl_toolkits"),
    ("mpmath/mpmath", "mpmath"),
    ("networkx/networkx", "networkx"),
    ("pillow", "pillow"),
    ("plotly/plotly", "plotly"),
    ("python_docx", "docx"),
    ("python_pptx", "pptx"),
    ("pyyaml", "yaml"),
    ("regex/regex", "regex"),
    ("requests", "requests"),
    ("seaborn", "seaborn"),
    ("soupsieve", "soupsieve"),
    ("sympy/sympy", "sympy"),
    ("tabulate", "tabulate"),
    ("tqdm", "tqdm"),
    ("urllib3", "urllib3"),
];
/// What is copied whole: what tests read, settings of pytest, and a package whose tests lie among its modules.
const WHOLE: &[(&str, &str)] = &[
    ("charset_normalizer/data", "charset_normalizer/data"),
    ("mpmath/conftest.py", "mpmath/conftest.py"),
    ("patsy/patsy", "patsy"),
];

/// The tests of NumPy and pandas.
pub(crate) fn tests(workshop: &Workshop) -> Result<PathBuf> {
    product(workshop, "python-data", &[packages::NUMPY, packages::PANDAS], ARRAYS, &[])
}

/// The tests of the other packages.
pub(crate) fn package_tests(workshop: &Workshop) -> Result<PathBuf> {
    let sources = &[
        packages::CONTOURPY,
        packages::KIWISOLVER,
        packages::LXML,
        packages::MATPLOTLIB,
        packages::PILLOW,
        packages::REGEX,
        TESTED,
    ];
    product(workshop, "python-data-packages", sources, OTHERS, WHOLE)
}

/// A folder with `packages` that are needed, as `pip install --target` leaves it, and `tests`. Each of `folders` is one of
/// the sources, and where its tests lie in `tests`; of each of `whole` all is copied.
fn product(
    workshop: &Workshop,
    name: &str,
    sources: &[&str],
    folders: &[(&str, &str)],
    whole: &[(&str, &str)],
) -> Result<PathBuf> {
    let sources = sources.concat();
    let mut inputs = Inputs::default();
    inputs.text("sources", &sources).text("needed", NEEDED);
    inputs.text("recipe", include_str!("suite.rs"));
    workshop.cache.product("suites", name, &inputs, |bench| {
        let folder = bench.out.join("packages");
        fs::create_dir_all(&folder)?;
        bench.step("fetch what the tests need", || packages::install(NEEDED, &folder, &bench.work))?;
        let (fetched, unpacked) = (bench.work.join("archives"), bench.work.join("sources"));
        bench.step("fetch the tests", || archives::fetch(&sources, &bench.work, &fetched))?;
        bench.step("unpack the tests", || archives::unpack(&fetched, &unpacked, &bench.work.join("tar.log")))?;
        bench.step("copy the tests", || {
            let to = bench.out.join("tests");
            folders.iter().try_for_each(|(from, name)| copy_tests(&unpacked.join(from), &to.join(name)))?;
            whole.iter().try_for_each(|(from, name)| copy_whole(&unpacked.join(from), &to.join(name)))
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

/// Copies a folder, or a file into a folder that there is.
fn copy_whole(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        return copy_tree(from, to);
    }
    fs::copy(from, to)?;
    Ok(())
}
