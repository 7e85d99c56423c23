//! Files of tests: which there are, and what runs them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use cellar_engine::Language;

use crate::report::CliError;

/// Files that are run.
const FILES_MAX: usize = 10_000;
/// Depth of folders that are searched.
const DEPTH_MAX: usize = 32;
/// Folders with the code of others.
const FOLDERS_LEFT_OUT: [&str; 5] = ["node_modules", "__pycache__", "site-packages", "target", "venv"];

/// A file of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TestFile {
    /// Path below the root, with slashes.
    pub(super) name: String,
    pub(super) language: Language,
}

/// Finds the files of tests: those that are named, and those in folders that are named.
///
/// # Errors
/// A path is not there, is not below the root, or is no file of a language that runs here.
pub(super) fn find(root: &Path, paths: &[PathBuf]) -> Result<Vec<TestFile>, CliError> {
    let cannot_read = |path: &Path, source| CliError::Read { path: path.to_owned(), source };
    let root = fs::canonicalize(root).map_err(|source| cannot_read(root, source))?;
    let mut found = Vec::new();
    for path in paths {
        let whole = fs::canonicalize(path).map_err(|source| cannot_read(path, source))?;
        let Ok(name) = whole.strip_prefix(&root) else {
            let message = format!("`{}` does not lie in `{}`", path.display(), root.display());
            return Err(CliError::usage(message, "run in a folder that has all tests, or name it with --workspace"));
        };
        if whole.is_dir() {
            search(&root, name, DEPTH_MAX, &mut found).map_err(|source| cannot_read(path, source))?;
            continue;
        }
        let language = language(name).ok_or_else(|| {
            CliError::usage(
                format!("`{}` is no program in Python or JavaScript", path.display()),
                "name a file of tests",
            )
        })?;
        found.extend(text(name).map(|name| TestFile { name, language }));
    }
    if found.len() > FILES_MAX {
        let message = format!("there are {} files of tests; at most {FILES_MAX} are run", found.len());
        return Err(CliError::usage(message, "name a folder with fewer"));
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|file| seen.insert(file.name.clone()));
    Ok(found)
}

fn search(root: &Path, folder: &Path, depth: usize, found: &mut Vec<TestFile>) -> std::io::Result<()> {
    let mut entries: Vec<_> = fs::read_dir(root.join(folder))?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (kind, name) = (entry.file_type()?, entry.file_name());
        let name = name.to_string_lossy();
        let path = folder.join(&*name);
        if kind.is_dir() && depth > 0 && !name.starts_with('.') && !FOLDERS_LEFT_OUT.contains(&&*name) {
            search(root, &path, depth.saturating_sub(1), found)?;
        } else if kind.is_file() && found.len() <= FILES_MAX && is_test(&path) {
            let language = language(&path);
            found.extend(text(&path).zip(language).map(|(name, language)| TestFile { name, language }));
        }
    }
    Ok(())
}

/// Returns true if a file is named as pytest or Node look for tests.
fn is_test(path: &Path) -> bool {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    match language(path) {
        Some(Language::Python) => stem.starts_with("test_") || stem.ends_with("_test"),
        Some(_) => {
            let is_named = stem == "test"
                || ["test-", "test."].iter().any(|begin| stem.starts_with(begin))
                || [".test", "-test", "_test"].iter().any(|end| stem.ends_with(end));
            is_named || path.parent().is_some_and(|folder| folder.iter().any(|part| part == "test"))
        }
        None => false,
    }
}

fn language(path: &Path) -> Option<Language> {
    match path.extension()?.to_str()? {
        "py" => Some(Language::Python),
        "js" | "mjs" | "cjs" | "ts" | "mts" | "cts" => Some(Language::JavaScript),
        _ => None,
    }
}

fn text(path: &Path) -> Option<String> {
    path.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_as_their_programs_find_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = [
            "test_a.py",
            "b_test.py",
            "conftest.py",
            "helper.py",
            "c.test.mjs",
            "test-d.ts",
            "e.js",
            "test/f.js",
            "node_modules/x/test_x.py",
            ".hidden/test_h.py",
            "deep/er/test_g.py",
            "test.txt",
        ];
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "").expect("written");
        }
        let found = find(folder.path(), &[folder.path().to_owned()]).expect("found");
        let mut names: Vec<&str> = found.iter().map(|file| file.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["b_test.py", "c.test.mjs", "deep/er/test_g.py", "test-d.ts", "test/f.js", "test_a.py"]);
        let named = find(folder.path(), &[folder.path().join("e.js"), folder.path().join("e.js")]).expect("found");
        assert_eq!(named, [TestFile { name: "e.js".to_owned(), language: Language::JavaScript }]);
        find(&folder.path().join("test"), &[folder.path().join("e.js")]).expect_err("outside of the root");
        find(folder.path(), &[folder.path().join("test.txt")]).expect_err("no program");
    }
}
