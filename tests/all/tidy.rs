//! Rules of the repository that no compiler checks.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::root;

/// The engine's modules from the bottom up: a module uses only what stands above it in this list.
const LAYERS: &[&str] = &[
    "cell",
    "mime",
    "outcome",
    "event",
    "limits",
    "prefix",
    "artifacts",
    "history",
    "remembered",
    "result",
    "bridge",
    "files",
    "snapshot",
    "tape",
    "error",
    "config",
    "tables",
    "renderer",
    "bindings",
    "introspection",
    "meter",
    "record",
    "manifest",
    "workspace",
    "vault",
    "locals",
    "calls",
    "audit",
    "input",
    "store",
    "store_files",
    "store_imports",
    "store_state",
    "memory",
    "artifact",
    "kernel",
    "guest",
    "sweep",
    "host",
    "checkpoint",
    "reactor",
    "session",
    "run",
    "replay",
];

/// The one way up: a bridge call carries its session, so that an agent can run cells in it.
const EXCEPTIONS: &[(&str, &str)] = &[("bridge", "session"), ("store", "session")];

/// Largest source file, in lines before its tests.
const LINES_MAX: usize = 600;
/// Largest file of any kind, in bytes.
const FILE_BYTES_MAX: usize = 256 << 10;

fn tracked_files() -> Vec<PathBuf> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().expect("git");
    assert!(output.status.success(), "git ls-files failed");
    let names = String::from_utf8(output.stdout).expect("names are text");
    names.split_terminator('\0').map(|name| root().join(name)).filter(|path| path.is_file()).collect()
}

fn module_of(source: &Path, file: &Path) -> String {
    let first = file.strip_prefix(source).expect("below the source").components().next().expect("a name");
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// The crate's own modules that a source names.
fn uses(text: &str) -> HashSet<String> {
    let names = |text: &str| text.split(|c: char| !(c.is_alphanumeric() || c == '_')).next().map(str::to_owned);
    let mut found: HashSet<String> = text.split("crate::").skip(1).filter_map(names).collect();
    for group in text.split("use crate::{").skip(1) {
        let body = group.split("\n};").next().unwrap_or_default();
        found.extend(
            body.lines()
                .filter(|line| line.starts_with("    ") && !line.starts_with("     "))
                .filter_map(|line| names(line.trim_start())),
        );
    }
    found
}

#[test]
fn modules_of_the_engine_use_only_what_lies_below() {
    let source = root().join("host/engine/src");
    let mut breaches = Vec::new();
    let rank = |module: &str| LAYERS.iter().position(|layer| *layer == module);
    for file in tracked_files().into_iter().filter(|file| file.starts_with(&source)) {
        let module = module_of(&source, &file);
        if module == "lib" {
            continue;
        }
        let Some(own) = rank(&module) else {
            breaches.push(format!("`{module}` is not in the list of layers"));
            continue;
        };
        let text = std::fs::read_to_string(&file).expect("source is text");
        let code: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .fold(String::new(), |all, line| all + line + "\n");
        for used in uses(&code) {
            let allowed = EXCEPTIONS.contains(&(module.as_str(), used.as_str()));
            if rank(&used).is_some_and(|used| used > own) && !allowed {
                breaches.push(format!("`{module}` uses `{used}`, which lies above it"));
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn only_the_loader_of_machine_code_is_unsafe() {
    for file in tracked_files() {
        let is_loader = file.ends_with("host/engine/src/artifact.rs");
        if file.extension().is_none_or(|extension| extension != "rs") || is_loader || file.ends_with("tidy.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("source is text");
        assert!(!text.contains("unsafe {"), "`{}` has unsafe code", file.display());
    }
}

#[test]
fn no_binary_and_nothing_large_is_in_git() {
    for file in tracked_files() {
        let bytes = std::fs::read(&file).expect("a readable file");
        assert!(bytes.len() <= FILE_BYTES_MAX, "`{}` has {} bytes", file.display(), bytes.len());
        // An attack on a reader of text must itself be no text; such fixtures say so in their name.
        let may_be_binary = file.to_string_lossy().contains("not-utf8");
        assert!(may_be_binary || std::str::from_utf8(&bytes).is_ok(), "`{}` is binary", file.display());
    }
}

#[test]
fn no_source_file_outgrows_a_reader() {
    for file in tracked_files() {
        if file.extension().is_none_or(|extension| extension != "rs" && extension != "c") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("source is text");
        let lines = text.split("\n#[cfg(test)]\nmod ").next().map_or(0, |code| code.lines().count());
        assert!(lines <= LINES_MAX, "`{}` has {lines} lines, at most {LINES_MAX} are allowed", file.display());
    }
}

#[test]
fn no_file_names_a_registry_or_a_path_of_one_machine() {
    // Spelt in pieces, so that this file does not find itself.
    let banned = [
        ["deb.", "debian.org"],
        ["pypi.", "org"],
        ["files.pythonhosted", ".org"],
        ["registry.npmjs", ".org"],
        ["static.crates", ".io"],
        ["index.crates", ".io"],
        ["/wo", "rk/main"],
    ];
    for file in tracked_files() {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        for name in banned.map(|pieces| pieces.concat()) {
            assert!(!text.contains(&name), "`{}` names `{name}`", file.display());
        }
    }
}
