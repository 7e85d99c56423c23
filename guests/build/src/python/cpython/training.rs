//! Which of CPython's code is to be fast: it is compiled twice, with counters for the training programs first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::{ARCHIVES, Kit};
use crate::inputs::{Inputs, files_below};
use crate::process::run;
use crate::profile::{self, COUNTER_FLAGS, Told};
use crate::workshop::Workshop;

/// How trained code is compiled. Counters are the same however it is optimised; this builds fastest.
const COMPILE_FLAGS: &str = "-Os -w";

/// The C stack of the training, which takes more of it than the guest.
const STACK_BYTES: u32 = 8 * 1024 * 1024;

/// The interpreter's loop and what is inlined there, which suits the engine as it is: it is compiled without a profile. By
/// one that only lacks the loop it would be larger, and floating-point arithmetic a tenth slower.
pub(super) const LOOP: &str = "Python/ceval.o";

/// What the profile does not tell of, because nothing is compiled by it.
const WITHOUT: &[&str] = &["_PyEval_EvalFrameDefault"];

/// Modules that CPython imports when it starts, before the programs have a finder of their own. They lie in a folder with
/// nothing else, because folders are listed in an order that differs from machine to machine.
const START: &[&str] = &["encodings/__init__.py", "encodings/aliases.py", "encodings/utf_8.py"];

/// Libraries of the toolchain that CPython needs.
const LINK_FLAGS: &[&str] =
    &["-lwasi-emulated-signal", "-lwasi-emulated-getpid", "-lwasi-emulated-process-clocks", "-lm"];

/// Folder of the training programs.
fn folder(workshop: &Workshop) -> PathBuf {
    workshop.root.join("guests/python/training")
}

/// The C file of the guest with what its C library lacks.
fn stubs(workshop: &Workshop) -> PathBuf {
    workshop.root.join("guests/python/stubs.c")
}

/// Records what decides the profile.
pub(super) fn record(workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
    profile::record(inputs);
    inputs.text("training", include_str!("training.rs"));
    inputs.tree("training programs", &folder(workshop))?.tree("stubs", &stubs(workshop))?;
    Ok(())
}

impl Kit<'_> {
    /// Compiles CPython with counters, and runs the training programs in it. Returns flags for compiling it again.
    pub(super) fn train(&self, workshop: &Workshop) -> Result<String> {
        let flags = format!("{COMPILE_FLAGS} {}", COUNTER_FLAGS.join(" "));
        self.bench.step("compile CPython with counters", || self.make(&flags, ARCHIVES, "make-trained.log"))?;
        let program = self.bench.work.join("training.wasm");
        self.bench.step("compile the training", || self.link_training(workshop, &program))?;
        self.bench.step("lay out what the training imports", || {
            START.iter().try_for_each(|name| {
                let copy = self.bench.work.join("start").join(name);
                fs::create_dir_all(copy.parent().unwrap_or(&copy))?;
                fs::copy(self.tree.join("Lib").join(name), copy).map(|_| ()).map_err(Into::into)
            })
        })?;
        let told = Told { without: WITHOUT, is_idle_told: false };
        let profile = profile::train(self.bench, &program, &told)?;
        self.bench.step("remove what has counters", || self.remove_objects())?;
        // What was trained must be what is compiled. Some files have no function that ran.
        Ok(format!(
            "-fprofile-instr-use={} -Wno-profile-instr-unprofiled -Werror=profile-instr-out-of-date",
            profile.display()
        ))
    }

    fn link_training(&self, workshop: &Workshop, program: &Path) -> Result<()> {
        profile::write_header(&self.bench.work)?;
        let headers =
            ["Include", "Include/internal", "Include/internal/mimalloc", "Python"].map(|name| self.tree.join(name));
        let own = workshop.root.join("guests/python/include");
        let mut cc = Command::new(self.tools.join("cc"));
        cc.args(COMPILE_FLAGS.split(' ')).args(["-std=gnu23", "-D_GNU_SOURCE", "-DPy_BUILD_CORE"]);
        for folder in [&own, &self.bench.work, &self.cross].into_iter().chain(&headers) {
            cc.arg("-I").arg(folder);
        }
        cc.arg(folder(workshop).join("training.c")).arg(stubs(workshop));
        // Counters of functions that the linker would leave out are zero, which is worth knowing.
        cc.arg("-Wl,--no-gc-sections").arg(format!("-Wl,-z,stack-size={STACK_BYTES}"));
        cc.args(ARCHIVES.iter().map(|name| self.cross.join(name)));
        cc.args(files_below(&self.bench.out.join("lib"))?).args(LINK_FLAGS).arg("-o").arg(program);
        run(&mut cc, &self.bench.work.join("link-training.log"))
    }
}
