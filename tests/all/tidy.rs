//! Rules of the repository that no compiler checks.

mod functions;
mod patches;
mod prelude;
mod threats;
mod words;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::root;

/// Largest file of any kind, in bytes.
const FILE_BYTES_MAX: usize = 256 << 10;

/// Licences under which a dependency may come.
const LICENCES: [&str; 12] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];
/// Dependencies whose licence a person has read: one that only ships its text, which is MIT's, and one under a licence that
/// it may have because it is used unchanged, as a library.
const LICENCES_READ: [(&str, &str); 2] = [("icy_sixel", "MIT"), ("option-ext", "MPL-2.0")];

fn tracked_files() -> Vec<PathBuf> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().expect("git");
    assert!(output.status.success(), "git ls-files failed");
    let names = String::from_utf8(output.stdout).expect("names are text");
    names.split_terminator('\0').map(|name| root().join(name)).filter(|path| path.is_file()).collect()
}

/// The layers as `host/ARCHITECTURE.md` states them, in a block that is marked with `name`: each line begins with a
/// layer, or with several that commas join, which use only layers of lines above theirs.
fn layers(name: &str) -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(root().join("host/ARCHITECTURE.md")).expect("the page");
    let block =
        page.split(&format!("```{name}\n")).nth(1).and_then(|rest| rest.split("```").next()).expect("the block");
    let lines = block.lines().filter_map(|line| line.split_whitespace().next());
    lines.map(|layers| layers.split(',').map(str::to_owned).collect()).collect()
}

/// The breach in `used` by `user`, if it is one.
fn breach(layers: &[Vec<String>], user: &str, used: &str) -> Option<String> {
    let rank = |name: &str| layers.iter().position(|line| line.iter().any(|layer| layer == name));
    match (rank(user), rank(used)) {
        (None, _) => Some(format!("`{user}` is in no layer")),
        (Some(own), Some(other)) if other > own => Some(format!("`{user}` uses `{used}`, which lies above it")),
        (Some(own), Some(other)) if other == own && user != used => {
            Some(format!("`{user}` uses `{used}`, which lies beside it"))
        }
        (Some(_), _) => None,
    }
}

/// Output for people is made harmless in one file; nothing else of the command reaches for the streams.
#[test]
fn the_command_writes_to_its_streams_in_one_place() {
    let writes =
        ["io::stdout()", "io::stderr()", "println!", "eprint!", "print!(", "anstream::stdout", "anstream::stderr"];
    let files = tracked_files().into_iter().filter(|path| path.starts_with(root().join("host/cli")));
    for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let is_terminal = path.ends_with("terminal.rs") || path.starts_with(root().join("host/cli/terminal"));
        if is_terminal || path.ends_with("tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let found = writes.iter().find(|write| text.contains(*write));
        assert_eq!(found, None, "{} writes to a stream itself; see host/cli/terminal.rs", path.display());
    }
}

fn module_of(source: &Path, file: &Path) -> String {
    let first = file.strip_prefix(source).expect("below the source").components().next().expect("a name");
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// The paths below `crate` that a source names.
fn paths(text: &str) -> Vec<String> {
    fn unfold(head: &str, tree: &str, found: &mut Vec<String>) {
        let mut depth = 0;
        let parts = tree.split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        });
        for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('{') {
                Some((more, rest)) => unfold(&format!("{head}{more}"), rest.strip_suffix('}').unwrap_or(rest), found),
                None => found.push(format!("{head}{part}")),
            }
        }
    }
    let mut found = Vec::new();
    for path in text.split("crate::").skip(1) {
        found.extend(path.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).next().map(str::to_owned));
    }
    for tree in text.split("use crate::").skip(1) {
        unfold("", tree.split(';').next().unwrap_or_default(), &mut found);
    }
    found
}

/// The modules below a path of the crate that a source names.
fn uses(text: &str, path: &str) -> HashSet<String> {
    let below = paths(text).into_iter().filter_map(|found| found.strip_prefix(path).map(str::to_owned));
    below.filter_map(|found| found.split("::").next().map(str::to_owned)).collect()
}

