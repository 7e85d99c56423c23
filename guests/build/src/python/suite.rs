//! Test-suites of other people, as folders of packages that a session is granted.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{build_python, copy_tree, source};
use crate::inputs::Inputs;
use crate::process::run;
use crate::workshop::Workshop;

/// The packages whose tests are run, and what they need.
const TESTED: &str = include_str!("tested_packages.txt");
const NEEDED: &str = include_str!("test_requirements.txt");

/// Answers in place of the backends that build the packages.
const SOURCE_ARCHIVE: &str = include_str!("source_archive.py");
/// The modules of those backends. One that is missing here fails the fetch: `pip` finds no module of its name.
const BACKENDS: &[&str] =
    &["flit_core/buildapi", "hatchling/build", "setuptools/build_meta", "poetry/core/masonry/api"];

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
    inputs.text("tested", TESTED).text("needed", NEEDED).text("archives", SOURCE_ARCHIVE);
    inputs.value("python", source::SHA256);
    inputs.text("recipe", include_str!("suite.rs"));
    workshop.cache.product("suites", "python-packages", &inputs, |bench| {
        let (packages, archives) = (bench.out.join("packages"), bench.work.join("archives"));
        bench.step("fetch the packages", || install(&bench.work, &packages))?;
        bench.step("fetch their tests", || download(&bench.work, &archives))?;
        bench
            .step("unpack their tests", || unpack(&archives, &bench.out.join("tests"), &bench.work.join("tar.log")))?;
        let python = build_python::find(workshop)?;
        bench.step("compile the packages", || {
            let mut compile = Command::new(&python);
            compile.args(["-I", "-m", "compileall", "-q", "-j", "2", "--invalidation-mode", "checked-hash"]);
            run(compile.arg(&packages), &bench.work.join("compile.log"))
        })
    })
}

/// `pip` with what holds for both kinds of archives. Each is checked against its hash.
fn pip(action: &str) -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", action, "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
    pip
}

/// Installs the wheels that the guest's version of Python would get on Linux. One has machine code, which the sandbox
/// cannot load, beside the same in Python.
fn install(work: &Path, packages: &Path) -> Result<()> {
    let requirements = work.join("requirements.txt");
    fs::write(&requirements, format!("{TESTED}{NEEDED}"))?;
    let mut pip = pip("install");
    pip.args(["--no-compile", "--upgrade", "--only-binary", ":all:", "--implementation", "cp"]);
    pip.args(["--python-version", "3.13", "--platform", "manylinux2014_x86_64"]);
    pip.arg("--target").arg(packages).arg("-r").arg(&requirements);
    run(&mut pip, &work.join("install.log"))
}

/// Fetches source archives, and runs nothing of them.
fn download(work: &Path, archives: &Path) -> Result<()> {
    let requirements = work.join("tested.txt");
    fs::write(&requirements, TESTED)?;
    let backends = work.join("backends");
    for backend in BACKENDS {
        let file = backends.join(backend).with_extension("py");
        let folders = file.ancestors().skip(1).take_while(|folder| *folder != backends);
        fs::create_dir_all(file.parent().context("a backend is in a package")?)?;
        for folder in folders {
            fs::write(folder.join("__init__.py"), "")?;
        }
        fs::write(&file, SOURCE_ARCHIVE)?;
    }
    let mut pip = pip("download");
    pip.args(["--no-binary", ":all:", "--no-build-isolation", "--use-pep517"]).env("PYTHONPATH", &backends);
    run(pip.arg("--dest").arg(archives).arg("-r").arg(&requirements), &work.join("download.log"))
}

/// Unpacks each archive into a folder that has the package's name without its version.
fn unpack(archives: &Path, tests: &Path, log: &Path) -> Result<()> {
    for entry in fs::read_dir(archives)? {
        let archive = entry?.path();
        let name = archive.file_name().and_then(OsStr::to_str).context("an archive without a name")?;
        let (name, _) = name.rsplit_once('-').with_context(|| format!("`{name}` has no version"))?;
        let folder = tests.join(name);
        fs::create_dir_all(&folder)?;
        let mut tar = Command::new("tar");
        tar.arg("xf").arg(&archive).args(["--strip-components=1", "--no-same-owner", "-C"]).arg(&folder);
        run(&mut tar, log)?;
    }
    Ok(())
}
