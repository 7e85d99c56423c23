//! Native interpreters of the guests' versions. No guest needs them; benchmarks compare the guests with them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::ValueEnum;

use crate::inputs::Inputs;
use crate::javascript::QUICKJS;
use crate::process::run;
use crate::python::build_python;
use crate::python_data;
use crate::workshop::Workshop;

/// Whose interpreter.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Interpreter {
    /// CPython: the one that the Python guest is built with.
    Python,
    /// The same with NumPy and pandas from their wheels.
    #[value(name = "python-data")]
    PythonData,
    /// QuickJS-ng's own `qjs`, from the sources of the JavaScript guest.
    #[value(name = "javascript")]
    JavaScript,
}

/// Path of the interpreter, made unless the machine or the cache has it.
pub(crate) fn find(workshop: &Workshop, interpreter: Interpreter) -> Result<PathBuf> {
    match interpreter {
        Interpreter::Python => build_python::find(workshop),
        Interpreter::PythonData => python_data::native(workshop),
        Interpreter::JavaScript => quickjs(workshop),
    }
}

/// The C files of `qjs`: the engine, its library, the read-eval-print loop.
const SOURCES: &[&str] = &[
    "dtoa.c",
    "gen/repl.c",
    "gen/standalone.c",
    "libregexp.c",
    "libunicode.c",
    "qjs.c",
    "quickjs-libc.c",
    "quickjs.c",
];

/// As upstream's own release build has it, with the optimisation that the guest has too.
const FLAGS: &[&str] = &["-O3", "-DNDEBUG", "-D_GNU_SOURCE", "-funsigned-char", "-w"];

fn quickjs(workshop: &Workshop) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    QUICKJS.record(&mut inputs);
    inputs.text("recipe", include_str!("native.rs"));
    let folder = workshop.cache.product("toolchains", "native-quickjs", &inputs, |bench| {
        let sources = workshop.crate_source(&QUICKJS)?.join("embed/quickjs");
        bench.step("compile a native QuickJS", || {
            let mut compiler = Command::new("cc");
            compiler.args(FLAGS).arg("-o").arg(bench.out.join("qjs"));
            compiler.args(SOURCES.iter().map(|name| sources.join(name))).args(["-lm", "-lpthread", "-ldl"]);
            run(&mut compiler, &bench.work.join("compile.log"))
        })
    })?;
    Ok(folder.join("qjs"))
}
