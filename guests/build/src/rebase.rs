//! Tries a series of patches on another version of the sources that it changes: what a move to that version would take.
//!
//! The sources are a copy in a folder of their own, which stays: hunks that fail lie there, in a file for each patch.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::inputs::files_below;
use crate::javascript::QUICKJS;
use crate::process::run;
use crate::python::archives;
use crate::python::copy_tree;
use crate::sources::crate_archive;
use crate::workshop::Workshop;

/// Options of GNU patch: as when a guest is built, but for the lines around a hunk, of which some may differ.
const OPTIONS: &[&str] = &["--batch", "--forward", "--no-backup-if-mismatch", "--strip=1"];

/// Sources and a version to try a series on.
#[derive(Debug, Args)]
pub(crate) struct Rebase {
    /// Sources that are patched: cpython, quickjs, or a package of the data guest, such as numpy.
    name: String,
    /// Version to try; of quickjs, that of the crate that carries it.
    version: String,
    /// Unpacked sources of that version, in the place of those that are downloaded.
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,
    /// Where the patched copy goes, replaced when it is there [default: target/rebase/NAME-VERSION in the checkout].
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
}

/// A series of patches, and what is added to the sources before it is applied.
struct Series {
    patches: PathBuf,
    added: Option<PathBuf>,
}

impl Series {
    /// The series of these sources.
    ///
    /// # Errors
    /// When there is none; the message names those that there are.
    fn find(root: &Path, name: &str) -> Result<Self> {
        let data = root.join("guests/python-data");
        match name {
            "cpython" => Ok(Self { patches: root.join("guests/python/patches"), added: None }),
            "quickjs" => Ok(Self { patches: root.join("guests/javascript/patches"), added: None }),
            _ => {
                let mut known = vec!["cpython".to_owned(), "quickjs".to_owned()];
                for entry in fs::read_dir(data.join("patches"))? {
                    known.push(entry?.file_name().to_string_lossy().into_owned());
                }
                known.sort();
                ensure!(
                    known.iter().any(|each| each == name),
                    "no patches for `{name}`; there are {}",
                    known.join(", ")
                );
                let added = Some(data.join("added").join(name)).filter(|folder| folder.exists());
                Ok(Self { patches: data.join("patches").join(name), added })
            }
        }
    }
}

/// Hunks of a patch for one file that do not fit as they are.
#[derive(Debug, PartialEq)]
struct Misfit {
    patch: String,
    file: String,
    how: How,
}

/// A hunk is named by its number in the patch, of those for this file, and by the line of the file where it was looked for.
#[derive(Debug, PartialEq)]
enum How {
    /// Applied, though so many lines around it differ.
    Fuzzy {
        hunk: usize,
        line: usize,
        fuzz: usize,
    },
    Fails {
        hunk: usize,
        line: usize,
    },
    /// There is no file, or it has these changes already.
    Skipped {
        hunks: usize,
    },
}

impl Misfit {
    /// Number of hunks that are not applied.
    fn failed(&self) -> usize {
        match self.how {
            How::Fuzzy { .. } => 0,
            How::Fails { .. } => 1,
            How::Skipped { hunks } => hunks,
        }
    }
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { patch, file, how } = self;
        match how {
            How::Fuzzy { hunk, line, fuzz } => {
                write!(formatter, "{patch}: {file}:{line}: hunk {hunk} fits with fuzz {fuzz}")
            }
            How::Fails { hunk, line } => write!(formatter, "{patch}: {file}:{line}: hunk {hunk} fails"),
            How::Skipped { hunks } => {
                write!(
                    formatter,
                    "{patch}: {file}: {hunks} skipped: there is no such file, or it has the changes already"
                )
            }
        }
    }
}