/// Checks that the folders of a source, or files that lie beside them, keep to the layers of a block. `path` is that of the
/// source below `crate`.
fn check_folders(source: &str, path: &str, block: &str) {
    let source = root().join(source);
    let layers = layers(block);
    let mut breaches = Vec::new();
    for file in tracked_files().into_iter().filter(|file| file.starts_with(&source)) {
        let module = module_of(&source, &file);
        if module == "lib" {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("source is text");
        let code: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .fold(String::new(), |all, line| all + line + "\n");
        breaches.extend(uses(&code, path).iter().filter_map(|used| breach(&layers, &module, used)));
        // Another way to the root.
        breaches.extend(code.contains("super::super::").then(|| format!("`{module}` uses `super::super::`")));
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn folders_of_the_engine_use_only_what_lies_below() {
    check_folders("host/engine/src", "", "engine-layers");
    check_folders("host/engine/src/kernel", "kernel::", "kernel-layers");
}

/// Tenants know no interface, interfaces do not know one another, and nothing knows what stands in front of it.
#[test]
fn folders_of_the_server_use_only_what_lies_below() {
    check_folders("host/server/src", "", "server-layers");
}

/// The names in backticks in the last column of the tables of a page, below a heading.
fn named_tests(page: &str, heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(page)).expect("the page");
    let part = text.split(&format!("\n## {heading}\n")).nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = part.expect("the heading").lines().filter(|line| line.starts_with("| ") && line.ends_with('|'));
    let columns = rows.filter_map(|row| row.trim_end_matches('|').rsplit(" | ").next());
    columns.flat_map(|column| column.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The names of all tests that are functions.
fn test_functions() -> HashSet<String> {
    let mut found = HashSet::new();
    for file in tracked_files().into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let text = std::fs::read_to_string(&file).expect("source is text");
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            let name =
                line.trim_start_matches("async ").strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
            found.extend(name.filter(|_| is_test).map(str::to_owned));
            is_test = (is_test && name.is_none())
                || (line.starts_with("#[") && line.trim_end().ends_with("test]"))
                || line.starts_with("#[tokio::test");
        }
    }
    found
}

/// Tests that a document names for a promise exist: a rule without its test would be believed.
#[test]
fn tests_that_the_documents_name_are_there() {
    let functions = test_functions();
    let lints = std::fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let folders = ["", "fixtures/transcripts", "host/engine/src"];
    let mut missing = Vec::new();
    let mut count = 0;
    for (page, heading) in [("host/engine/README.md", "What is promised"), ("host/ARCHITECTURE.md", "Invariants")] {
        for name in named_tests(page, heading) {
            let is_sentence = name.matches('_').count() >= 2 && !name.contains(['/', ':', '.']);
            let is_there = match name.contains('/') {
                true => folders.iter().any(|folder| root().join(folder).join(&name).exists()),
                false => !is_sentence || functions.contains(&name) || lints.contains(&format!("\n{name} = ")),
            };
            count += 1;
            missing.extend((!is_there).then(|| format!("{page}: `{name}`")));
        }
    }
    assert!(count > 100, "{count} names were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn crates_use_only_what_lies_below() {
    let layers = layers("crate-layers");
    let mut breaches = Vec::new();
    let manifests = tracked_files()
        .into_iter()
        .filter(|file| file.ends_with("Cargo.toml") && file.starts_with(root().join("host")));
    for manifest in manifests {
        let text = std::fs::read_to_string(&manifest).expect("a manifest");
        let name = text.split("name = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a name").to_owned();
        let dependencies =
            text.split("[dependencies]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap_or_default();
        let used = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        breaches.extend(used.filter_map(|used| breach(&layers, &name, used)));
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn dependencies_come_from_the_registry_under_licences_that_are_allowed() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--format-version=1", "--locked", "--filter-platform=x86_64-unknown-linux-gnu"];
    let output = Command::new(cargo).args(arguments).current_dir(root()).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 100, "{} packages", packages.len());
    let licensee = |text: &&str| spdx::Licensee::parse(text).expect("an SPDX licence");
    let allowed: Vec<_> = LICENCES.iter().map(licensee).collect();
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let Some(source) = package["source"].as_str() else { continue };
        assert!(source.starts_with("registry+"), "`{name}` comes from {source}");
        let read = LICENCES_READ.iter().find(|(of, _)| *of == name).map(|(_, licence)| *licence);
        let licence = package["license"].as_str().or(read).unwrap_or_else(|| panic!("`{name}` names no licence"));
        // Before SPDX, a slash stood for a choice.
        let licence = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX).expect(licence);
        let read = read.as_ref().map(licensee);
        let is_allowed = |wanted: &spdx::LicenseReq| allowed.iter().chain(&read).any(|one| one.satisfies(wanted));
        assert!(licence.evaluate(is_allowed), "`{name}` comes under {licence}, which tests/all/tidy.rs does not allow");
    }
}

#[test]
fn only_files_that_are_named_here_have_unsafe_code() {
    for file in tracked_files() {
        let of_kernels = ["code/image.rs", "scheduling/beats.rs", "capture/memory.rs"]
            .map(|name| format!("engine/src/kernel/{name}"));
        // The last is native code of an attacker, which a test has.
        let may_be = of_kernels.iter().map(String::as_str).chain(["server/tests/hole/system_calls.rs"]);
        let may_be = may_be.map(|name| Path::new("host").join(name)).any(|name| file.ends_with(name));
        if file.extension().is_none_or(|extension| extension != "rs") || may_be || file.ends_with("tidy.rs") {
            continue;
        }
        // The workspace denies it; an exception has to name the lint.
        let text = std::fs::read_to_string(&file).expect("source is text");
        assert!(!text.contains("unsafe_code"), "`{}` has unsafe code", file.display());
    }
}

#[test]
fn every_crate_of_the_host_checks_its_arithmetic() {
    for name in layers("crate-layers").into_iter().flatten() {
        let file = match name.strip_prefix("cellar-") {
            Some(name) => format!("host/{name}/src/lib.rs"),
            None => "host/cli/main.rs".to_owned(),
        };
        let text = std::fs::read_to_string(root().join(&file)).expect("source is text");
        let is_checked = text.contains("#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]");
        assert!(is_checked, "`{file}` does not ask for the lint `arithmetic_side_effects`");
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
