//! CPython and the libraries it needs, as static archives for the guest's target.

mod training;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{build_python, copy_tree, source};
use crate::cache::Bench;
use crate::inputs::{Inputs, files_below};
use crate::patches;
use crate::process::run;
use crate::sources::CrateSource;
use crate::workshop::Workshop;

const ZLIB: CrateSource = CrateSource {
    name: "libz-sys",
    version: "1.1.31",
    sha256: "ff20308ecabd635a2dc1dd5834a86c462cca20efba1d5d3ddab1f8aea3455cb2",
};
const BZIP2: CrateSource = CrateSource {
    name: "bzip2-sys",
    version: "0.1.13+1.0.8",
    sha256: "225bff33b2141874fe80d71e07d6eec4f85c5c216453dd96388240f96e1acc14",
};
const LZMA: CrateSource = CrateSource {
    name: "liblzma-sys",
    version: "0.4.9",
    sha256: "7c7e3581f367a78d7b7e7ae948d023310556f0cfc13156c2e4e00e25616492b9",
};
const SQLITE: CrateSource = CrateSource {
    name: "libsqlite3-sys",
    version: "0.39.1",
    sha256: "14a5f01b87b92705d07b433c06f96cbc764637d81a0bffb5734ce17cf0f9a2b3",
};

const OPTIMISE: &[&str] = &["-O3", "-g0", "-DNDEBUG"];

/// When the sources were released; stamped into the build instead of the hour of the day.
const SOURCE_DATE_EPOCH: &str = "1749600000";

/// What CPython's own build makes, below the folder where it is built.
const ARCHIVES: &[&str] = &[
    "libpython3.13.a",
    "Modules/_decimal/libmpdec/libmpdec.a",
    "Modules/expat/libexpat.a",
    "Modules/_hacl/libHacl_Hash_SHA2.a",
];

/// A C library that is compiled without a build system.
struct Library {
    source: CrateSource,
    /// Folder of the C files in the crate.
    folder: &'static str,
    archive: &'static str,
    /// C files without their ending.
    files: Files,
    /// Folders of headers in `folder`, besides itself.
    includes: &'static [&'static str],
    headers: &'static [&'static str],
    flags: &'static [&'static str],
}

/// Which C files of a library are compiled.
enum Files {
    Named(&'static [&'static str]),
    /// All of some folders, but those with such a word in their name.
    Of {
        folders: &'static [&'static str],
        without: &'static [&'static str],
    },
}

