//! The host beside the guests: cargo compiles it while they are built, and it bakes them.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::guest::Guest;
use crate::process::{run, wait};
use crate::progress::Progress;
use crate::workshop::Workshop;

/// Lines of what cargo said that are kept.
const LINES_MAX: usize = 400;

/// Bytes of a line of cargo's that are kept.
const LINE_BYTES_MAX: usize = 4096;

/// The name of the host among products.
pub(crate) const NAME: &str = "host";
/// The steps of this module.
const COMPILE: &str = "compile";
pub(crate) const BAKE: &str = "bake";

/// First words of cargo's lines that say nothing of the code.
const USUAL: &[&str] =
    &["Blocking", "Compiling", "Downloaded", "Downloading", "Finished", "Fresh", "Locking", "Updating"];

/// Has cargo compile the host.
///
/// # Errors
/// It does not compile; the message has what cargo said.
pub(crate) fn compile(workshop: &Workshop) -> Result<()> {
    let progress = Progress::new(NAME);
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--workspace"]).current_dir(&workshop.root);
    // How far it is, for who reads it.
    cargo
        .env("CARGO_TERM_PROGRESS_WHEN", "always")
        .env("CARGO_TERM_PROGRESS_WIDTH", "80")
        .env("CARGO_TERM_COLOR", "never");
    cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut said = VecDeque::new();
    progress.timed_if_long(COMPILE, || {
        let status = wait(&mut cargo, |child| {
            let output = child.stderr.take().context("cargo has a standard error")?;
            lines(BufReader::new(output), |line| match count(line) {
                Some(count) => progress.show(COMPILE, &format!(" {count}")),
                None if USUAL.iter().any(|word| line.trim_start().starts_with(word)) => {}
                None => {
                    if said.len() == LINES_MAX {
                        said.pop_front();
                    }
                    said.push_back(line.to_owned());
                }
            })
        })?;
        let text = said.iter().map(|line| format!("\n{line}")).collect::<String>();
        if !status.success() {
            bail!("the host does not compile ({status}):{text}");
        }
        if !text.trim().is_empty() {
            progress.note(&format!("cargo said:{text}"));
        }
        Ok(())
    })
}

/// Hands on what is between ends of lines, and between returns to their beginnings.
fn lines(mut output: impl Read, mut hear: impl FnMut(&str)) -> Result<()> {
    let (mut line, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let read = output.read(&mut bytes)?;
        for &byte in bytes.get(..read).unwrap_or_default() {
            match byte {
                b'\n' | b'\r' => {
                    hear(&String::from_utf8_lossy(&line));
                    line.clear();
                }
                _ if line.len() < LINE_BYTES_MAX => line.push(byte),
                _ => {}
            }
        }
        if read == 0 {
            hear(&String::from_utf8_lossy(&line));
            return Ok(());
        }
    }
}

/// Returns the compiled and the total number of crates if the line is cargo's bar: `Building [==> ] 12/681: serde`.
fn count(line: &str) -> Option<&str> {
    let (_, rest) = line.trim_start().strip_prefix("Building [")?.split_once("] ")?;
    Some(rest.split_once(':').map_or(rest, |(count, _)| count).trim())
}

/// The command that is compiled.
fn program(workshop: &Workshop) -> PathBuf {
    workshop.root.join("target/release/cellar")
}

/// Returns true if it was compiled before.
pub(crate) fn is_there(workshop: &Workshop) -> bool {
    program(workshop).is_file()
}

/// The command, for guests in a folder.
fn command(workshop: &Workshop, guests: &Path) -> Command {
    let mut command = Command::new(program(workshop));
    command.arg("--guests").arg(guests).arg("--cache").arg(workshop.cache.root()).stdin(Stdio::null());
    command
}

/// Has the host bake guests, unless they are, and says whether there was anything to do.
///
/// # Errors
/// One of them cannot be baked.
pub(crate) fn bake(workshop: &Workshop, guests: &Path, names: &[&str]) -> Result<bool> {
    let folder = workshop.cache.root().join("logs");
    fs::create_dir_all(&folder)?;
    let log = folder.join(format!("bake-{}.log", std::process::id()));
    let mut bake = command(workshop, guests);
    bake.arg("bake").args(names);
    Progress::new(&names.join(", ")).timed_if_long(BAKE, || run(&mut bake, &log))?;
    let said = fs::read_to_string(&log)?;
    fs::remove_file(&log)?;
    Ok(names.iter().any(|name| !said.contains(&format!("{name}: ready already"))))
}

/// Cells that are shown as soon as there is something to run them, with the guests that they need.
const FIRST_CELLS: &[(&str, &str, &str)] = &[
    ("python", "py", "import sys; print('Python', sys.version.split()[0], 'runs:', sum(range(101)))"),
    ("javascript", "js", "console.log('JavaScript runs:', [...Array(101).keys()].reduce((a, b) => a + b))"),
];

/// Runs a first cell in each language.
///
/// # Errors
/// A cell fails.
pub(crate) fn show_first_cells(workshop: &Workshop, guests: &Path, made: &[&dyn Guest]) -> Result<()> {
    for (_, language, code) in FIRST_CELLS.iter().filter(|(name, ..)| made.iter().any(|guest| guest.name() == *name)) {
        let output = command(workshop, guests).args(["eval", "-l", language, code]).output()?;
        if !output.status.success() {
            bail!("the first cell failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Progress::new("first cell").note(String::from_utf8_lossy(&output.stdout).trim_end());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_cargo_is_is_read_from_its_bar() {
        let said = "   Compiling serde v1.0.0\n    Building [==>    ] 12/681: serde, syn\r    Building [===>   ] 13/681\r\nerror: no";
        let (mut counts, mut others) = (Vec::new(), Vec::new());
        lines(said.as_bytes(), |line| match count(line) {
            Some(count) => counts.push(count.to_owned()),
            None => others.push(line.to_owned()),
        })
        .unwrap();
        assert_eq!(counts, ["12/681", "13/681"]);
        assert_eq!(others, ["   Compiling serde v1.0.0", "", "error: no"]);
    }
}
