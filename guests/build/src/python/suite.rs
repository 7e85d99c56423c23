//! Test-suites of other people, as folders of packages that a session is granted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{archives, build_python, copy_tree, source};
use crate::inputs::Inputs;
use crate::process::run;
use crate::workshop::Workshop;

/// The packages whose tests are run, and what they need.
const TESTED: &str = include_str!("tested_packages.txt");
const NEEDED: &str = include_str!("test_requirements.txt");

/// CPython's own tests: a folder with the package `test`, which the guest's library leaves out. There is no bytecode in
/// it, so that the guest's own compiler is tested too.
pub(crate) fn library_tests(workshop: &Workshop) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    inputs.value("source", source::SHA256);
    inputs.text("recipe", include_str!("suite.rs"));
    workshop.cache.product("suites", "python-library", &inputs, |bench| {
        let tree = bench.work.join("cpython");
        bench.step("unpack CPython", || source::unpack(workshop, &tree, &bench.work.join("unpack.log")))?;
        bench.step("copy the tests", || copy_tree(&tree.join("Lib/test"), &bench.out.join("test")))
    })
}

/// Popular packages with their own tests: `packages`, as `pip install --target` leaves it with the guest's version of
/// Python, and `tests`, with the source of each package in a folder of its name.
pub(crate) fn package_tests(workshop: &Workshop) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    inputs.text("tested", TESTED).text("needed", NEEDED);
    inputs.value("python", source::SHA256);
    inputs.text("recipe", concat!(include_str!("suite.rs"), include_str!("archives.rs")));
    workshop.cache.product("suites", "python-packages", &inputs, |bench| {
        let (packages, fetched) = (bench.out.join("packages"), bench.work.join("archives"));
        bench.step("fetch the packages", || install(&bench.work, &packages))?;
        bench.step("fetch their tests", || archives::fetch(TESTED, &bench.work, &fetched))?;
        bench.step("unpack their tests", || {
            archives::unpack(&fetched, &bench.out.join("tests"), &bench.work.join("tar.log"))
        })?;
        let python = build_python::find(workshop)?;
        bench.step("compile the packages", || {
            let mut compile = Command::new(&python);
            compile.args(["-I", "-m", "compileall", "-q", "-j", "2", "--invalidation-mode", "checked-hash"]);
            run(compile.arg(&packages), &bench.work.join("compile.log"))
        })
    })
}

/// Installs the wheels that the guest's version of Python would get on Linux. One has machine code, which the sandbox
/// cannot load, beside the same in Python.
fn install(work: &Path, packages: &Path) -> Result<()> {
    let requirements = work.join("requirements.txt");
    fs::write(&requirements, format!("{TESTED}{NEEDED}"))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
    pip.args(["--no-compile", "--upgrade", "--only-binary", ":all:", "--implementation", "cp"]);
    pip.args(["--python-version", "3.13", "--platform", "manylinux2014_x86_64"]);
    pip.arg("--target").arg(packages).arg("-r").arg(&requirements);
    run(&mut pip, &work.join("install.log"))
}
