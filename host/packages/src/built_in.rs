//! Packages that a guest has in its image, for pip: empty wheels that say their names and versions.
//!
//! They let pip add packages that need, for example, Pillow to a guest that has it. Without them pip finds no wheel of
//! Pillow that runs everywhere, and goes back to an old version of the package that did not need it.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use zip::{ZipWriter, write::SimpleFileOptions};

use crate::{
    PackageError,
    lock::is_version,
    names::{Wanted, is_python_name, normal},
};

/// A package with native code that a guest has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name, normalized.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Writes wheels for those that nobody wants by name, into `folder`.
pub(crate) fn write_wheels(folder: &Path, built_in: &[BuiltIn], wanted: &[Wanted]) -> Result<(), PackageError> {
    fs::create_dir(folder).map_err(PackageError::store(folder))?;
    for package in built_in.iter().filter(|package| !wanted.iter().any(|wanted| normal(&wanted.name) == package.name)) {
        if is_python_name(&package.name) && is_version(&package.version) {
            let path = folder.join(file_name(package));
            write_wheel(&path, package).map_err(PackageError::store(&path))?;
        }
    }
    Ok(())
}

/// The name of the file of its wheel.
fn file_name(package: &BuiltIn) -> String {
    format!("{}-{}-py3-none-any.whl", package.name.replace('-', "_"), package.version)
}

fn write_wheel(path: &Path, package: &BuiltIn) -> io::Result<()> {
    let BuiltIn { name, version } = package;
    let folder = format!("{}-{version}.dist-info", name.replace('-', "_"));
    let mut wheel = ZipWriter::new(File::create_new(path)?);
    let parts = [
        ("METADATA", format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")),
        ("WHEEL", "Wheel-Version: 1.0\nGenerator: cellar\nRoot-Is-Purelib: true\nTag: py3-none-any\n".to_owned()),
        ("RECORD", String::new()),
    ];
    for (part, text) in parts {
        wheel.start_file(format!("{folder}/{part}"), SimpleFileOptions::default())?;
        wheel.write_all(text.as_bytes())?;
    }
    wheel.finish()?;
    Ok(())
}

/// Removes the wheels that were taken from `folder` into `fetched`; returns which packages these are.
pub(crate) fn take_away(folder: &Path, fetched: &Path, built_in: &[BuiltIn]) -> Result<Vec<BuiltIn>, PackageError> {
    let mut taken = Vec::new();
    for package in built_in {
        let (own, path) = (folder.join(file_name(package)), fetched.join(file_name(package)));
        // One of that name that is not ours comes from the registry, and is unpacked.
        let is_ours = fs::read(&own).is_ok_and(|own| fs::read(&path).is_ok_and(|found| found == own));
        if is_ours {
            fs::remove_file(&path).map_err(PackageError::store(&path))?;
            taken.push(package.clone());
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Wanted;

    #[test]
    fn wheels_of_a_guest_are_written_but_for_what_is_wanted_and_taken_away_again() {
        let place = tempfile::tempdir().expect("a folder");
        let (folder, fetched) = (place.path().join("there"), place.path().join("fetched"));
        fs::create_dir(&fetched).expect("a folder");
        let of = |name: &str, version: &str| BuiltIn { name: name.to_owned(), version: version.to_owned() };
        let built_in = [of("pillow", "12.3.0"), of("numpy", "2.5.5"), of("../evil", "1")];
        let wanted = Wanted::parse("numpy").expect("a name");
        write_wheels(&folder, &built_in, &[wanted]).expect("written");
        let written: Vec<_> =
            fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(written, ["pillow-12.3.0-py3-none-any.whl"]);
        // pip copies what it takes; one of the registry's that has the same name is not ours.
        fs::copy(folder.join(&written[0]), fetched.join(&written[0])).expect("copied");
        fs::write(fetched.join("numpy-2.5.5-py3-none-any.whl"), "another").expect("written");
        assert_eq!(take_away(&folder, &fetched, &built_in).expect("taken"), [of("pillow", "12.3.0")]);
        assert!(!fetched.join(&written[0]).exists() && fetched.join("numpy-2.5.5-py3-none-any.whl").exists());
    }
}
