//! The Python guest: CPython as one static module, a shim, and a prelude written in Python.
//!
//! It is made in stages, each with its own place in the cache: CPython's sources, a native Python to build with, the
//! static libraries, the standard library, and last the shim and the prelude, so that an edit of the prelude does not
//! compile CPython again.

pub(crate) mod archives;
mod audit;
pub(crate) mod build_python;
mod cpython;
mod library;
pub(crate) use library::compile;
mod source;
pub(crate) mod suite;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::Bench;
use crate::guest::{Built, Guest, Mount};
use crate::inputs::{Inputs, files_below};
use crate::link::Module;
use crate::workshop::Workshop;

/// The recipe of the Python guest.
#[derive(Debug)]
pub(crate) struct Python;

/// The C stack. CPython's own limits on recursion are met long before it is full.
const STACK_BYTES: u32 = 8 * 1024 * 1024;

/// Where the guest sees the standard library.
const LIBRARY_MOUNT: &str = "/usr/lib/python3.13";

/// Where the guest sees what there is to know of the machine.
const MACHINE_MOUNT: &str = "/etc";

/// Files of the prelude in the order in which they are run; each may use those before it. A folder
/// is a package, and a layer: it uses only those before it.
const PRELUDE: &[&str] = &[
    "platform/likeness",
    "platform/zones",
    "platform/lacks",
    "platform/packages",
    "platform/sockets",
    "platform/sandbox",
    "platform/hollow",
    "platform/maps",
    "platform/absent",
    "platform/streams",
    "platform/credentials",
    "platform/loop",
    "platform/faults",
    "platform/modules",
    "calls/bridges",
    "calls/primitives",
    "calls/columnar",
    "calls/published",
    "calls/connectors",
    "calls/carry",
    "calls/pools",
    "calls/rewrite",
    "calls/network",
    "shell/lines",
    "shell/escapes",
    "shell/awk",
    "shell/filters",
    "shell/packing",
    "shell/databases",
    "shell/inspecting",
    "shell/jq_syntax",
    "shell/jq",
    "shell/machine",
    "shell/arithmetic",
    "shell/utilities",
    "shell/commands",
    "shell/shell_syntax",
    "shell/shell_words",
    "shell/shell",
    "processes/channels",
    "processes/npm",
    "processes/processes",
    "processes/popen",
    "processes/asyncprocesses",
    "processes/terminal",
    "processes/program",
    "processes/pooling",
    "processes/sharing",
    "processes/controls",
    "notebook/markdown",
    "notebook/display",
    "notebook/ipython",
    "notebook/history",
    "notebook/describing",
    "notebook/magics",
    "notebook/recalling",
    "notebook/habits",
    "cells/binding",
    "cells/helpers",
    "cells/threads",
    "cells/cells",
    "cells/offers",
    "cells/editor",
    "additions",
    "warm",
    "entry",
];

/// A compiled extension module that is linked in.
#[derive(Debug)]
pub(crate) struct Extension {
    /// As it is imported, with dots.
    module: String,
    /// The C function that makes it.
    init: String,
}

impl Extension {
    /// The module of this name, whose function is named as CPython expects it.
    pub(crate) fn named(module: &str) -> Extension {
        let last = module.rsplit('.').next().unwrap_or(module);
        Extension { module: module.to_owned(), init: format!("PyInit_{last}") }
    }
}

/// What an image has besides CPython, its library and the shim.
#[derive(Debug, Default)]
pub(crate) struct Additions {
    /// Compiled extension modules.
    pub(crate) extensions: Vec<Extension>,
    /// The objects and archives that they are made of, each with content of its own.
    pub(crate) objects: Vec<PathBuf>,
    /// C files of this project.
    pub(crate) own: Vec<PathBuf>,
    /// Folders of headers for these.
    pub(crate) includes: Vec<PathBuf>,
    /// Folders whose files are copied to the standard library.
    pub(crate) library: Vec<PathBuf>,
    /// A folder with an `additions.py` in the place of the prelude's own, and with what that uses.
    pub(crate) prelude: Option<PathBuf>,
    /// A folder of fonts, for those of Matplotlib.
    pub(crate) fonts: Option<PathBuf>,
}

/// Libraries of the toolchain that CPython needs.
const LINK_FLAGS: &[&str] = &[
    "-lwasi-emulated-signal",
    "-lwasi-emulated-getpid",
    "-lwasi-emulated-process-clocks",
    "-lm",
    // A thread begins with a function of the table.
    "-Wl,--export-table",
];

impl Guest for Python {
    fn name(&self) -> &'static str {
        "python"
    }

    fn language(&self) -> &'static str {
        "py"
    }

    fn recipe(&self) -> &'static str {
        concat!(include_str!("python.rs"), include_str!("python/audit.rs"))
    }

    fn inputs(&self, workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
        self::inputs(workshop, inputs)
    }

    fn build(&self, workshop: &Workshop, bench: &Bench) -> Result<Built> {
        self::build(workshop, bench, &Additions::default())
    }
}

/// Records what goes into every image of CPython.
pub(crate) fn inputs(workshop: &Workshop, inputs: &mut Inputs) -> Result<()> {
    inputs.value("libraries", cpython::inputs(workshop)?.digest());
    inputs.value("standard library", library::inputs(workshop)?.digest());
    inputs.tree("guests/python", &workshop.root.join("guests/python"))?;
    Ok(())
}

/// A folder with CPython's headers in `include`, and its configuration in `sysconfig`.
pub(crate) fn headers(workshop: &Workshop) -> Result<PathBuf> {
    cpython::libraries(workshop)
}

