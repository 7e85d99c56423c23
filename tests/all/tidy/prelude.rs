//! Imports within the prelude of Python.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    support::root,
    tidy::{breach, layers, tracked_files},
};

/// Imports by module, each named by its path without `.py`.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns the imports of the prelude anywhere in a source, as paths of modules or packages.
fn imported(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim_start) {
        let Some((package, names)) =
            line.strip_prefix("from _cellar_prelude").and_then(|rest| rest.split_once(" import "))
        else {
            assert!(!line.starts_with("import _cellar_prelude"), "not an import that is read here: {line}");
            continue;
        };
        assert!(!names.contains('('), "an import has a line of its own: {line}");
        let package = package.trim_start_matches('.').replace('.', "/");
        found.push(package.clone());
        let names = names.split(',').filter_map(|name| name.split_whitespace().next());
        found.extend(names.map(|name| format!("{package}/{name}").trim_start_matches('/').to_owned()));
    }
    found
}

fn imports(sources: &BTreeMap<String, String>) -> Imports {
    let of = |text: &str| imported(text).into_iter().filter(|name| sources.contains_key(name)).collect();
    sources.iter().map(|(name, text)| (name.clone(), of(text))).collect()
}

/// Modules that import each other, on whatever way: what is left when those are taken away that import nothing that is left.
fn circles(mut imports: Imports) -> Imports {
    loop {
        let names: BTreeSet<String> = imports.keys().cloned().collect();
        imports.values_mut().for_each(|used| used.retain(|name| names.contains(name)));
        let before = imports.len();
        imports.retain(|_, used| !used.is_empty());
        if imports.len() == before {
            return imports;
        }
    }
}

/// The modules below a folder, by their paths without `.py`.
fn sources(folder: &Path) -> BTreeMap<String, String> {
    let files = tracked_files().into_iter().filter(|file| file.starts_with(folder));
    let name =
        |file: &Path| file.strip_prefix(folder).expect("below").with_extension("").to_string_lossy().into_owned();
    files.map(|file| (name(&file), std::fs::read_to_string(&file).expect("source is text"))).collect()
}

fn prelude() -> BTreeMap<String, String> {
    let found = sources(&root().join("guests/python/_cellar_prelude"));
    assert!(found.len() > 50, "{} modules were found", found.len());
    found
}

#[test]
fn modules_of_the_prelude_do_not_import_each_other_in_circles() {
    let mut all = prelude();
    assert_eq!(circles(imports(&all)), Imports::new());
    // The data guest's own take the place of `additions`.
    all.extend(sources(&root().join("guests/python-data/prelude")));
    assert_eq!(circles(imports(&all)), Imports::new());
}

#[test]
fn packages_of_the_prelude_use_only_what_lies_below() {
    let layers = layers("prelude-layers");
    let mut breaches = Vec::new();
    for (user, used) in imports(&prelude()) {
        let package = |name: &str| name.split_once('/').map_or("", |(package, _)| package).to_owned();
        // What lies in no package is run last, and may use all.
        let used = used.iter().filter(|_| user.contains('/'));
        breaches.extend(used.filter_map(|name| breach(&layers, &package(&user), &package(name))));
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn a_circle_of_imports_is_found_at_the_top_and_inside_of_functions() {
    let source = |text: &str| text.to_owned();
    let all: BTreeMap<String, String> = [
        ("a/b", source("from _cellar_prelude.a.c import f\nfrom _cellar_prelude import e\n")),
        ("a/c", source("def f():\n    from _cellar_prelude.a import d as other, x\n")),
        ("a/d", source("from _cellar_prelude.a import b\n")),
        ("e", source("import os\n")),
    ]
    .map(|(name, text)| (name.to_owned(), text))
    .into();
    assert_eq!(circles(imports(&all)).into_keys().collect::<Vec<_>>(), ["a/b", "a/c", "a/d"]);
}
