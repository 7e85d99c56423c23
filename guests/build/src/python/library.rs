//! The standard library as the guest mounts it: Python files with their bytecode beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{LIBRARY_MOUNT, build_python, copy_tree, cpython, source};
use crate::inputs::{Inputs, sha256_hex};
use crate::process::run;
use crate::workshop::Workshop;

/// The time zone data of the guest, which has no `/usr/share/zoneinfo`.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// Parts that a cell cannot use: what needs a terminal, a screen, a compiler or a package index.
const LEFT_OUT: &[&str] = &[
    "__phello__",
    "config-3.13-wasm32-wasi",
    "curses",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
    "venv",
];
const FILES_LEFT_OUT: &[&str] = &["turtle.py", "antigravity.py", "this.py", "__hello__.py"];

/// What the library is made from.
pub(super) fn inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    inputs.value("constant", digest_constant());
    inputs.value("cpython", cpython::inputs(workshop)?.digest());
    Ok(inputs)
}

/// Changes whenever the library does.
pub(super) fn digest_constant() -> String {
    sha256_hex(format!("{}{}{REQUIREMENTS}", source::SHA256, include_str!("library.rs")).as_bytes())
}

/// The folder to mount, made unless the cache has it.
pub(super) fn library(workshop: &Workshop) -> Result<PathBuf> {
    let libraries = cpython::libraries(workshop)?;
    workshop.cache.product("libraries", "python-standard-library", &inputs(workshop)?, |bench| {
        let tree = bench.work.join("cpython");
        bench.step("unpack CPython", || source::unpack(workshop, &tree, &bench.work.join("unpack.log")))?;
        bench.step("copy the modules", || {
            copy_modules(&tree.join("Lib"), &bench.out)?;
            copy_tree(&libraries.join("sysconfig"), &bench.out)
        })?;
        let python = build_python::find(workshop)?;
        bench.step("fetch the time zones", || {
            let requirements = bench.work.join("requirements.txt");
            fs::write(&requirements, REQUIREMENTS)?;
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
            pip.args(["--no-compile", "--only-binary", ":all:", "--upgrade", "--target"])
                .arg(bench.work.join("tzdata"));
            run(pip.arg("-r").arg(&requirements), &bench.work.join("pip.log"))?;
            copy_tree(&bench.work.join("tzdata/tzdata"), &bench.out.join("tzdata"))
        })?;
        bench.step("compile the modules", || compile(&python, &bench.out, &bench.work.join("compile.log")))
    })
}

/// Copies the modules that cells can use.
fn copy_modules(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let entries = fs::read_dir(from).with_context(|| format!("could not list `{}`", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !LEFT_OUT.contains(&&*name) && name != "__pycache__" {
                copy_modules(&entry.path(), &to.join(&*name))?;
            }
        } else if name.ends_with(".py") && !FILES_LEFT_OUT.contains(&&*name) {
            fs::copy(entry.path(), to.join(&*name))?;
        }
    }
    Ok(())
}

/// Writes bytecode that is taken as it is: nothing in the guest's library ever changes.
fn compile(python: &Path, folder: &Path, log: &Path) -> Result<()> {
    let mut command = Command::new(python);
    command.args(["-I", "-m", "compileall", "-q", "-j", "2", "--invalidation-mode", "unchecked-hash"]);
    // Tracebacks name the files as the guest sees them.
    command.arg("-s").arg(folder).args(["-p", LIBRARY_MOUNT]).arg(folder);
    run(&mut command, log)
}
