//! C libraries that packages are compiled against and linked with, as static archives for the guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Bench;
use crate::debian::Original;
use crate::inputs::{Inputs, files_below};
use crate::process::{Job, run, run_all};
use crate::python;
use crate::workshop::Workshop;

/// How all of them are compiled.
const COMPILE_FLAGS: &[&str] = &["-O3", "-g0", "-w", "-DNDEBUG", "-msimd128"];

/// Libraries that are one product of the cache: a folder with `lib/*.a` and `include/`.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: &'static str,
    /// Each may include the headers of those before it.
    pub(super) libraries: &'static [Library],
    /// Flags for all of them.
    pub(super) flags: &'static [&'static str],
}

/// A C library that is compiled without its own build system.
#[derive(Debug)]
pub(super) struct Library {
    /// The archive without `lib` and its ending. Headers that its own build would make lie in a folder of this name in
    /// `guests/python-data/libraries`.
    pub(super) name: &'static str,
    pub(super) source: Original,
    /// C files below the folder of the sources: one each, or all of a folder.
    pub(super) files: &'static [&'static str],
    /// Files of those folders are left out that have such a word in their name.
    pub(super) without: &'static [&'static str],
    /// Folders of its own headers.
    pub(super) includes: &'static [&'static str],
    /// Headers and folders of headers that its users include, and where they are found by them.
    pub(super) headers: &'static [(&'static str, &'static str)],
    pub(super) flags: &'static [&'static str],
}

/// Where headers lie that the libraries' own builds would make.
fn own_headers(workshop: &Workshop) -> PathBuf {
    super::folder(workshop).join("libraries")
}

impl Group {
    /// What the archives are made from.
    pub(super) fn inputs(&self, workshop: &Workshop) -> Result<Inputs> {
        let mut inputs = Inputs::default();
        Workshop::record_toolchain(&mut inputs);
        inputs.text("recipe", include_str!("static_libraries.rs")).value("libraries", format!("{self:?}"));
        for library in self.libraries {
            let own = own_headers(workshop).join(library.name);
            if own.exists() {
                inputs.tree(library.name, &own)?;
            }
        }
        inputs.tree("headers of CPython", &python::headers(workshop)?.join("include"))?;
        Ok(inputs)
    }

    /// The folder with the archives, made unless the cache has it.
    pub(super) fn product(&self, workshop: &Workshop) -> Result<PathBuf> {
        workshop.cache.product("libraries", self.name, &self.inputs(workshop)?, |bench| {
            for folder in ["lib", "include"] {
                fs::create_dir_all(bench.out.join(folder))?;
            }
            self.libraries.iter().try_for_each(|library| {
                let title = format!("compile {}", library.name);
                bench.step(&title, || library.make(workshop, bench, self.flags))
            })
        })
    }
}

impl Library {
    fn make(&self, workshop: &Workshop, bench: &Bench, flags: &[&str]) -> Result<()> {
        let sources = bench.work.join(self.name);
        self.unpack(workshop, &sources, bench)?;
        let objects = bench.work.join(format!("{}-objects", self.name));
        fs::create_dir_all(&objects)?;
        let toolchain = workshop.toolchain(&bench.work)?;
        let zlib = python::headers(workshop)?.join("include");
        let (mut jobs, mut made) = (Vec::new(), Vec::new());
        for source in self.sources(&sources)? {
            let name = source.strip_prefix(&sources)?.to_string_lossy().replace('/', "-");
            let object = objects.join(name).with_extension("o");
            let mut command = toolchain.cc();
            command.args(COMPILE_FLAGS).args(flags).args(self.flags);
            command.args(self.includes.iter().map(|folder| format!("-I{}", sources.join(folder).display())));
            command.arg("-I").arg(bench.out.join("include"));
            command.arg("-I").arg(&zlib).arg("-c").arg(&source).arg("-o").arg(&object);
            jobs.push(Job { command, log: object.with_extension("log") });
            made.push(object);
        }
        run_all(jobs)?;
        let mut ar = toolchain.ar();
        ar.arg("rcsD").arg(bench.out.join(format!("lib/lib{}.a", self.name))).args(&made);
        run(&mut ar, &objects.join("ar.log"))?;
        self.headers
            .iter()
            .try_for_each(|(from, to)| copy_headers(&sources.join(from), &bench.out.join("include").join(to)))
    }

    /// Unpacks the sources, with the headers that their own build would make.
    fn unpack(&self, workshop: &Workshop, folder: &Path, bench: &Bench) -> Result<()> {
        let archive = self.source.fetch(workshop)?;
        fs::create_dir_all(folder)?;
        let mut tar = Command::new("tar");
        tar.arg("xf").arg(&archive).args(["--strip-components=1", "--no-same-owner", "-C"]).arg(folder);
        run(&mut tar, &bench.work.join("tar.log"))?;
        let own = own_headers(workshop).join(self.name);
        if own.exists() { copy_headers(&own, folder) } else { Ok(()) }
    }

    /// The C files, in a fixed order.
    fn sources(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for part in self.files {
            let path = folder.join(part);
            for file in files_below(&path)? {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if name.ends_with(".c") && !self.without.iter().any(|word| name.contains(word)) {
                    found.push(file);
                }
            }
        }
        Ok(found)
    }
}

/// Copies a header, or all of a folder.
fn copy_headers(from: &Path, to: &Path) -> Result<()> {
    for file in files_below(from)?.iter().filter(|file| file.extension().is_some_and(|end| end == "h")) {
        let copy = if from.is_file() { to.to_owned() } else { to.join(file.strip_prefix(from)?) };
        fs::create_dir_all(copy.parent().unwrap_or(to))?;
        fs::copy(file, &copy).with_context(|| format!("could not copy `{}`", file.display()))?;
    }
    Ok(())
}