/// Tries the series, and writes to `out` what does not fit.
///
/// # Errors
/// When a hunk fails, besides when the sources cannot be had.
pub(crate) fn rebase(workshop: &Workshop, options: &Rebase, out: &mut dyn Write) -> Result<()> {
    let Rebase { name, version, from, into } = options;
    let series = Series::find(&workshop.root, name)?;
    let fallback = || workshop.root.join("target/rebase").join(format!("{name}-{version}"));
    let folder = into.clone().unwrap_or_else(fallback);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("could not remove `{}`", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("could not create `{}`", folder.display()))?;
    match from {
        Some(from) => copy_tree(from, &folder)?,
        None => {
            let work = folder.join(".download");
            fs::create_dir(&work)?;
            download(name, version, &folder, &work)?;
            fs::remove_dir_all(&work)?;
        }
    }
    if let Some(added) = &series.added {
        copy_tree(added, &folder)?;
    }
    report(&series.patches, &folder, out)
}

/// Downloads the sources of a version into a folder, by way of another.
fn download(name: &str, version: &str, folder: &Path, work: &Path) -> Result<()> {
    match name {
        "cpython" => bail!("unpack the archive of CPython {version}, and name the folder with --from"),
        "quickjs" => {
            let archive = work.join("archive.crate");
            crate_archive(QUICKJS.name, version, &archive)?;
            let mut tar = Command::new("tar");
            tar.arg("xf").arg(&archive).args(["--strip-components=1", "-C"]).arg(work);
            run(&mut tar, &work.join("tar.log"))?;
            copy_tree(&work.join("embed/quickjs"), folder)
        }
        _ => {
            let (fetched, unpacked) = (work.join("archives"), work.join("unpacked"));
            archives::fetch_unchecked(&format!("{name}=={version}\n"), work, &fetched)?;
            archives::unpack(&fetched, &unpacked, &work.join("tar.log"))?;
            let found = files_below(&unpacked)?;
            ensure!(!found.is_empty(), "the archive of `{name}` {version} is empty");
            copy_tree(&unpacked.join(name), folder)
        }
    }
}

/// Applies the series to the sources in `tree`, and writes what does not fit.
///
/// # Errors
/// When a hunk fails.
fn report(series: &Path, tree: &Path, out: &mut dyn Write) -> Result<()> {
    let (mut hunks, mut failed, mut fuzzy) = (0, 0, 0);
    for patch in files_below(series)? {
        let text = fs::read_to_string(&patch)?;
        hunks += text.lines().filter(|line| line.starts_with("@@ ")).count();
        for misfit in apply(&patch, &text, tree)? {
            failed += misfit.failed();
            fuzzy += usize::from(misfit.failed() == 0);
            writeln!(out, "{misfit}")?;
        }
    }
    writeln!(out, "{hunks} hunks: {fuzzy} fit with fuzz, {failed} fail")?;
    ensure!(failed == 0, "{failed} of {hunks} hunks fail; they are in `.rej` files in `{}`", tree.display());
    Ok(())
}

/// Applies one patch as far as it fits.
fn apply(patch: &Path, text: &str, tree: &Path) -> Result<Vec<Misfit>> {
    let name = patch.file_name().unwrap_or_default().to_string_lossy();
    let mut command = Command::new("patch");
    command.args(OPTIONS).arg("--directory").arg(tree).arg("--input").arg(patch);
    // Else those of a later patch would take the place of those for the same file.
    command.arg("--reject-file").arg(std::path::absolute(tree.join(format!("{name}.rej")))?);
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output().context("could not start `patch`")?;
    let said = String::from_utf8_lossy(&output.stdout);
    // 1 stands for hunks that fail.
    let is_read = output.status.code().is_some_and(|code| code <= 1);
    ensure!(is_read, "`patch` failed on `{}`:\n{said}{}", patch.display(), String::from_utf8_lossy(&output.stderr));
    let misfits = misfits(&name, &said);
    ensure!(output.status.success() || !misfits.is_empty(), "`patch` failed on `{name}`, and said:\n{said}");
    ensure!(text.contains("\n@@ "), "`{name}` has no hunks");
    Ok(misfits)
}