/// Makes the core module of an image, and its library folder.
pub(crate) fn build(workshop: &Workshop, bench: &Bench, additions: &Additions) -> Result<Built> {
    let libraries = cpython::libraries(workshop)?;
    let library = library::library(workshop)?;
    bench.step("copy the library", || {
        let folders = [&library].into_iter().chain(&additions.library);
        folders.into_iter().try_for_each(|folder| copy_tree(folder, &bench.out.join("lib")))?;
        additions
            .fonts
            .iter()
            .try_for_each(|folder| copy_tree(folder, &bench.out.join("lib/matplotlib/mpl-data/fonts/ttf")))
    })?;

    let folder = workshop.root.join("guests/python");
    let generated = bench.work.join("generated");
    fs::create_dir_all(&generated)?;
    let prelude = prelude_files(&folder.join("_cellar_prelude"), additions.prelude.as_deref())?;
    fs::write(generated.join("prelude.c"), prelude_source(&prelude)?)?;
    fs::write(generated.join("extensions.c"), extensions_source(&additions.extensions))?;

    let mut objects = archives(&libraries)?;
    objects.extend(additions.objects.iter().cloned());
    bench.progress.timed("look for colliding symbols", || audit::audit(&objects))?;
    let mut own = c_files(&folder)?;
    own.extend(additions.own.iter().cloned());
    let includes = ["include", "include/internal", "include/internal/mimalloc"].map(|name| libraries.join(name));
    let module = Module {
        own,
        foreign: vec![generated.join("prelude.c"), generated.join("extensions.c")],
        includes: [folder.join("include"), folder.clone()]
            .into_iter()
            .chain(additions.includes.iter().cloned())
            .chain(includes)
            .collect(),
        // CPython's headers are not written for all warnings.
        flags: ["-Wno-sign-compare", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]
            .map(str::to_owned)
            .to_vec(),
        objects,
        link_flags: LINK_FLAGS.iter().map(|&flag| flag.to_owned()).collect(),
        stack_bytes: STACK_BYTES,
        ..Module::default()
    };
    let core = workshop.link(bench, &module)?;
    copy_tree(&folder.join("machine"), &bench.out.join("etc"))?;
    let mount = |host: &str, guest: &str| Mount { host: host.to_owned(), guest: guest.to_owned() };
    Ok(Built { core, mounts: vec![mount("lib", LIBRARY_MOUNT), mount("etc", MACHINE_MOUNT)] })
}

/// The C files of the shim; those in its folders are no part of it.
fn c_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = files_below(folder)?;
    let is_own = |file: &PathBuf| file.parent() == Some(folder) && file.extension().is_some_and(|end| end == "c");
    Ok(files.into_iter().filter(is_own).collect())
}

/// The static libraries to link, in a fixed order.
fn archives(libraries: &Path) -> Result<Vec<PathBuf>> {
    let files = files_below(&libraries.join("lib"))?;
    Ok(files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "a")).collect())
}

/// The prelude's files by their paths without `.py`, in the order in which they are run. `additions`, a folder, has the
/// image's own `additions.py` and what that uses.
fn prelude_files(folder: &Path, additions: Option<&Path>) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for name in PRELUDE {
        match additions {
            Some(additions) if *name == "additions" => {
                let mut own = files_below(additions)?;
                // By their names, and so that each may use those before it; `additions` uses all.
                own.sort_by_key(|path| path.file_stem().is_some_and(|stem| stem == *name));
                for path in own {
                    let stem = path.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
                    files.push((stem, path));
                }
            }
            _ => files.push(((*name).to_owned(), folder.join(name).with_extension("py"))),
        }
    }
    Ok(files)
}

/// The prelude's files as one table in C, each folder as a package before its first file. The digest in it ties the
/// guest to its standard library, which is baked too.
fn prelude_source(files: &[(String, PathBuf)]) -> Result<String> {
    let mut source = String::from("#include \"prelude.h\"\n\n");
    let mut rows = String::new();
    let mut packages = BTreeSet::new();
    for (index, (name, path)) in files.iter().enumerate() {
        writeln!(
            source,
            "static const char source_{index}[] = {{\n#embed \"{}\"\n, 0}};",
            path.to_str().context("the checkout's path must be UTF-8")?
        )?;
        if let Some((package, _)) = name.rsplit_once('/')
            && packages.insert(package)
        {
            writeln!(rows, "    {{\"{package}\", 0, 0}},")?;
        }
        writeln!(rows, "    {{\"{}\", \"{name}.py\", source_{index}}},", name.replace('/', "."))?;
    }
    write!(source, "\nconst struct cellar_prelude_file cellar_prelude[] = {{\n{rows}    {{0, 0, 0}},\n}};\n")?;
    writeln!(source, "const char cellar_library_digest[] = \"{}\";", library::digest_constant())?;
    Ok(source)
}

/// The table of extension modules in C.
fn extensions_source(extensions: &[Extension]) -> String {
    let mut source = String::from("#include <Python.h>\n\n");
    for extension in extensions {
        source.push_str(&format!("PyObject *{}(void);\n", extension.init));
    }
    source.push_str("\nstruct _inittab cellar_extensions[] = {\n");
    for extension in extensions {
        source.push_str(&format!("    {{\"{}\", {}}},\n", extension.module, extension.init));
    }
    source.push_str("    {0, 0},\n};\n");
    source
}

/// Copies all regular files below a folder.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for file in files_below(from)? {
        let copy = to.join(file.strip_prefix(from)?);
        fs::create_dir_all(copy.parent().unwrap_or(to))?;
        fs::copy(&file, &copy).with_context(|| format!("could not copy `{}`", file.display()))?;
    }
    Ok(())
}
