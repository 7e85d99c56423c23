//! The web's own tests of addresses in the guest's `URL`.

use std::{fs, path::Path, process::Command};

use cellar_engine::{Language, SessionConfig};

use super::snapshots::{host, on_runtime, text};
use crate::support::run;

/// Names the tests that fail, one a line, after saying whether there were any.
const COMPARE: &str = include_str!("../../../fixtures/urls.js");

#[test]
fn addresses_are_read_and_changed_as_the_web_wants() {
    // The builder knows where the tests are: in the sources of the library that reads addresses.
    let builder = Path::new(env!("CARGO_BIN_EXE_cellar")).with_file_name("cellar-guests");
    let ended = run(Command::new(builder).args(["suite", "urls"]));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let folder = Path::new(ended.stdout.trim());
    let [parsing, setting] = ["urltestdata.json", "setters_tests.json"].map(|name| {
        fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("could not read `{name}`: {error}"))
    });
    on_runtime(async {
        let session = host().session(SessionConfig::default()).expect("a session");
        let code = format!("{COMPARE}\ncompare({parsing}, {setting})");
        assert_eq!(text(&session, Language::JavaScript, &code).await.trim_end(), "1000 or more tests");
    });
}
