//! Source archives of Python packages, fetched with `pip` without running anything of them.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::run;

/// Answers in place of the backends that build the packages.
const SOURCE_ARCHIVE: &str = include_str!("source_archive.py");
/// The modules of those backends. One that is missing here fails the fetch: `pip` finds no module of its name.
const BACKENDS: &[&str] = &[
    "flit_core/buildapi",
    "hatchling/build",
    "mesonpy",
    "poetry/core/masonry/api",
    "scikit_build_core/build",
    "setuptools/build_meta",
];

/// Fetches the archives that `requirements` names, each checked against its hash.
pub(crate) fn fetch(requirements: &str, work: &Path, archives: &Path) -> Result<()> {
    download(requirements, &["--require-hashes"], work, archives)
}

/// Fetches archives that nothing is built from, whose hashes nobody knows.
pub(crate) fn fetch_unchecked(requirements: &str, work: &Path, archives: &Path) -> Result<()> {
    download(requirements, &[], work, archives)
}

fn download(requirements: &str, options: &[&str], work: &Path, archives: &Path) -> Result<()> {
    let list = work.join("archives.txt");
    fs::write(&list, requirements)?;
    let backends = work.join("backends");
    for backend in BACKENDS {
        let file = backends.join(backend).with_extension("py");
        let folders = file.ancestors().skip(1).take_while(|folder| *folder != backends);
        fs::create_dir_all(file.parent().context("a backend is in a package")?)?;
        for folder in folders {
            fs::write(folder.join("__init__.py"), "")?;
        }
        fs::write(&file, SOURCE_ARCHIVE)?;
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]).args(options);
    // For the guest's Python, whichever the machine has.
    pip.args(["--no-binary", ":all:", "--no-build-isolation", "--use-pep517", "--ignore-requires-python"]);
    pip.env("PYTHONPATH", &backends).arg("--dest").arg(archives).arg("-r").arg(&list);
    run(&mut pip, &work.join("archives.log"))
}

/// Unpacks each archive into a folder that has the package's name without its version.
pub(crate) fn unpack(archives: &Path, folder: &Path, log: &Path) -> Result<()> {
    for entry in fs::read_dir(archives)? {
        let archive = entry?.path();
        let name = archive.file_name().and_then(OsStr::to_str).context("an archive without a name")?;
        let (name, _) = name.rsplit_once('-').with_context(|| format!("`{name}` has no version"))?;
        let folder = folder.join(name);
        // What an interrupted attempt has left may have been changed by patches.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let mut tar = Command::new("tar");
        tar.arg("xf").arg(&archive).args(["--strip-components=1", "--no-same-owner", "-C"]).arg(&folder);
        run(&mut tar, log)?;
    }
    Ok(())
}
