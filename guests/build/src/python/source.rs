//! CPython's sources: the original archive inside Debian's source package, as python.org published it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::debian::Original;
use crate::process::run;
use crate::workshop::Workshop;

pub(super) const SHA256: &str = ORIGINAL.sha256;

const ORIGINAL: Original = Original {
    package: "python3.13",
    suite: "trixie",
    archive: "python3.13_3.13.5.orig.tar.xz",
    sha256: "93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640",
    variable: "CELLAR_PYTHON_SOURCE",
};

/// Unpacks the archive into `folder`, without the folder at its top.
pub(super) fn unpack(workshop: &Workshop, folder: &Path, log: &Path) -> Result<()> {
    let archive = ORIGINAL.fetch(workshop)?;
    fs::create_dir_all(folder)?;
    run(Command::new("tar").arg("xf").arg(&archive).args(["--strip-components=1", "-C"]).arg(folder), log)
}