impl Files {
    /// Paths below `folder`, without their ending, sorted.
    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        let (folders, without) = match self {
            Files::Named(names) => return Ok(names.iter().map(|&name| name.to_owned()).collect()),
            Files::Of { folders, without } => (folders, without),
        };
        let mut found = Vec::new();
        for part in *folders {
            for entry in fs::read_dir(folder.join(part))? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if let Some(stem) = name.strip_suffix(".c")
                    && !without.iter().any(|word| stem.contains(word))
                {
                    found.push(format!("{part}/{stem}"));
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

const LIBRARIES: &[Library] = &[
    Library {
        source: ZLIB,
        folder: "src/zlib",
        archive: "libz.a",
        files: Files::Named(&[
            "adler32", "compress", "crc32", "deflate", "gzclose", "gzlib", "gzread", "gzwrite", "infback", "inffast",
            "inflate", "inftrees", "trees", "uncompr", "zutil",
        ]),
        includes: &[],
        headers: &["zlib.h", "zconf.h"],
        flags: &["-DHAVE_UNISTD_H"],
    },
    Library {
        source: BZIP2,
        folder: "bzip2-1.0.8",
        archive: "libbz2.a",
        files: Files::Named(&["blocksort", "bzlib", "compress", "crctable", "decompress", "huffman", "randtable"]),
        includes: &[],
        headers: &["bzlib.h"],
        flags: &[],
    },
    Library {
        source: LZMA,
        folder: "xz/src/liblzma",
        archive: "liblzma.a",
        files: Files::Of {
            folders: &["check", "common", "delta", "lz", "lzma", "rangecoder", "simple"],
            // Tables are compiled in rather than made, and there are no threads to count processors for.
            without: &["_small", "_gen", "tablegen", "_mt", "hardware_", "outqueue"],
        },
        includes: &["api", "check", "common", "delta", "lz", "lzma", "rangecoder", "simple", "../common", "../../.."],
        headers: &[
            "lzma.h",
            "lzma/base.h",
            "lzma/bcj.h",
            "lzma/block.h",
            "lzma/check.h",
            "lzma/container.h",
            "lzma/delta.h",
            "lzma/filter.h",
            "lzma/hardware.h",
            "lzma/index.h",
            "lzma/index_hash.h",
            "lzma/lzma12.h",
            "lzma/stream_flags.h",
            "lzma/version.h",
            "lzma/vli.h",
        ],
        flags: &["-DHAVE_CONFIG_H"],
    },
    Library {
        source: SQLITE,
        folder: "sqlite3",
        archive: "libsqlite3.a",
        files: Files::Named(&["sqlite3"]),
        includes: &[],
        headers: &["sqlite3.h", "sqlite3ext.h"],
        flags: &[
            "-DHAVE_ISNAN=1",
            "-DSQLITE_DEFAULT_MEMSTATUS=0",
            "-DSQLITE_ENABLE_COLUMN_METADATA",
            "-DSQLITE_ENABLE_FTS5",
            "-DSQLITE_ENABLE_MATH_FUNCTIONS",
            "-DSQLITE_ENABLE_RTREE",
            "-DSQLITE_OMIT_LOAD_EXTENSION",
            "-DSQLITE_OMIT_SHARED_CACHE",
            // Connections of one kernel lock each other out by what this one keeps of them; see `sqlite_locks.h`.
            "-DSQLITE_DEFAULT_UNIX_VFS=\"unix\"",
            "-include",
            "sqlite_locks.h",
            "-DSQLITE_TEMP_STORE=2",
            "-DSQLITE_THREADSAFE=0",
            "-D_WASI_EMULATED_GETPID",
        ],
    },
];

/// Where our changes to CPython lie.
fn series(workshop: &Workshop) -> PathBuf {
    workshop.root.join("guests/python/patches")
}

/// What the archives are made from.
pub(super) fn inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    Workshop::record_toolchain(&mut inputs);
    inputs.value("source", source::SHA256);
    inputs.text("recipe", include_str!("cpython.rs"));
    inputs.tree("patches", &series(workshop))?;
    inputs.tree("guests/python/include", &workshop.root.join("guests/python/include"))?;
    training::record(workshop, &mut inputs)?;
    for library in LIBRARIES {
        library.source.record(&mut inputs);
    }
    Ok(inputs)
}

/// A folder with `lib/*.a`, `include/` and `sysconfig/`, made unless the cache has it.
pub(super) fn libraries(workshop: &Workshop) -> Result<PathBuf> {
    workshop.cache.product("libraries", "cpython", &inputs(workshop)?, |bench| {
        let kit = Kit::new(workshop, bench)?;
        for library in LIBRARIES {
            bench.step(&format!("compile {}", library.archive), || kit.compile(workshop, library))?;
        }
        bench.step("unpack CPython", || kit.unpack(workshop))?;
        bench.step("configure CPython", || kit.configure(workshop))?;
        let flags = kit.train(workshop)?;
        bench.step("compile the interpreter's loop", || kit.make("", &[training::LOOP], "make-loop.log"))?;
        bench.step("compile CPython", || kit.make(&flags, ARCHIVES, "make.log"))?;
        bench.step("collect the libraries", || kit.collect())
    })
}

/// Where things lie while the archives are made.
struct Kit<'a> {
    bench: &'a Bench,
    /// Scripts named `cc`, `ar` and `ranlib`.
    tools: PathBuf,
    /// CPython's sources.
    tree: PathBuf,
    /// Where CPython is built.
    cross: PathBuf,
}

impl<'a> Kit<'a> {
    fn new(workshop: &Workshop, bench: &'a Bench) -> Result<Self> {
        let tools = bench.work.join("tools");
        workshop.toolchain(&bench.work)?.write_wrappers(&tools)?;
        for folder in ["lib", "include"] {
            fs::create_dir_all(bench.out.join(folder))?;
        }
        let (tree, cross) = (bench.work.join("cpython"), bench.work.join("cross"));
        Ok(Self { bench, tools, tree, cross })
    }

    fn compile(&self, workshop: &Workshop, library: &Library) -> Result<()> {
        let folder = workshop.crate_source(&library.source)?.join(library.folder);
        let own_headers = workshop.root.join("guests/python/include");
        let objects = self.bench.work.join(library.archive).with_extension("objects");
        fs::create_dir_all(&objects)?;
        let mut members = Vec::new();
        for file in library.files.list(&folder)? {
            let name = file.replace('/', "-");
            let object = objects.join(format!("{name}.o"));
            let mut cc = Command::new(self.tools.join("cc"));
            cc.args(OPTIMISE).arg("-w").args(library.flags).arg("-I").arg(&folder);
            cc.arg("-I")
                .arg(&own_headers)
                .args(library.includes.iter().map(|part| format!("-I{}", folder.join(part).display())));
            cc.arg("-c").arg(folder.join(format!("{file}.c"))).arg("-o").arg(&object);
            run(&mut cc, &objects.join(format!("{name}.log")))?;
            members.push(object);
        }
        let mut ar = Command::new(self.tools.join("ar"));
        ar.arg("rcsD").arg(self.bench.out.join("lib").join(library.archive)).args(&members);
        run(&mut ar, &objects.join("ar.log"))?;
        for header in library.headers {
            let copy = self.bench.out.join("include").join(header);
            fs::create_dir_all(copy.parent().unwrap_or(&copy))?;
            let from = library.includes.iter().map(|part| folder.join(part).join(header)).find(|path| path.exists());
            fs::copy(from.unwrap_or_else(|| folder.join(header)), copy)?;
        }
        Ok(())
    }

    /// Unpacks the sources and makes the changes that no header of ours can make.
    fn unpack(&self, workshop: &Workshop) -> Result<()> {
        source::unpack(workshop, &self.tree, &self.bench.work.join("unpack.log"))?;
        patches::apply(&series(workshop), &self.tree, &self.bench.work)
    }

