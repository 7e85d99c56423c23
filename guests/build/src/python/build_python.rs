//! A native Python of the guest's own version: CPython needs one to be cross-compiled, and it writes the `.pyc` files.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use super::source;
use crate::inputs::Inputs;
use crate::process::run;
use crate::workshop::Workshop;

/// Asks an interpreter whether it is a released CPython 3.13: all of them write the same bytecode.
const QUESTION: &str = "import sys; sys.exit(not (sys.version_info[:2] == (3, 13) and \
                        sys.version_info.releaselevel == 'final' and sys.implementation.name == 'cpython'))";

/// Path of the interpreter: one of the machine's, or else one built from the guest's own sources.
pub(crate) fn find(workshop: &Workshop) -> Result<PathBuf> {
    for candidate in candidates() {
        if works(&candidate) {
            return Ok(candidate);
        }
    }
    let mut inputs = Inputs::default();
    inputs.value("source", source::SHA256);
    inputs.text("recipe", include_str!("build_python.rs"));
    let folder = workshop.cache.product("toolchains", "build-python", &inputs, |bench| {
        let tree = bench.work.join("cpython");
        bench.step("unpack CPython", || source::unpack(workshop, &tree, &bench.work.join("unpack.log")))?;
        bench.step("configure the build Python", || {
            let mut configure = Command::new(tree.join("configure"));
            configure.current_dir(&tree).arg("--disable-test-modules").arg("--prefix").arg(&bench.out);
            run(&mut configure, &bench.work.join("configure.log"))
        })?;
        bench.step("compile the build Python", || {
            run(Command::new("make").arg("-j2").current_dir(&tree), &bench.work.join("make.log"))
        })?;
        // It runs from where it was installed: `bench.out` moves to its final place, and Python finds its library
        // relative to itself.
        bench.step("install the build Python", || {
            run(
                Command::new("make").args(["install", "ENSUREPIP=no"]).current_dir(&tree),
                &bench.work.join("install.log"),
            )
        })
    })?;
    Ok(folder.join("bin/python3.13"))
}

/// Interpreters that the machine may have.
fn candidates() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("python3.13")];
    if let Some(home) = std::env::home_dir()
        && let Ok(versions) = std::fs::read_dir(home.join(".pyenv/versions"))
    {
        let mut folders: Vec<_> = versions.flatten().map(|entry| entry.path()).collect();
        folders.sort();
        found.extend(folders.into_iter().map(|folder| folder.join("bin/python3.13")));
    }
    found
}

fn works(python: &Path) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", QUESTION]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
