//! What the data guest is made of besides CPython and C libraries: source archives that are compiled, wheels that are copied,
//! and the programs that compile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::inputs::{Inputs, files_below};
use crate::patches;
use crate::process::run;
use crate::python::{archives, build_python, compile, copy_tree};
use crate::workshop::Workshop;

/// Source archives of what is compiled.
pub(super) const CONTOURPY: &str = include_str!("contourpy.txt");
pub(super) const KIWISOLVER: &str = include_str!("kiwisolver.txt");
pub(super) const LXML: &str = include_str!("lxml.txt");
pub(super) const MATPLOTLIB: &str = include_str!("matplotlib.txt");
pub(super) const NUMPY: &str = include_str!("numpy.txt");
pub(super) const PANDAS: &str = include_str!("pandas.txt");
pub(super) const PILLOW: &str = include_str!("pillow.txt");
pub(super) const REGEX: &str = include_str!("regex.txt");
/// Those of headers that C++ is bound to Python with.
const CPPY: &str = include_str!("cppy.txt");
pub(super) const PYBIND11: &str = include_str!("pybind11.txt");
/// Where they lie in those.
const BINDINGS: &[(&str, &str, &str)] =
    &[("cppy", CPPY, "cppy/include/cppy"), ("pybind11", PYBIND11, "include/pybind11")];
/// Packages in pure Python, and one whose machine code is left behind.
const PURE: &str = include_str!("requirements.txt");
/// Those of them that we change.
const PATCHED: &[&str] = &["networkx", "plotly"];
/// meson and what it calls.
const TOOLS: &str = include_str!("tools.txt");

/// What the packages in pure Python are made from.
pub(super) fn inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    inputs.text("packages", PURE);
    inputs.text("recipe", include_str!("packages.rs"));
    for package in PATCHED {
        record_changes(workshop, package, &mut inputs)?;
    }
    Ok(inputs)
}

/// A folder with the packages in pure Python and their bytecode, made unless the cache has it.
pub(super) fn pure(workshop: &Workshop) -> Result<PathBuf> {
    workshop.cache.product("libraries", "python-data-packages", &inputs(workshop)?, |bench| {
        let packages = bench.work.join("packages");
        bench.step("fetch packages", || install(PURE, &packages, &bench.work))?;
        for package in PATCHED {
            patches::apply(&changes(workshop, "patches", package), &packages, &bench.work)?;
        }
        bench.step("copy packages", || copy_modules(&packages, &bench.out))?;
        let python = build_python::find(workshop)?;
        bench.step("compile packages", || compile(&python, &bench.out, &bench.work.join("compile.log")))
    })
}

/// Makes what compiles the packages, and what they include of ours, inputs of a product.
pub(super) fn record_tools(workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
    inputs.text("tools", TOOLS);
    for part in ["build", "include"] {
        inputs.tree(part, &super::folder(workshop).join(part))?;
    }
    Ok(())
}

/// Makes our changes to a package inputs of a product.
pub(super) fn record_changes(workshop: &Workshop, package: &str, inputs: &mut Inputs) -> Result<()> {
    for kind in ["added", "patches"] {
        let folder = changes(workshop, kind, package);
        if folder.exists() {
            inputs.tree(&format!("{kind} {package}"), &folder)?;
        }
    }
    Ok(())
}

/// Where our changes to a package lie: `patches`, and files that are `added` to it.
fn changes(workshop: &Workshop, kind: &str, package: &str) -> PathBuf {
    super::folder(workshop).join(kind).join(package)
}

/// A folder with the programs that compile, made unless the cache has it: Python packages, and programs in `bin`.
pub(super) fn tools(workshop: &Workshop) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    inputs.text("tools", TOOLS);
    workshop.cache.product("toolchains", "meson", &inputs, |bench| {
        bench.step("install meson and Cython", || install_for_this_machine(TOOLS, &bench.out, &bench.work))
    })
}

/// Puts wheels for this machine into a folder, as the guest's version of Python would get them.
pub(super) fn install_for_this_machine(requirements: &str, folder: &Path, work: &Path) -> Result<()> {
    let list = work.join("wheels.txt");
    fs::write(&list, requirements)?;
    let mut pip = wheels();
    // The Python that pip runs on may be another one.
    pip.args(["--python-version", "3.13", "--ignore-requires-python"]);
    run(pip.arg("--target").arg(folder).arg("-r").arg(&list), &work.join("wheels.log"))
}

