//! C libraries that draw letters, find hulls of points, and read and write pictures, as static archives for the guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Bench;
use crate::debian::Original;
use crate::exceptions::JUMP_FLAGS;
use crate::inputs::{Inputs, files_below};
use crate::process::{Job, run, run_all};
use crate::python;
use crate::workshop::Workshop;

/// How all of them are compiled. They leave functions by `longjmp` where a picture or a font is damaged.
const COMPILE_FLAGS: &[&str] = &["-O3", "-g0", "-w", "-DNDEBUG", "-msimd128"];

/// A C library that is compiled without its own build system.
struct Library {
    /// The archive without `lib` and its ending. Headers that its own build would make lie in a folder of this name in
    /// `guests/python-data/libraries`.
    name: &'static str,
    source: Original,
    /// C files below the folder of the sources: one each, or all of a folder.
    files: &'static [&'static str],
    /// Files of those folders are left out that have such a word in their name.
    without: &'static [&'static str],
    /// Folders of its own headers.
    includes: &'static [&'static str],
    /// Headers and folders of headers that its users include, and where they are found by them.
    headers: &'static [(&'static str, &'static str)],
    flags: &'static [&'static str],
}

const LIBRARIES: &[Library] = &[FREETYPE, JPEG, QHULL, WEBP];

const FREETYPE: Library = Library {
    name: "freetype",
    source: Original {
        package: "freetype",
        suite: "trixie",
        archive: "freetype_2.13.3+dfsg.orig.tar.xz",
        sha256: "686ec73cbf6783b245dd068a09ce807b729ac0f8a46dd70f7867923c32fdf4de",
        variable: "CELLAR_FREETYPE_SOURCE",
    },
    files: &[
        "src/autofit/autofit.c",
        "src/base/ftbase.c",
        "src/base/ftbbox.c",
        "src/base/ftbdf.c",
        "src/base/ftbitmap.c",
        "src/base/ftcid.c",
        "src/base/ftdebug.c",
        "src/base/ftfstype.c",
        "src/base/ftgasp.c",
        "src/base/ftglyph.c",
        "src/base/ftgxval.c",
        "src/base/ftinit.c",
        "src/base/ftmm.c",
        "src/base/ftotval.c",
        "src/base/ftpatent.c",
        "src/base/ftpfr.c",
        "src/base/ftstroke.c",
        "src/base/ftsynth.c",
        "src/base/ftsystem.c",
        "src/base/fttype1.c",
        "src/base/ftwinfnt.c",
        "src/bdf/bdf.c",
        "src/cff/cff.c",
        "src/cid/type1cid.c",
        "src/gzip/ftgzip.c",
        "src/lzw/ftlzw.c",
        "src/pcf/pcf.c",
        "src/pfr/pfr.c",
        "src/psaux/psaux.c",
        "src/pshinter/pshinter.c",
        "src/psnames/psnames.c",
        "src/raster/raster.c",
        "src/sdf/sdf.c",
        "src/sfnt/sfnt.c",
        "src/smooth/smooth.c",
        "src/svg/svg.c",
        "src/truetype/truetype.c",
        "src/type1/type1.c",
        "src/type42/type42.c",
        "src/winfonts/winfnt.c",
    ],
    without: &[],
    includes: &["include"],
    headers: &[("include/freetype", "freetype"), ("include/ft2build.h", "ft2build.h")],
    flags: &["-DFT2_BUILD_LIBRARY", "-DFT_CONFIG_OPTION_SYSTEM_ZLIB"],
};

