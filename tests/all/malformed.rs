//! Runs that must be refused before anything executes, each with its exact message.
//!
//! `fixtures/malformed/NN-name.json` is the run, `NN-name.txt` what standard error must say. With `CELLAR_BLESS=1` the
//! messages are rewritten.

use std::{fs, path::PathBuf};

use crate::support::{cellar, root, run, run_with_input};

fn fixtures() -> Vec<PathBuf> {
    let folder = fs::read_dir(root().join("fixtures/malformed")).expect("fixtures");
    let paths = folder.map(|entry| entry.expect("an entry").path());
    let mut runs: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    runs.sort();
    runs
}

#[test]
fn every_malformed_run_is_refused_with_its_message() {
    let runs = fixtures();
    assert!(runs.len() >= 40, "{} fixtures", runs.len());
    let mut failures = Vec::new();
    for path in runs {
        let relative = path.strip_prefix(root()).expect("in the checkout");
        let ended = run(cellar(["run", "--json"]).arg(relative));
        let expected_path = path.with_extension("txt");
        if std::env::var_os("CELLAR_BLESS").is_some() {
            fs::write(&expected_path, &ended.stderr).expect("written");
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        if (ended.code, ended.stdout.as_str(), ended.stderr.as_str()) != (2, "", expected.as_str()) {
            failures.push(format!("{}: {ended:?}\nexpected:\n{expected}", relative.display()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Not a text, so not kept as a file.
#[test]
fn a_run_that_is_not_utf_8_is_refused() {
    let request = b"{\"cells\": [{\"language\": \"py\", \"code\": \"caf\xe9\"}]}";
    let ended = run_with_input(&mut cellar(["run", "-"]), request);
    assert_eq!(ended.code, 2);
    assert_eq!(
        ended.stderr,
        "error: the run on standard input is not valid\n  $: expected UTF-8 text, found the byte 0xe9 at offset 42\n"
    );
}

/// Too large to be kept as a file.
#[test]
fn a_cell_of_more_than_16_mib_is_refused() {
    let code = "#".repeat((16 << 20) + 1);
    let request = format!("{{\"cells\": [{{\"language\": \"py\", \"code\": \"{code}\"}}]}}");
    let ended = run_with_input(&mut cellar(["run", "-"]), request.as_bytes());
    assert_eq!(ended.code, 2);
    assert_eq!(
        ended.stderr,
        "error: the run on standard input is not valid\n  \
         $.cells[0].code: expected at most 16777216 bytes, found 16777217\n"
    );
}

#[test]
fn a_request_of_more_than_64_mib_is_refused() {
    let ended = run_with_input(&mut cellar(["run", "-"]), "{ ".repeat((32 << 20) + 8).as_bytes());
    assert_eq!(ended.code, 2);
    assert_eq!(
        ended.stderr,
        "error: the run on standard input is not valid\n  $: expected at most 67108864 bytes, found 67108865\n"
    );
}
