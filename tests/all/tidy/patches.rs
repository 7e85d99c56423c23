//! The page of patches on other people's sources, `guests/PATCHES.md`.

use std::collections::BTreeMap;

use crate::{support::root, tidy::tracked_files};

/// Folders of series by the headings of the page; the last has a folder for each package.
const SERIES: [(&str, &str); 5] = [
    ("CPython", "guests/python/patches"),
    ("QuickJS-ng", "guests/javascript/patches"),
    ("NumPy", "guests/python-data/patches/numpy"),
    ("pandas", "guests/python-data/patches/pandas"),
    ("Other packages of the data guest", "guests/python-data/patches"),
];

/// The rows of the page, by the path of the patch, each with what stands in its other columns.
fn rows(page: &str) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for (heading, folder) in SERIES {
        let part = page.split(&format!("\n## {heading}\n")).nth(1).and_then(|rest| rest.split("\n## ").next());
        for row in part.expect(heading).lines().filter_map(|line| line.strip_prefix("| `")) {
            let mut columns = row.trim_end_matches(" |").split(" | ").map(str::to_owned);
            let name = columns.next().expect("a first column");
            let is_new = found.insert(format!("{folder}/{}", name.trim_end_matches('`')), columns.collect()).is_none();
            assert!(is_new, "`{name}` has two rows");
        }
    }
    found
}

#[test]
fn every_patch_has_a_row_that_says_why_and_how_it_is_tested() {
    let page = std::fs::read_to_string(root().join("guests/PATCHES.md")).expect("the page");
    let rows = rows(&page);
    let files = tracked_files().into_iter().filter(|file| file.extension().is_some_and(|end| end == "patch"));
    let name = |file: std::path::PathBuf| file.strip_prefix(root()).expect("below").to_string_lossy().into_owned();
    let mut patches: Vec<String> = files.map(name).filter(|name| name.starts_with("guests/")).collect();
    patches.sort();
    assert_eq!(rows.keys().cloned().collect::<Vec<_>>(), patches);

    let read = |name: &str| std::fs::read_to_string(root().join("fixtures/conformance").join(name)).expect("a list");
    let lists = ["python-library.toml", "python-data.toml", "python-data-packages.toml", "test262.toml"].map(read);
    for (patch, columns) in rows {
        let [why, upstream, tests] = &columns[..] else { panic!("`{patch}` has {} columns", columns.len() + 1) };
        assert!(!why.is_empty() && !upstream.is_empty() && !tests.is_empty(), "`{patch}` has an empty column");
        for test in tests.split('`').skip(1).step_by(2) {
            let is_file = ["", "fixtures/transcripts"].iter().any(|folder| root().join(folder).join(test).is_file());
            let is_listed = lists.iter().any(|list| list.contains(&format!("\"{test}\"")));
            assert!(is_file || is_listed, "`{patch}` is tested by `{test}`, which is not there");
        }
    }
}
