//! The standard library as the guest mounts it: Python files with their bytecode beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{LIBRARY_MOUNT, build_python, copy_tree, cpython, source};
use crate::inputs::{Inputs, sha256_hex};
use crate::patches;
use crate::process::run;
use crate::workshop::Workshop;

/// Packages that come with the guest.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// Parts of these packages that the guest has, and their folders: the time zones, for there is no `/usr/share/zoneinfo`; pytest
/// with what it needs, of Pygments' lexers those of Python and of differences alone; and, in a folder that cells do not import
/// from, what the prelude uses.
const PACKAGES: &[(&str, &[&str])] = &[
    ("", &["tzdata"]),
    ("", &["_pytest", "iniconfig", "packaging", "pluggy", "py.py", "pytest"]),
    (
        "",
        &[
            "pygments/__init__.py",
            "pygments/console.py",
            "pygments/filter.py",
            "pygments/filters/__init__.py",
            "pygments/formatter.py",
            "pygments/formatters/__init__.py",
            "pygments/formatters/_mapping.py",
            "pygments/formatters/terminal.py",
            "pygments/lexer.py",
            "pygments/lexers/__init__.py",
            "pygments/lexers/_mapping.py",
            "pygments/lexers/diff.py",
            "pygments/lexers/python.py",
            "pygments/modeline.py",
            "pygments/plugin.py",
            "pygments/regexopt.py",
            "pygments/scanner.py",
            "pygments/style.py",
            "pygments/styles/__init__.py",
            "pygments/styles/_mapping.py",
            "pygments/styles/default.py",
            "pygments/token.py",
            "pygments/unistring.py",
            "pygments/util.py",
        ],
    ),
    (
        "cellar-vendored",
        &[
            "IPython/core/__init__.py",
            "IPython/core/display.py",
            "IPython/core/display_functions.py",
            "IPython/display.py",
            "IPython/lib/__init__.py",
            "IPython/lib/display.py",
            "IPython/lib/pretty.py",
            "IPython/testing/__init__.py",
            "IPython/testing/skipdoctest.py",
            "IPython/utils/__init__.py",
            "IPython/utils/dir2.py",
            "bs4",
            "markdownify",
            "six.py",
            "soupsieve",
            "typing_extensions.py",
        ],
    ),
];

/// Packages whose metadata is taken as well: which programs they have, and which version they are.
const DESCRIBED: &[&str] = &["iniconfig", "packaging", "pluggy", "pygments", "pytest"];

/// Parts that a cell cannot use: what needs a terminal, a screen, a compiler, a C library or a package index. The
/// prelude has modules in the place of some.
const LEFT_OUT: &[&str] = &[
    "__phello__",
    "config-3.13-wasm32-wasi",
    "ctypes",
    "curses",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "site-packages",
    "test",
    "tests",
    "tkinter",
    "turtledemo",
    "venv",
];
const FILES_LEFT_OUT: &[&str] = &["ssl.py", "turtle.py", "antigravity.py", "__hello__.py"];

/// What the library is made from.
pub(super) fn inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    inputs.value("constant", digest_constant());
    inputs.value("cpython", cpython::inputs(workshop)?.digest());
    inputs.tree("changes to pytest", &changes(workshop))?;
    Ok(inputs)
}

/// Our changes to pytest.
fn changes(workshop: &Workshop) -> PathBuf {
    workshop.root.join("guests/python-data/patches/pytest")
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
        let packages = bench.work.join("packages");
        bench.step("fetch packages", || {
            let requirements = bench.work.join("requirements.txt");
            fs::write(&requirements, REQUIREMENTS)?;
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
            // They are for the guest's Python, whichever the machine has.
            pip.args(["--no-compile", "--only-binary", ":all:", "--python-version", "3.13", "--upgrade"]);
            pip.arg("--target").arg(&packages).arg("-r").arg(&requirements);
            run(&mut pip, &bench.work.join("pip.log"))?;
            patches::apply(&changes(workshop), &packages, &bench.work)
        })?;
        bench.step("copy packages", || copy_packages(&packages, &bench.out))?;
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

/// Copies what the guest needs of the packages that were fetched.
fn copy_packages(from: &Path, to: &Path) -> Result<()> {
    for (folder, names) in PACKAGES {
        for name in *names {
            let (source, copy) = (from.join(name), to.join(folder).join(name));
            if source.is_dir() {
                copy_tree(&source, &copy)?;
            } else {
                fs::create_dir_all(copy.parent().unwrap_or(to))?;
                fs::copy(&source, &copy).with_context(|| format!("could not copy `{}`", source.display()))?;
            }
        }
    }
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let is_described = name.strip_suffix(".dist-info").and_then(|name| name.split_once('-'));
        if is_described.is_some_and(|(package, _)| DESCRIBED.contains(&package)) {
            copy_tree(&from.join(&*name), &to.join(&*name))?;
        }
    }
    Ok(())
}

/// Writes bytecode that is taken as it is: nothing in the guest's library ever changes.
pub(crate) fn compile(python: &Path, folder: &Path, log: &Path) -> Result<()> {
    let mut command = Command::new(python);
    command.args(["-I", "-m", "compileall", "-q", "-j", "2", "--invalidation-mode", "unchecked-hash"]);
    // Tracebacks name the files as the guest sees them.
    command.arg("-s").arg(folder).args(["-p", LIBRARY_MOUNT]).arg(folder);
    run(&mut command, log)
}
