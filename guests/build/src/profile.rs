//! Profiles: how often each piece of a guest's C code runs, for the compiler to lay out what runs often for speed.
//!
//! Entering a function costs more in WebAssembly than natively, and what is not inlined where it is hot is entered time
//! and again. The code is compiled with clang's counters, which stand at the branches of the source and not of what
//! the optimiser made of it, runs a training program in Node, and leaves its counters in a file.

mod counts;
mod indexed;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Bench;
use crate::inputs::Inputs;
use crate::process::run;
use crate::workshop::Workshop;

/// Runs a WebAssembly program of which `/` is a folder: `node run.mjs PROGRAM FOLDER`.
const RUNNER: &str = include_str!("profile/run.mjs");

/// A header by which a training program clears its counters, and writes them to `/counts`.
const COUNTERS: &str = include_str!("profile/counters.h");

/// All that decides what a profile looks like.
const RECIPE: &[&str] = &[
    include_str!("profile.rs"),
    include_str!("profile/counts.rs"),
    include_str!("profile/indexed.rs"),
    COUNTERS,
    RUNNER,
];

/// How trained code is compiled. Counters are the same however it is optimised; this builds fastest.
const COMPILE_FLAGS: &[&str] = &["-Os", "-g0", "-DNDEBUG", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-w"];

/// Counters, with readable names.
pub(crate) const COUNTER_FLAGS: &[&str] = &["-fprofile-instr-generate", "-mllvm", "-enable-name-compression=false"];

/// Name of the file that [`train`] leaves.
const PROFILE: &str = "profile";

/// Interpreters recurse deeply, so Node takes a stack of so many KiB. Optimising their largest functions would take it
/// minutes, and the programs run for seconds.
const NODE_FLAGS: &[&str] = &["--no-warnings", "--stack-size=3900", "--no-wasm-tier-up"];

/// The C stack of a training program, which takes more of it than the guest.
const STACK_BYTES: u32 = 8 * 1024 * 1024;

/// What is trained, and how.
#[derive(Debug)]
pub(crate) struct Training<'a> {
    /// Name of the profile in the cache.
    pub(crate) name: &'static str,
    /// The program, which writes its counters to `/counts`; all that lies beside it is part of it.
    pub(crate) program: &'a Path,
    /// The guest's file that the program stands for: functions of that name are told apart by the names of their files.
    pub(crate) stands_for: &'static str,
    /// Functions that the profile shall not tell of.
    pub(crate) without: &'static [&'static str],
    /// Further C files, of the guest.
    pub(crate) sources: &'a [PathBuf],
    /// The folder of what both include, all of which is trained.
    pub(crate) included: &'a Path,
    /// Headers in other folders.
    pub(crate) headers: &'a [PathBuf],
}

impl Workshop {
    /// Path of a profile that clang reads (`-fprofile-instr-use`), made unless the cache has it.
    pub(crate) fn profile(&self, training: &Training<'_>) -> Result<PathBuf> {
        let mut inputs = Inputs::default();
        Self::record_toolchain(&mut inputs);
        record(&mut inputs);
        inputs.value("stands for", training.stands_for).value("without", training.without.join(" "));
        let beside = training.program.parent().context("the program has a folder")?;
        inputs.tree("program", beside)?.tree("included", training.included)?;
        let mut includes = vec![beside, training.included];
        for (number, file) in training.sources.iter().chain(training.headers).enumerate() {
            inputs.tree(&format!("file {number}"), file)?;
            includes.extend(file.parent());
        }
        includes.dedup();
        let folder = self.cache.product("profiles", training.name, &inputs, |bench| {
            let toolchain = self.toolchain(&bench.work)?;
            let module = bench.work.join("training.wasm");
            bench.step("compile the training", || {
                let mut objects = Vec::new();
                write_header(&bench.work)?;
                for file in training.sources.iter().map(PathBuf::as_path).chain([training.program]) {
                    let stem = file.file_stem().context("a C file needs a name")?;
                    let object = bench.work.join(stem).with_extension("o");
                    let mut cc = toolchain.cc();
                    cc.args(COMPILE_FLAGS).args(COUNTER_FLAGS);
                    if file == training.program {
                        cc.args(["-Xclang", "-main-file-name", "-Xclang", training.stands_for]);
                    }
                    for folder in includes.iter().copied().chain([bench.work.as_path()]) {
                        cc.arg("-I").arg(folder);
                    }
                    run(cc.arg("-c").arg(file).arg("-o").arg(&object), &object.with_extension("log"))?;
                    objects.push(object);
                }
                let mut cc = toolchain.cc();
                // Counters of functions that the linker would leave out are zero, which is worth knowing.
                cc.arg("-Wl,--no-gc-sections").arg(format!("-Wl,-z,stack-size={STACK_BYTES}"));
                run(cc.args(objects).arg("-lm").arg("-o").arg(&module), &bench.work.join("link.log"))
            })?;
            let profile = train(bench, &module, &Told { without: training.without, is_idle_told: true })?;
            fs::rename(profile, bench.out.join(PROFILE)).context("could not keep the profile")
        })?;
        Ok(folder.join(PROFILE))
    }
}

/// Makes what decides a profile's looks an input of what is made by it.
pub(crate) fn record(inputs: &mut Inputs) {
    inputs.text("recipe of profiles", &RECIPE.concat());
}

/// Puts `counters.h`, which a training program includes, into a folder.
pub(crate) fn write_header(folder: &Path) -> Result<()> {
    fs::write(folder.join("counters.h"), COUNTERS).context("could not write the header of counters")
}

/// Which functions a profile tells of.
#[derive(Debug)]
pub(crate) struct Told {
    /// Functions that it does not tell of, in whatever file.
    pub(crate) without: &'static [&'static str],
    /// Whether it tells of those that never ran, so that they are compiled for size.
    pub(crate) is_idle_told: bool,
}

/// Runs a training program in Node, with `bench.work` as `/`. Returns the path of a profile there that clang reads.
pub(crate) fn train(bench: &Bench, module: &Path, told: &Told) -> Result<PathBuf> {
    bench.step("train", || {
        let runner = bench.work.join("run.mjs");
        fs::write(&runner, RUNNER)?;
        let mut node = Command::new("node");
        node.args(NODE_FLAGS).args([&runner, module, &bench.work]);
        run(&mut node, &bench.work.join("train.log"))
    })?;
    let counts = fs::read(bench.work.join("counts"))?;
    let mut functions = counts::read(&counts).context("could not read the counters of the training")?;
    functions.retain(|function| !told.without.iter().any(|name| function.is_called(name)));
    functions.retain(|function| told.is_idle_told || function.counts.iter().any(|count| *count > 0));
    bench.progress.note(&format!("{} functions", functions.len()));
    let profile = bench.work.join(PROFILE);
    fs::write(&profile, indexed::write(&functions)).context("could not write the profile")?;
    Ok(profile)
}
