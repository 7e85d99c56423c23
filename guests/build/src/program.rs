//! C programs that are tools: compiled for WASI with the compiler of the guests.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::inputs::Inputs;
use crate::process::run;
use crate::workshop::Workshop;

/// The C stack. The linker's own default, 16 MiB, is more than most tools are granted.
const STACK_BYTES: u32 = 1 << 20;

/// The path of a program that was compiled from one C file, compiled unless the cache has it.
pub(crate) fn find(workshop: &Workshop, source: &Path) -> Result<PathBuf> {
    let source = source.canonicalize().with_context(|| format!("could not find `{}`", source.display()))?;
    let name = source.file_stem().context("a C file needs a name")?.to_string_lossy().into_owned();
    let mut inputs = Inputs::default();
    Workshop::record_toolchain(&mut inputs);
    inputs.text("recipe", include_str!("program.rs"));
    inputs.text("source", &std::fs::read_to_string(&source)?);
    let folder = workshop.cache.product("programs", &name, &inputs, |bench| {
        bench.progress.timed("compile", || {
            let mut cc = workshop.toolchain(&bench.work)?.cc();
            cc.args(["-std=gnu23", "-O2", "-s", "-Wall", "-Wextra", "-Werror"]).arg(&source);
            cc.arg(format!("-Wl,-z,stack-size={STACK_BYTES}"));
            run(cc.arg("-o").arg(bench.out.join("program.wasm")), &bench.work.join("compile.log"))
        })
    })?;
    Ok(folder.join("program.wasm"))
}
