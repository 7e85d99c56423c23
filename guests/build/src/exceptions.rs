//! What code needs that throws: C++'s exceptions, and `longjmp`. Both are WebAssembly's own exceptions.
//!
//! The compiler's wheel has a C++ library without exceptions and without threads, made on demand, and the sources of all of
//! it. Here these are compiled with both; locks and conditions are those of whoever links it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cache::Bench;
use crate::inputs::{Inputs, files_below};
use crate::process::{Job, run, run_all};
use crate::toolchain::Toolchain;
use crate::workshop::Workshop;

/// How C++ is compiled that throws. wasmtime knows exceptions as they were standardised, and not as they came before.
pub(crate) const CPP_FLAGS: &[&str] =
    &["-fwasm-exceptions", "-mexception-handling", "-mllvm", "-wasm-use-legacy-eh=false", "-D_LIBCPP_HAS_THREADS=1"];

/// How C is compiled that calls `setjmp`.
pub(crate) const JUMP_FLAGS: &[&str] =
    &["-mexception-handling", "-mllvm", "-wasm-enable-sjlj", "-mllvm", "-wasm-use-legacy-eh=false"];

/// The tags of what is thrown: a C++ object, and where a jump goes. Everybody refers to them, and nobody defines them.
const TAGS: &str = "\
\t.globl\t__cpp_exception\n\t.tagtype\t__cpp_exception i32\n__cpp_exception:\n\
\t.globl\t__c_longjmp\n\t.tagtype\t__c_longjmp i32\n__c_longjmp:\n";

/// What `longjmp` is made of, among the compiler's sources of the C library.
const JUMPS: &str = "libc/wasi/libc-top-half/musl/src/setjmp/wasm32/rt.c";

const OPTIMISE: &[&str] = &["-O2", "-g0", "-w", "-fno-sanitize=all"];

/// How the C++ library is compiled besides: as its own build has it.
const LIBRARY_FLAGS: &[&str] = &[
    "-std=c++23",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-D_LIBCPP_BUILDING_LIBRARY",
    "-D_LIBCXXABI_BUILDING_LIBRARY",
    "-DLIBCXX_BUILDING_LIBCXXABI",
];

/// Sources in these folders make the C++ library.
const FOLDERS: &[&str] = &["libcxx/src", "libcxx/src/ryu", "libcxxabi/src"];

/// Sources that are left out: what is for code without exceptions; what there are two of; files, which nobody here opens
/// with C++; and what an exception is to its thread, which the guest knows.
const LEFT_OUT: &[&str] =
    &["cxa_exception_storage.cpp", "cxa_noexception.cpp", "cxa_thread_atexit.cpp", "fstream.cpp", "libcxx/src/new.cpp"];

/// Makes all of it an input of a product.
pub(crate) fn record(inputs: &mut Inputs) {
    Workshop::record_toolchain(inputs);
    inputs.text("exceptions", include_str!("exceptions.rs"));
}

/// Path of an archive with what `setjmp` and `longjmp` need, and the tags of all exceptions; made unless the cache has it.
pub(crate) fn jumps(workshop: &Workshop) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    record(&mut inputs);
    let folder = workshop.cache.product("libraries", "jumps", &inputs, |bench| {
        let toolchain = workshop.toolchain(&bench.work)?;
        let tags = bench.work.join("tags.s");
        std::fs::write(&tags, TAGS)?;
        let objects = [(tags, bench.work.join("tags.o")), (toolchain.source(JUMPS), bench.work.join("rt.o"))];
        for (source, object) in &objects {
            let mut cc = toolchain.cc();
            cc.args(OPTIMISE).args(JUMP_FLAGS).arg("-c").arg(source).arg("-o").arg(object);
            run(&mut cc, &object.with_extension("log"))?;
        }
        archive(&toolchain, bench, "libjumps.a", &objects.map(|(_, object)| object))
    })?;
    Ok(folder.join("libjumps.a"))
}

/// Path of an archive with the C++ library, made unless the cache has it. The tags are [`jumps`]'.
pub(crate) fn cpp_library(workshop: &Workshop) -> Result<PathBuf> {
    let mut inputs = Inputs::default();
    record(&mut inputs);
    let folder = workshop.cache.product("libraries", "cpp-with-exceptions", &inputs, |bench| {
        let toolchain = workshop.toolchain(&bench.work)?;
        let mut jobs = Vec::new();
        for folder in FOLDERS {
            for source in files_below(&toolchain.source(folder))? {
                let is_here = source.parent() == Some(&toolchain.source(folder));
                let is_cpp = source.extension().is_some_and(|end| end == "cpp");
                if is_here && is_cpp && !LEFT_OUT.iter().any(|name| source.ends_with(name)) {
                    jobs.push(compile_cpp(&toolchain, bench, &source));
                }
            }
        }
        jobs.push(compile_unwinder(&toolchain, bench));
        let objects: Vec<PathBuf> = jobs.iter().map(|job| job.log.with_extension("o")).collect();
        bench.step("compile the C++ library", || run_all(jobs))?;
        archive(&toolchain, bench, "libc++.a", &objects)
    })?;
    Ok(folder.join("libc++.a"))
}

fn compile_cpp(toolchain: &Toolchain, bench: &Bench, source: &Path) -> Job {
    let mut command = toolchain.cpp();
    command.args(OPTIMISE).args(CPP_FLAGS).args(LIBRARY_FLAGS);
    for folder in ["libcxx/src", "libcxx/libc", "libcxxabi/src"] {
        command.arg("-I").arg(toolchain.source(folder));
    }
    // Both folders have files of one name.
    let parts: Vec<_> = source.iter().rev().take(3).map(|part| part.to_string_lossy()).collect();
    job(command, bench, source, &parts.join("-"))
}

fn compile_unwinder(toolchain: &Toolchain, bench: &Bench) -> Job {
    let mut command = toolchain.cc();
    command.args(OPTIMISE).args(CPP_FLAGS).arg("-D_LIBUNWIND_HIDE_SYMBOLS");
    command.arg("-I").arg(toolchain.source("libunwind/include"));
    job(command, bench, &toolchain.source("libunwind/src/Unwind-wasm.c"), "unwind")
}

/// Compiles one source into `bench.work`; the log lies beside the object.
fn job(mut command: Command, bench: &Bench, source: &Path, name: &str) -> Job {
    let object = bench.work.join(name).with_added_extension("o");
    command.arg("-c").arg(source).arg("-o").arg(&object);
    Job { command, log: object.with_extension("log") }
}

/// Makes an archive of a product.
fn archive(toolchain: &Toolchain, bench: &Bench, name: &str, objects: &[PathBuf]) -> Result<()> {
    let mut ar = toolchain.ar();
    ar.arg("rcsD").arg(bench.out.join(name)).args(objects);
    run(&mut ar, &bench.work.join("ar.log"))
}
