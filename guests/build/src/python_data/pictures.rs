//! C libraries that draw letters, find hulls of points, and read and write pictures.

use super::static_libraries::{Group, Library};
use crate::debian::Original;
use crate::exceptions::JUMP_FLAGS;

/// They leave functions by `longjmp` where a picture or a font is damaged.
pub(super) const PICTURES: Group =
    Group { name: "pictures", libraries: &[FREETYPE, JPEG, JPEG_2000, LCMS, QHULL, WEBP, TIFF], flags: JUMP_FLAGS };

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

const JPEG_2000: Library = Library {
    name: "openjp2",
    source: Original {
        package: "openjpeg2",
        suite: "trixie",
        archive: "openjpeg2_2.5.3.orig.tar.xz",
        sha256: "3100f0316e922630112cf6d72c0c20776896e64ad7eab72c2f713c460287eb92",
        variable: "CELLAR_OPENJPEG_SOURCE",
    },
    files: &["src/lib/openjp2"],
    // What makes its tables, what measures it, and what answers questions about parts of files over a network.
    without: &["_clock", "_generate_", "_manager", "bench_", "test_"],
    includes: &["src/lib/openjp2"],
    headers: &[("src/lib/openjp2/openjpeg.h", "openjpeg.h"), ("src/lib/openjp2/opj_config.h", "opj_config.h")],
    flags: &["-DOPJ_STATIC"],
};

const LCMS: Library = Library {
    name: "lcms2",
    source: Original {
        package: "lcms2",
        suite: "trixie",
        archive: "lcms2_2.16.orig.tar.gz",
        sha256: "d873d34ad8b9b4cea010631f1a6228d2087475e4dc5e763eb81acc23d9d45a51",
        variable: "CELLAR_LCMS_SOURCE",
    },
    files: &["src"],
    without: &[],
    includes: &["include", "src"],
    headers: &[("include/lcms2.h", "lcms2.h")],
    flags: &["-DCMS_NO_PTHREADS"],
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

/// After the libraries of the compressions that it knows.
const TIFF: Library = Library {
    name: "tiff",
    source: Original {
        package: "tiff",
        suite: "trixie",
        archive: "tiff_4.7.0.orig.tar.bz2",
        sha256: "2b8b5c4e79cb2a4651796602e45d6179b7f18bc283feab417b8e881ef7e81862",
        variable: "CELLAR_TIFF_SOURCE",
    },
    files: &["libtiff"],
    // What makes its tables, and another system's files.
    without: &["_win32", "mkg3states", "mkspans"],
    includes: &["libtiff"],
    headers: &[
        ("libtiff/tiff.h", "tiff.h"),
        ("libtiff/tiffconf.h", "tiffconf.h"),
        ("libtiff/tiffio.h", "tiffio.h"),
        ("libtiff/tiffvers.h", "tiffvers.h"),
    ],
    flags: &[],
};
