//! `cellar artifact`, as `fixtures/artifacts.txt` tells it: commands one after another in one store, and what they print.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use serde_json::Value;

use crate::support::{cellar, check_shape, root, run};

const LIMITS: &str = "[artifacts]\nartifact_mib = 1\ntotal_count = 1\nunused_days = 2\n";
const WRONG: &str = "[artifacts]\ntotal_gib = 1\nunused_days = 0\n";

/// A folder with files to keep, and a store in it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let large = "x".repeat((1 << 20) + 1);
    for (name, text) in [
        ("hello.txt", "hello\n"),
        ("other.txt", "other\n"),
        ("large.bin", &large),
        ("limits.toml", LIMITS),
        ("wrong.toml", WRONG),
    ] {
        fs::write(folder.path().join(name), text).expect("written");
    }
    // Ids are made with the key of the store, which is the same one here each time.
    let store = folder.path().join("store/.artifacts");
    fs::create_dir_all(&store).expect("made");
    fs::write(store.join("key"), [0; 32]).expect("written");
    folder
}

/// Returns the output of a command in the form that the fixture has. JSON must fit its schema.
fn told(folder: &Path, line: &str) -> String {
    let mut words = line.split(' ').skip(1);
    let mut command = cellar(words.by_ref());
    let ended = run(command.current_dir(folder).env("CELLAR_STORE", folder.join("store")));
    let mut text = ended.stdout;
    if line.ends_with("--json") {
        let mut value: Value = serde_json::from_str(&text).expect("JSON");
        let shape = match line.split(' ').nth(2).expect("a command") {
            "list" => "artifacts",
            "put" => "artifact",
            _ => "collected",
        };
        check_shape(shape, &value);
        if let Some(used) = value.get_mut("usedAt") {
            *used = 0.into();
        }
        text = serde_json::to_string_pretty(&value).expect("JSON") + "\n";
    }
    if ended.code != 0 {
        text += &format!("exit {}\n", ended.code);
    }
    let text = (text + &ended.stderr).replace(&folder.join("store").display().to_string(), "[store]");
    text.lines().map(|line| without_age(line) + "\n").collect()
}

fn without_age(line: &str) -> String {
    let age = [" s ago", " min ago", " h ago", " d ago"].iter().find_map(|unit| line.split_once(unit));
    match age {
        Some((before, after)) => format!("{}[age]{after}", before.trim_end_matches(|c: char| c.is_ascii_digit())),
        // The columns of a list are as wide as the ages in it.
        None if line.starts_with("ID ") => line.split_whitespace().collect::<Vec<_>>().join(" "),
        None => line.to_owned(),
    }
}

#[test]
fn every_command_tells_what_it_did() {
    let path = root().join("fixtures/artifacts.txt");
    let expected = fs::read_to_string(&path).expect("the fixture");
    let folder = folder();
    let commands = expected.lines().filter_map(|line| line.strip_prefix("$ "));
    let found: String = commands.map(|line| format!("$ {line}\n{}", told(folder.path(), line))).collect();
    if std::env::var_os("CELLAR_BLESS").is_some() {
        fs::write(&path, &found).expect("written");
    }
    assert_same(&expected, &found);
}

fn assert_same(expected: &str, found: &str) {
    let diff = similar::TextDiff::from_lines(expected, found);
    assert!(expected == found, "`make bless` accepts it\n{}", diff.unified_diff().header("expected", "found"));
}

#[test]
fn what_nobody_used_for_as_long_as_the_file_says_goes_when_another_is_kept() {
    let folder = folder();
    let limits = "[artifacts]\nunused_days = 2\n";
    fs::write(folder.path().join("limits.toml"), limits).expect("written");
    let put = |name: &str| told(folder.path(), &format!("cellar artifact put {name} --config limits.toml"));
    let old = put("hello.txt");
    let object = folder.path().join("store/.artifacts/objects").join(old.trim().trim_start_matches("artifact://"));
    let day = Duration::from_secs(24 * 3_600);
    let file = fs::File::options().write(true).open(&object).expect("it is there");
    file.set_modified(SystemTime::now() - day).expect("aged");
    put("other.txt");
    assert!(object.exists(), "one day is not too long");
    file.set_modified(SystemTime::now() - 3 * day).expect("aged");
    // What was counted says that it is younger.
    fs::remove_file(folder.path().join("store/.artifacts/totals/all")).expect("removed");
    put("other.txt");
    assert!(!object.exists(), "three days are");
}