const JPEG: Library = Library {
    name: "jpeg",
    source: Original {
        package: "libjpeg-turbo",
        suite: "trixie",
        archive: "libjpeg-turbo_2.1.5.orig.tar.gz",
        sha256: "254f3642b04e309fee775123133c6464181addc150499561020312ec61c1bf7c",
        variable: "CELLAR_JPEG_SOURCE",
    },
    files: &[
        "jaricom.c",
        "jcapimin.c",
        "jcapistd.c",
        "jcarith.c",
        "jccoefct.c",
        "jccolor.c",
        "jcdctmgr.c",
        "jchuff.c",
        "jcicc.c",
        "jcinit.c",
        "jcmainct.c",
        "jcmarker.c",
        "jcmaster.c",
        "jcomapi.c",
        "jcparam.c",
        "jcphuff.c",
        "jcprepct.c",
        "jcsample.c",
        "jctrans.c",
        "jdapimin.c",
        "jdapistd.c",
        "jdarith.c",
        "jdatadst.c",
        "jdatasrc.c",
        "jdcoefct.c",
        "jdcolor.c",
        "jddctmgr.c",
        "jdhuff.c",
        "jdicc.c",
        "jdinput.c",
        "jdmainct.c",
        "jdmarker.c",
        "jdmaster.c",
        "jdmerge.c",
        "jdphuff.c",
        "jdpostct.c",
        "jdsample.c",
        "jdtrans.c",
        "jerror.c",
        "jfdctflt.c",
        "jfdctfst.c",
        "jfdctint.c",
        "jidctflt.c",
        "jidctfst.c",
        "jidctint.c",
        "jidctred.c",
        "jmemmgr.c",
        "jmemnobs.c",
        "jquant1.c",
        "jquant2.c",
        "jsimd_none.c",
        "jutils.c",
    ],
    without: &[],
    includes: &["."],
    headers: &[
        ("jconfig.h", "jconfig.h"),
        ("jerror.h", "jerror.h"),
        ("jmorecfg.h", "jmorecfg.h"),
        ("jpeglib.h", "jpeglib.h"),
    ],
    flags: &[],
};

const QHULL: Library = Library {
    name: "qhull_r",
    source: Original {
        package: "qhull",
        suite: "trixie",
        archive: "qhull_2020.2.orig.tar.gz",
        sha256: "b5c2d7eb833278881b952c8a52d20179eab87766b00b865000469a45c1838b7e",
        variable: "CELLAR_QHULL_SOURCE",
    },
    files: &["src/libqhull_r"],
    without: &[],
    includes: &["src"],
    headers: &[("src/libqhull_r", "libqhull_r")],
    flags: &[],
};

const WEBP: Library = Library {
    name: "webp",
    source: Original {
        package: "libwebp",
        suite: "trixie",
        archive: "libwebp_1.5.0.orig.tar.gz",
        sha256: "7d6fab70cf844bf6769077bd5d7a74893f8ffd4dfb42861745750c63c2a5c92c",
        variable: "CELLAR_WEBP_SOURCE",
    },
    files: &["sharpyuv", "src/dec", "src/demux", "src/dsp", "src/enc", "src/mux", "src/utils"],
    // Kernels for other processors.
    without: &["_avx2", "_mips", "_msa", "_neon", "_sse"],
    includes: &[".", "src"],
    headers: &[("src/webp", "webp")],
    flags: &[],
};

/// What the archives are made from.
pub(super) fn inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    Workshop::record_toolchain(&mut inputs);
    inputs.text("recipe", include_str!("pictures.rs")).value("jumps", JUMP_FLAGS.join(" "));
    inputs.tree("headers", &own_headers(workshop))?;
    inputs.tree("headers of CPython", &python::headers(workshop)?.join("include"))?;
    Ok(inputs)
}

/// Where headers lie that the libraries' own builds would make.
fn own_headers(workshop: &Workshop) -> PathBuf {
    super::folder(workshop).join("libraries")
}

/// A folder with `lib/*.a` and `include/`, made unless the cache has it.
pub(super) fn libraries(workshop: &Workshop) -> Result<PathBuf> {
    workshop.cache.product("libraries", "pictures", &inputs(workshop)?, |bench| {
        for folder in ["lib", "include"] {
            fs::create_dir_all(bench.out.join(folder))?;
        }
        LIBRARIES.iter().try_for_each(|library| {
            let title = format!("compile {}", library.name);
            bench.step(&title, || library.make(workshop, bench))
        })
    })
}

impl Library {
    fn make(&self, workshop: &Workshop, bench: &Bench) -> Result<()> {
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
            command.args(COMPILE_FLAGS).args(JUMP_FLAGS).args(self.flags);
            command.args(self.includes.iter().map(|folder| format!("-I{}", sources.join(folder).display())));
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
