//! C libraries that the JavaScript guest is linked with, as static archives: zlib, Brotli and SQLite.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cache::Bench;
use crate::inputs::{Inputs, files_below};
use crate::process::{Job, run, run_all};
use crate::sources::CrateSource;
use crate::workshop::Workshop;

/// How all of them are compiled.
const COMPILE_FLAGS: &[&str] = &["-O2", "-g0", "-w", "-DNDEBUG", "-D_GNU_SOURCE"];

/// A library that is compiled without its own build system.
#[derive(Debug)]
struct Library {
    /// The archive without `lib` and its ending.
    name: &'static str,
    source: CrateSource,
    /// The folder of its C files in the crate.
    folder: &'static str,
    /// C files in it, or folders of them.
    files: &'static [&'static str],
    /// Folders of headers that it and its users include.
    includes: &'static [&'static str],
    flags: &'static [&'static str],
}

const LIBRARIES: &[Library] = &[
    Library {
        name: "z",
        source: CrateSource {
            name: "libz-sys",
            version: "1.1.31",
            sha256: "ff20308ecabd635a2dc1dd5834a86c462cca20efba1d5d3ddab1f8aea3455cb2",
        },
        folder: "src/zlib",
        files: &["adler32.c", "crc32.c", "deflate.c", "inffast.c", "inflate.c", "inftrees.c", "trees.c", "zutil.c"],
        includes: &["."],
        flags: &["-DHAVE_UNISTD_H"],
    },
    Library {
        name: "brotli",
        source: CrateSource {
            name: "compu-brotli-sys",
            version: "1.2.1",
            sha256: "8e5441340e35589c9723079f484dd22c1d76956c11bded050db8bebc9eab4895",
        },
        folder: "brotli/c",
        files: &["common", "dec", "enc"],
        includes: &["include"],
        flags: &[],
    },
    Library {
        name: "sqlite3",
        source: CrateSource {
            name: "libsqlite3-sys",
            version: "0.39.1",
            sha256: "14a5f01b87b92705d07b433c06f96cbc764637d81a0bffb5734ce17cf0f9a2b3",
        },
        folder: "sqlite3",
        files: &["sqlite3.c"],
        includes: &["."],
        flags: &[
            "-DHAVE_ISNAN=1",
            "-DSQLITE_DEFAULT_MEMSTATUS=0",
            "-DSQLITE_ENABLE_COLUMN_METADATA",
            "-DSQLITE_ENABLE_FTS5",
            "-DSQLITE_ENABLE_MATH_FUNCTIONS",
            "-DSQLITE_ENABLE_RTREE",
            "-DSQLITE_OMIT_LOAD_EXTENSION",
            "-DSQLITE_OMIT_SHARED_CACHE",
            "-DSQLITE_DEFAULT_UNIX_VFS=\"unix\"",
            "-include",
            "sqlite_locks.h",
            "-DSQLITE_TEMP_STORE=2",
            "-DSQLITE_THREADSAFE=0",
            "-D_WASI_EMULATED_GETPID",
        ],
    },
];

/// Where the header lies that SQLite is compiled with in every guest.
fn locks(workshop: &Workshop) -> PathBuf {
    workshop.root.join("guests/python/include")
}

/// What the archives are made from.
pub(crate) fn inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    Workshop::record_toolchain(&mut inputs);
    inputs.text("recipe", include_str!("c_libraries.rs"));
    inputs.text("sqlite_locks.h", &fs::read_to_string(locks(workshop).join("sqlite_locks.h"))?);
    Ok(inputs)
}

/// The archives, and the folders of their headers.
#[derive(Debug)]
pub(crate) struct Archives {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) includes: Vec<PathBuf>,
}

/// Makes the archives unless the cache has them.
pub(crate) fn archives(workshop: &Workshop) -> Result<Archives> {
    let folder = workshop.cache.product("libraries", "javascript", &inputs(workshop)?, |bench| {
        LIBRARIES
            .iter()
            .try_for_each(|library| bench.step(&format!("compile {}", library.name), || library.make(workshop, bench)))
    })?;
    let mut includes = Vec::new();
    for library in LIBRARIES {
        let sources = library.sources(workshop)?;
        includes.extend(library.includes.iter().map(|part| sources.join(part)));
    }
    let files = LIBRARIES.iter().map(|library| folder.join(library.archive())).collect();
    Ok(Archives { files, includes })
}

impl Library {
    fn archive(&self) -> String {
        format!("lib{}.a", self.name)
    }

    fn sources(&self, workshop: &Workshop) -> Result<PathBuf> {
        Ok(workshop.crate_source(&self.source)?.join(self.folder))
    }

    fn make(&self, workshop: &Workshop, bench: &Bench) -> Result<()> {
        let sources = self.sources(workshop)?;
        let objects = bench.work.join(self.name);
        fs::create_dir_all(&objects)?;
        let toolchain = workshop.toolchain(&bench.work)?;
        let (mut jobs, mut made) = (Vec::new(), Vec::new());
        for file in self.c_files(&sources)? {
            let name = file.strip_prefix(&sources)?.to_string_lossy().replace('/', "-");
            let object = objects.join(name).with_extension("o");
            let mut command = toolchain.cc();
            command.args(COMPILE_FLAGS).args(self.flags).arg("-I").arg(locks(workshop));
            command.args(self.includes.iter().map(|part| format!("-I{}", sources.join(part).display())));
            command.arg("-c").arg(&file).arg("-o").arg(&object);
            jobs.push(Job { command, log: object.with_extension("log") });
            made.push(object);
        }
        run_all(jobs)?;
        let mut ar = toolchain.ar();
        ar.arg("rcsD").arg(bench.out.join(self.archive())).args(&made);
        run(&mut ar, &objects.join("ar.log"))
    }

    /// The C files, in a fixed order.
    fn c_files(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for part in self.files {
            found.extend(
                files_below(&folder.join(part))?
                    .into_iter()
                    .filter(|file| file.extension().is_some_and(|end| end == "c")),
            );
        }
        Ok(found)
    }
}
