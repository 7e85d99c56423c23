//! Threats by number, and what the server holds for its callers: pages and code say the same.

use std::collections::BTreeSet;

use super::{test_functions, tracked_files};
use crate::support::root;

/// Rows of a page's tables whose first cell fits.
fn rows(page: &str, fits: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join(page)).expect("the page");
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = text.lines().filter(|line| line.starts_with('|')).map(cells);
    rows.filter(|row| row.first().is_some_and(|first| fits(first))).collect()
}

/// Names between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Source of the host, without its tests.
fn sources() -> Vec<(String, String)> {
    let host = root().join("host");
    let is_source = |path: &std::path::PathBuf| {
        path.starts_with(&host) && path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs")
    };
    let named = |path: std::path::PathBuf| {
        let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("source");
        (name, text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned())
    };
    tracked_files().into_iter().filter(is_source).map(named).filter(|(name, _)| !name.contains("/tests/")).collect()
}

#[test]
fn every_threat_is_named_where_it_is_mitigated_and_in_the_page() {
    let of_page = rows("host/server/THREATS.md", |first| first.starts_with('T') && first.len() == 3);
    let named: BTreeSet<String> = of_page.iter().map(|row| row[0].clone()).collect();
    assert_eq!(named.len(), of_page.len(), "a number is given twice");
    let mut quoted_in_code = BTreeSet::new();
    for (_, text) in sources() {
        let numbers = text.split("THREAT: ").skip(1).filter_map(|rest| rest.get(..3));
        quoted_in_code.extend(numbers.map(str::to_owned));
    }
    assert_eq!(named, quoted_in_code, "the page and the code name the same threats");
    let functions = test_functions();
    for row in of_page {
        assert_eq!(row.len(), 5, "{row:?}");
        let tests = quoted(&row[3]);
        assert!(!tests.is_empty(), "{} has no test", row[0]);
        let missing = tests.iter().find(|name| !functions.contains(**name));
        assert_eq!(missing, None, "{}", row[0]);
    }
}

/// Permits and budgets that a caller takes from are made in files that the manual's table names.
#[test]
fn whatever_the_server_holds_for_a_caller_has_its_bound_its_account_and_its_test_in_the_manual() {
    let table = rows("host/server/README.md", |_| true)
        .into_iter()
        .filter(|row| row.get(3).is_some_and(|cell| cell.contains("`host/")));
    let (functions, mut named) = (test_functions(), BTreeSet::new());
    for row in table {
        assert!(row.len() == 5 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        named.extend(quoted(&row[3]).into_iter().map(str::to_owned));
        let tests = quoted(&row[4]);
        let missing = tests.iter().find(|name| !functions.contains(**name));
        assert!(missing.is_none() && !tests.is_empty(), "{}: {missing:?}", row[0]);
    }
    let crates = ["host/server/src", "host/bridges/src", "host/connectors/src", "host/hub/src", "host/jupyter/src"];
    let makers = ["Semaphore::new(", "Budget::new(", "Shares::new("];
    for (file, text) in sources() {
        let makes = makers.iter().any(|maker| text.contains(maker));
        let is_missing = makes && crates.iter().any(|name| file.starts_with(name)) && !named.contains(&file);
        assert!(
            !is_missing,
            "{file} makes permits or a budget, and the table of host/server/README.md does not name it"
        );
    }
    for file in named {
        assert!(root().join(&file).exists(), "{file}");
    }
}
