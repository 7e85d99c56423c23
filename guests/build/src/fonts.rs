//! Fonts of scripts that the guests' own have no characters of: Noto's, as Debian has packed them.
//!
//! Noto Sans CJK is cut to the characters of the basic plane and to outlines, by fontTools: 8 MB are left of 19. The others are taken as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::debian::Package;
use crate::inputs::Inputs;
use crate::process::run;
use crate::python::build_python;
use crate::python_data;
use crate::workshop::Workshop;

const CJK: Package = Package {
    pool: "main/f/fonts-noto-cjk",
    file: "fonts-noto-cjk_20220127+repack1-1_all.deb",
    sha256: "4a2515eb6db3978b897fef9709ed0d2b1f4c6c4df4d83d6c4ef65f71f1b1f502",
    variable: "CELLAR_NOTO_CJK_PACKAGE",
};
const CORE: Package = Package {
    pool: "main/f/fonts-noto",
    file: "fonts-noto-core_20201225-1_all.deb",
    sha256: "58f4f0bb6720f919f92096b3508e1412a0f1544424ade6c5b5bf1eb694dd64ba",
    variable: "CELLAR_NOTO_CORE_PACKAGE",
};
/// The scripts of the other fonts; the first has Latin, Greek and Cyrillic, and signs of currencies.
const SCRIPTS: &[&str] = &[
    "",
    "Arabic",
    "Bengali",
    "Devanagari",
    "Ethiopic",
    "Gujarati",
    "Gurmukhi",
    "Hebrew",
    "Kannada",
    "Khmer",
    "Lao",
    "Malayalam",
    "Myanmar",
    "Oriya",
    "Sinhala",
    "Symbols2",
    "Tamil",
    "Telugu",
    "Thai",
];
/// Cuts the face for Simplified Chinese, which has all characters of the others, and none of their variants.
const CUT: &str = r#"
import sys
from fontTools import subset
from fontTools.ttLib import TTFont
font = TTFont(sys.argv[1], fontNumber=2)
options = subset.Options()
options.layout_features, options.hinting, options.notdef_outline, options.name_IDs = [], False, True, ["*"]
options.drop_tables += ["VORG", "vhea", "vmtx", "GSUB", "GPOS", "BASE"]
cut = subset.Subsetter(options)
cut.populate(unicodes=[character for character in font.getBestCmap() if character < 0x10000])
cut.subset(font)
font.save(sys.argv[2])
"#;

/// Returns the digest's inputs: this recipe and the packages that cut the fonts.
pub(crate) fn inputs(workshop: &Workshop) -> Result<Inputs> {
    let mut inputs = Inputs::default();
    inputs.text("recipe", include_str!("fonts.rs"));
    inputs.value("packages", python_data::pure_inputs(workshop)?.digest());
    Ok(inputs)
}

/// A folder with the fonts and their license, made unless the cache has it.
pub(crate) fn folder(workshop: &Workshop) -> Result<PathBuf> {
    workshop.cache.product("libraries", "fonts", &inputs(workshop)?, |bench| {
        let tree = bench.work.join("packages");
        for package in [CJK, CORE] {
            let archive = package.fetch(workshop)?;
            let log = bench.work.join("unpack.log");
            run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&tree), &log)?;
        }
        for script in SCRIPTS {
            let name = format!("NotoSans{script}-Regular.ttf");
            copy(&tree.join("usr/share/fonts/truetype/noto").join(&name), &bench.out.join(&name))?;
        }
        copy(&tree.join("usr/share/doc/fonts-noto-core/copyright"), &bench.out.join("LICENSE_NOTO"))?;
        bench.step("cut Noto Sans CJK", || {
            let mut cut = Command::new(build_python::find(workshop)?);
            cut.env("PYTHONPATH", python_data::pure(workshop)?).args(["-c", CUT]);
            cut.arg(tree.join("usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"));
            run(cut.arg(bench.out.join("NotoSansCJK-Regular.otf")), &bench.work.join("cut.log"))
        })
    })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("could not copy `{}`", from.display()))
}