/// Parses GNU patch's messages about hunks that do not fit as they are.
fn misfits(patch: &str, said: &str) -> Vec<Misfit> {
    let mut found = Vec::new();
    let mut file = String::new();
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("patching file ").or_else(|| line.strip_prefix("|+++ b/")) {
            file = name.split_whitespace().next().unwrap_or_default().trim_matches('\'').to_owned();
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let how = match words[..] {
            ["Hunk", hunk, "FAILED", "at", line, ..] => How::Fails { hunk: number(hunk), line: number(line) },
            ["Hunk", hunk, "succeeded", "at", line, "with", "fuzz", fuzz, ..] => {
                How::Fuzzy { hunk: number(hunk), line: number(line), fuzz: number(fuzz) }
            }
            [hunks, "out", "of", _, "hunk" | "hunks", "ignored", ..] => How::Skipped { hunks: number(hunks) },
            _ => continue,
        };
        found.push(Misfit { patch: patch.to_owned(), file: file.clone(), how });
    }
    found
}

/// The number in a word such as `#3` or `120.`.
fn number(word: &str) -> usize {
    word.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "The third is a drei.\n\n--- a/n.txt\n+++ b/n.txt\n@@ -2,3 +2,3 @@\n two\n-three\n+drei\n four\n@@ -6,3 +6,3 @@\n six\n-seven\n+sieben\n eight\n";
    const SECOND: &str = "So is this.\n\n--- a/in/m.txt\n+++ b/in/m.txt\n@@ -1,2 +1,2 @@\n-one\n+eins\n two\n@@ -4,1 +4,1 @@\n-four\n+vier\n";

    /// Tries the series on sources with these files. Returns the report, how it ended, `n.txt`, and what was rejected of the first patch.
    fn tried(files: &[(&str, &str)]) -> (String, Result<()>, String, String) {
        let folder = tempfile::tempdir().unwrap();
        let (series, tree) = (folder.path().join("patches"), folder.path().join("tree"));
        fs::create_dir_all(&series).unwrap();
        fs::create_dir_all(tree.join("in")).unwrap();
        fs::write(series.join("1-drei.patch"), FIRST).unwrap();
        fs::write(series.join("2-eins.patch"), SECOND).unwrap();
        for (name, text) in files {
            fs::write(tree.join(name), text).unwrap();
        }
        let mut out = Vec::new();
        let result = report(&series, &tree, &mut out);
        let read = |name| fs::read_to_string(tree.join(name)).unwrap_or_default();
        (String::from_utf8(out).unwrap(), result, read("n.txt"), read("1-drei.patch.rej"))
    }

    #[test]
    fn a_series_that_fits_is_applied_wherever_its_lines_have_gone() {
        let (said, result, text, _) = tried(&[
            ("n.txt", "new\nnew\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n"),
            ("in/m.txt", "one\ntwo\nthree\nfour\n"),
        ]);
        assert_eq!(said, "4 hunks: 0 fit with fuzz, 0 fail\n");
        result.unwrap();
        assert!(text.contains("two\ndrei\nfour") && text.contains("six\nsieben\neight"), "{text}");
    }

    #[test]
    fn hunks_that_fail_or_need_fuzz_are_named_with_file_and_line() {
        let (said, result, text, rejected) = tried(&[
            ("n.txt", "one\ntwo\nthree\nchanged\nfive\nsix\n7\neight\n"),
            ("in/m.txt", "one\ntwo\nthree\nfour\n"),
        ]);
        assert_eq!(
            said,
            "1-drei.patch: n.txt:2: hunk 1 fits with fuzz 1\n1-drei.patch: n.txt:6: hunk 2 fails\n\
             4 hunks: 1 fit with fuzz, 1 fail\n"
        );
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with("1 of 4 hunks fail"), "{error}");
        assert!(text.contains("drei"), "what fits is applied: {text}");
        assert!(rejected.contains("+sieben"), "{rejected}");
    }

    #[test]
    fn hunks_of_a_file_that_is_gone_fail() {
        let (said, result, ..) = tried(&[("n.txt", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n")]);
        assert!(said.starts_with("2-eins.patch: in/m.txt: 2 skipped: there is no such file"), "{said}");
        assert!(said.ends_with("4 hunks: 0 fit with fuzz, 2 fail\n"), "{said}");
        result.unwrap_err();
    }

    #[test]
    fn sources_without_patches_are_an_error_that_names_those_that_have_some() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let error = Series::find(&root, "numbpy").err().unwrap().to_string();
        assert!(error.contains("cpython") && error.contains("numpy") && error.contains("quickjs"), "{error}");
    }
}