/// Fetches a package's source archive, unpacks it into a folder of the package's name, and makes our changes to it.
pub(super) fn unpack(workshop: &Workshop, package: (&str, &str), folder: &Path, work: &Path) -> Result<()> {
    let ((name, source), fetched) = (package, work.join("archives"));
    archives::fetch(source, work, &fetched)?;
    archives::unpack(&fetched, folder, &work.join("tar.log"))?;
    let added = changes(workshop, "added", name);
    if added.exists() {
        copy_tree(&added, &folder.join(name))?;
    }
    let series = changes(workshop, "patches", name);
    if series.exists() { patches::apply(&series, &folder.join(name), work) } else { Ok(()) }
}

/// The version of the package that a list of one names.
pub(super) fn version(requirement: &str) -> &str {
    let named = requirement.split_once("==").map_or("", |(_, rest)| rest);
    named.split_whitespace().next().unwrap_or_default()
}

/// What the headers of [`bindings`] are made from.
pub(super) fn binding_inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    inputs.text("recipe", include_str!("packages.rs"));
    for (name, source, _) in BINDINGS {
        inputs.text(name, source);
        record_changes(workshop, name, &mut inputs)?;
    }
    Ok(inputs)
}

/// A folder with the headers that C++ is bound to Python with, made unless the cache has it.
pub(super) fn bindings(workshop: &Workshop) -> Result<PathBuf> {
    workshop.cache.product("libraries", "python-bindings", &binding_inputs(workshop)?, |bench| {
        let sources = bench.work.join("sources");
        BINDINGS.iter().try_for_each(|(name, source, headers)| {
            bench.step(&format!("fetch {name}"), || unpack(workshop, (name, source), &sources, &bench.work))?;
            copy_tree(&sources.join(name).join(headers), &bench.out.join(name))
        })
    })
}

/// Puts wheels into a folder: those that the guest's version of Python would get on Linux.
pub(super) fn install(requirements: &str, folder: &Path, work: &Path) -> Result<()> {
    let list = work.join("requirements.txt");
    fs::write(&list, requirements)?;
    let mut pip = wheels();
    pip.args(["--python-version", "3.13", "--implementation", "cp", "--platform", "manylinux2014_x86_64"]);
    // The Python that pip runs on may be another one.
    pip.arg("--ignore-requires-python");
    run(pip.arg("--target").arg(folder).arg("-r").arg(&list), &work.join("pip.log"))
}

/// `pip install` for wheels, each checked against its hash, with nothing that was not named.
fn wheels() -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
    pip.args(["--no-compile", "--upgrade", "--only-binary", ":all:"]);
    pip
}

/// What cells cannot use of a package: its tests, machine code, and what is for compilers and type checkers.
const ENDINGS_LEFT_OUT: &[&str] = &[".a", ".c", ".h", ".lib", ".pxd", ".pyi", ".pyx", ".so", ".typed"];
const FOLDERS_LEFT_OUT: &[&str] = &["__pycache__", "bin", "f2py", "include", "share", "tests"];

/// Copies what cells can use of installed packages.
pub(super) fn copy_modules(from: &Path, to: &Path) -> Result<()> {
    for file in files_below(from)? {
        let name = file.strip_prefix(from)?;
        let is_left_out = ENDINGS_LEFT_OUT.iter().any(|end| name.to_string_lossy().ends_with(end))
            || name.components().any(|part| FOLDERS_LEFT_OUT.iter().any(|folder| part.as_os_str() == *folder));
        if !is_left_out {
            let copy = to.join(name);
            fs::create_dir_all(copy.parent().unwrap_or(to))?;
            fs::copy(&file, &copy).with_context(|| format!("could not copy `{}`", file.display()))?;
        }
    }
    Ok(())
}

/// Writes what `importlib.metadata` knows of a package, which meson does not install.
pub(super) fn write_metadata(source: &Path, library: &Path) -> Result<()> {
    let metadata = fs::read_to_string(source.join("PKG-INFO"))?;
    let field = |name: &str| {
        let line = metadata.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.with_context(|| format!("`{}` has no `{name}` in its PKG-INFO", source.display()))
    };
    let folder = library.join(format!("{}-{}.dist-info", field("Name")?, field("Version")?));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("METADATA"), &metadata)?;
    Ok(())
}