    fn configure(&self, workshop: &Workshop) -> Result<()> {
        fs::create_dir_all(&self.cross)?;
        let hook = workshop.root.join("guests/python/include");
        let include = self.bench.out.join("include");
        let lib = self.bench.out.join("lib");
        let mut configure = Command::new(self.tree.join("configure"));
        configure
            .current_dir(&self.cross)
            .env("CONFIG_SITE", self.tree.join("Tools/wasm/config.site-wasm32-wasi"))
            // Else it finds the libraries of the machine.
            .env("PKG_CONFIG_LIBDIR", "/nonexistent")
            .env("CFLAGS", format!("-O3 -g0 -I{}", hook.display()))
            .env("CPPFLAGS", format!("-I{}", include.display()))
            .env("LDFLAGS", format!("-L{}", lib.display()));
        for (variable, tool) in [("CC", "cc"), ("AR", "ar"), ("RANLIB", "ranlib")] {
            configure.env(variable, self.tools.join(tool));
        }
        for (variable, name) in [("ZLIB", "z"), ("BZIP2", "bz2"), ("LIBLZMA", "lzma"), ("LIBSQLITE3", "sqlite3")] {
            configure.env(format!("{variable}_CFLAGS"), format!("-I{}", include.display()));
            configure.env(format!("{variable}_LIBS"), format!("-L{} -l{name}", lib.display()));
        }
        configure.args(["--host=wasm32-unknown-wasi", "--build=x86_64-pc-linux-gnu", "--disable-test-modules"]);
        // Left out by default on WASI, where it is needed as much as anywhere: small objects come and go all the time.
        configure.arg("--with-pymalloc");
        configure.arg("--prefix=/usr").arg(format!("--with-build-python={}", build_python::find(workshop)?.display()));
        run(&mut configure, &self.bench.work.join("configure.log"))?;
        self.correct_configuration()
    }

    /// The toolchain's headers declare what its library lacks, and its linker refuses an option.
    fn correct_configuration(&self) -> Result<()> {
        let makefile = self.cross.join("Makefile");
        let text = fs::read_to_string(&makefile)?.replace("-Wl,--stack-first", "");
        let lines: Vec<String> = text
            .lines()
            .map(|line| match line.starts_with("CONFIGURE_CPPFLAGS=") {
                true => format!("{line} -DSOCK_RAW=3 -Wno-date-time"),
                false => line.to_owned(),
            })
            .collect();
        fs::write(&makefile, lines.join("\n") + "\n")?;
        let header = self.cross.join("pyconfig.h");
        let mut text = fs::read_to_string(&header)?;
        for name in [
            "HAVE_EPOLL",
            "HAVE_EPOLL_CREATE1",
            "HAVE_MMAP",
            "HAVE_SYS_EPOLL_H",
            "HAVE_SYS_MMAN_H",
            "HAVE_TIMERFD_CREATE",
        ] {
            text = text.replace(&format!("#define {name} 1\n"), "");
        }
        fs::write(&header, text)?;
        Ok(())
    }

    /// Compiles parts of CPython that are not compiled yet, with further flags for the compiler.
    fn make(&self, flags: &str, targets: &[&str], log: &str) -> Result<()> {
        let mut make = Command::new("make");
        make.current_dir(&self.cross).env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH);
        make.arg("-j2").arg(format!("EXTRA_CFLAGS={flags}")).arg("pybuilddir.txt").args(targets);
        run(&mut make, &self.bench.work.join(log))
    }

    /// Removes all that [`Self::make`] has compiled.
    fn remove_objects(&self) -> Result<()> {
        for file in files_below(&self.cross)? {
            if file.extension().is_some_and(|end| end == "o" || end == "a") {
                fs::remove_file(file)?;
            }
        }
        Ok(())
    }

    fn collect(&self) -> Result<()> {
        let (lib, include) = (self.bench.out.join("lib"), self.bench.out.join("include"));
        for archive in ARCHIVES {
            let from = self.cross.join(archive);
            fs::copy(&from, lib.join(from.file_name().context("an archive needs a name")?))?;
        }
        copy_tree(&self.tree.join("Include"), &include)?;
        fs::copy(self.cross.join("pyconfig.h"), include.join("pyconfig.h"))?;
        // Ours takes its place.
        fs::remove_file(include.join("internal/pycore_emscripten_signal.h"))?;
        let folder = fs::read_to_string(self.cross.join("pybuilddir.txt"))?;
        let name = "_sysconfigdata__wasi_wasm32-wasi.py";
        let sysconfig = self.bench.out.join("sysconfig");
        fs::create_dir_all(&sysconfig)?;
        let text = fs::read_to_string(self.cross.join(folder.trim()).join(name))?;
        // Where it was built is nobody's business, and differs between machines.
        fs::write(
            sysconfig.join(name),
            text.replace(&*self.bench.work.parent().unwrap_or(Path::new("/")).to_string_lossy(), "/build"),
        )?;
        Ok(())
    }
}
