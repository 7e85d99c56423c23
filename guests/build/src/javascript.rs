//! The JavaScript guest: QuickJS-ng, a shim, and a prelude written in JavaScript. Other images of it have additions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::c_libraries;
use crate::cache::Bench;
use crate::deno;
use crate::guest::{Built, Guest};
use crate::inputs::Inputs;
use crate::libraries::{self, Source};
use crate::link::{Module, Profile};
use crate::profile::Training;
use crate::quickjs;
use crate::sources::CrateSource;
use crate::unroll::{COPIES, unroll};
use crate::workshop::Workshop;

/// The recipe of the JavaScript guest.
#[derive(Debug)]
pub(crate) struct JavaScript;

/// Carries QuickJS-ng 0.18.0.
pub(crate) const QUICKJS: CrateSource = CrateSource {
    name: "libquickjs-ng-sys",
    version: "0.14.0",
    sha256: "9c81e864c33a1d1543f2f651d7622de0e8fb9b8e0c50b808eee606c056dd02e2",
};

/// Carries the URL parser `ada`.
pub(crate) const ADA: CrateSource = CrateSource {
    name: "ada-url",
    version: "4.0.0",
    sha256: "c153db7a5a9f8a92a313dff0fecbbb28198542fc98bf024b961baf9896408347",
};

/// How `ada` is compiled: without its patterns, which need the regular expressions of C++, and without exceptions.
const ADA_FLAGS: &[&str] = &["-std=c++20", "-fno-exceptions", "-fno-rtti", "-DADA_INCLUDE_URL_PATTERN=0"];

/// C files of QuickJS besides `quickjs.c`, which is a part of `engine.c`.
const QUICKJS_FILES: [&str; 3] = ["dtoa.c", "libregexp.c", "libunicode.c"];

/// What is compiled by a profile.
const PROFILED: &[&str] = &["engine.c", "dtoa.c", "libregexp.c", "libunicode.c"];

/// The sources of the recipe of every image.
pub(crate) const RECIPE: &str = concat!(
    include_str!("javascript.rs"),
    include_str!("deno.rs"),
    include_str!("libraries.rs"),
    include_str!("quickjs.rs"),
    include_str!("profile.rs"),
    include_str!("profile/counts.rs"),
    include_str!("profile/indexed.rs"),
    include_str!("profile/counters.h"),
    include_str!("patches.rs"),
    include_str!("unroll.rs")
);

/// The C stack. QuickJS stops at three quarters of it (see the shim), which leaves room for the shim itself.
const STACK_BYTES: u32 = 4 * 1024 * 1024;

impl Guest for JavaScript {
    fn name(&self) -> &'static str {
        "javascript"
    }

    fn language(&self) -> &'static str {
        "js"
    }

    fn recipe(&self) -> &'static str {
        RECIPE
    }

    fn inputs(&self, workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
        self::inputs(workshop, inputs)
    }

    fn build(&self, workshop: &Workshop, bench: &Bench) -> Result<Built> {
        self::build(workshop, bench, None)
    }
}

/// Records what goes into every image of QuickJS.
pub(crate) fn inputs(workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
    QUICKJS.record(inputs);
    ADA.record(inputs);
    deno::record(inputs);
    inputs.value("libraries in C", c_libraries::inputs(workshop)?.digest());
    inputs.tree("guests/javascript", &workshop.root.join("guests/javascript"))?;
    Ok(())
}

/// Makes the core module of an image. In `additions`, a folder, lie `libraries/` and an `additions.js` in the place of the
/// prelude's own.
pub(crate) fn build(workshop: &Workshop, bench: &Bench, additions: Option<&Path>) -> Result<Built> {
    let patched = bench.work.join("quickjs");
    let upstream = workshop.crate_source(&QUICKJS)?.join("embed/quickjs");
    let folder = workshop.root.join("guests/javascript");
    bench.step("patch QuickJS", || quickjs::copy_patched(&upstream, &folder.join("patches"), &patched, &bench.work))?;
    let modules = bench.work.join("modules");
    bench.step("read Deno's modules", || deno::write_tree(workshop, bench, &folder.join("deno"), &modules))?;
    let mut sources = vec![Source { folder: folder.join("libraries"), modules }];
    if let Some(additions) = additions {
        let modules = bench.work.join("added-modules");
        fs::create_dir_all(&modules)?;
        sources.push(Source { folder: additions.join("libraries"), modules });
    }
    let libraries = libraries::bundle(workshop, bench, &sources, &folder.join("engine/compile.c"), &patched)?;
    let added = additions.map_or_else(|| folder.join("prelude"), Path::to_owned).join("additions.js");
    let ada = workshop.crate_source(&ADA)?.join("deps");
    let foreign: Vec<_> = QUICKJS_FILES.iter().map(|name| patched.join(name)).collect();
    let c_libraries = c_libraries::archives(workshop)?;
    let profile = Profile { path: train(workshop, &folder, &patched, &foreign)?, files: PROFILED };
    fs::write(bench.out.join("NOTICE"), format!("{}{}", libraries.notice, deno::NOTICE))?;
    let module = Module {
        own: [
            "engine/engine.c",
            "functions/bridges.c",
            "cells/cells.c",
            "functions/compression.c",
            "convert.c",
            "functions/digests.c",
            "functions/encodings.c",
            "functions/files.c",
            "hooks.c",
            "functions/host.c",
            "introspection.c",
            "functions/libraries.c",
            "functions/lookup.c",
            "functions/output.c",
            "functions/posix.c",
            "prelude.c",
            "cells/rejections.c",
            "reserve.c",
            "shim.c",
            "sources.c",
            "functions/sqlite.c",
            "state.c",
            "functions/timers.c",
            "functions/urls.c",
            "functions/zones.c",
        ]
        .iter()
        .map(|name| folder.join(name))
        .chain([libraries.table])
        .collect(),
        foreign,
        foreign_cpp: vec![(ada.join("ada.cpp"), ADA_FLAGS)],
        // Headers of the guest that the patches include lie in `engine`.
        includes: [folder.join("engine"), folder, patched, ada].into_iter().chain(c_libraries.includes).collect(),
        objects: c_libraries.files,
        link_flags: vec!["-lwasi-emulated-getpid".to_owned()],
        flags: vec![format!("-DADDITIONS=\"{}\"", added.display())],
        profile: Some(profile),
        stack_bytes: STACK_BYTES,
    };
    let core = workshop.link(bench, &module)?;
    bench.progress.timed("unroll the interpreter", || {
        fs::write(&core, unroll(&fs::read(&core)?, "JS_CallInternal", COPIES)?).context("could not write the module")
    })?;
    Ok(Built { core, mounts: Vec::new() })
}

/// How often each piece of QuickJS runs, as the training programs use it.
fn train(workshop: &Workshop, folder: &Path, patched: &Path, sources: &[PathBuf]) -> Result<PathBuf> {
    workshop.profile(&Training {
        name: "javascript",
        program: &folder.join("training/training.c"),
        stands_for: "engine.c",
        // The interpreter's loop suits the engine as it is: told which bytecodes are frequent, the compiler makes all slower.
        without: &["JS_CallInternal"],
        sources,
        included: patched,
        headers: &["cell_parser.h", "one_thread.h", "stacks.h"].map(|name| folder.join("engine").join(name)),
    })
}
