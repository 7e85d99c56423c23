//! The lists: which modules a suite has, and which failures are expected.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use serde::Deserialize;

/// One list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// Modules that are run with all other tests.
    pub(crate) quick: Vec<String>,
    /// Modules that are run when all are asked for.
    #[serde(default)]
    pub(crate) rest: Vec<String>,
    #[serde(default)]
    failures: Vec<Reason>,
    #[serde(default)]
    skipped: Vec<Skipped>,
}

/// Tests of what the guest does not claim to have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Skipped {
    /// For who reads the list.
    #[serde(rename = "why")]
    _why: String,
    /// Features that such a test names.
    #[serde(default)]
    features: Vec<String>,
    /// Texts in such a test.
    #[serde(default)]
    texts: Vec<String>,
}

/// Failures with a common cause.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    why: String,
    /// Identities of tests; `*` stands for any characters, and all that it covers must fail.
    tests: Vec<String>,
}

/// Result of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Skipped,
    /// With what was raised, or how the kernel died.
    Failed(String),
}

impl List {
    /// # Errors
    /// The file cannot be read or is no list, or a pattern stands there twice.
    pub(crate) fn load(path: &Path) -> Result<List, String> {
        let explain = |error: &dyn std::fmt::Display| format!("`{}`: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| explain(&error))?;
        let list: List = toml::from_str(&text).map_err(|error| explain(&error))?;
        let mut seen = BTreeSet::new();
        let modules = list.quick.iter().chain(&list.rest);
        let patterns = list.failures.iter().flat_map(|reason| &reason.tests);
        match modules.chain(patterns).find(|&name| !seen.insert(name)) {
            Some(name) => Err(explain(&format_args!("`{name}` stands there twice"))),
            None => Ok(list),
        }
    }

    /// Returns true if a test is left out because of one of these features or of its text.
    pub(crate) fn skips(&self, features: &[&str], text: &str) -> bool {
        self.skipped.iter().any(|skipped| {
            skipped.features.iter().any(|feature| features.contains(&feature.as_str()))
                || skipped.texts.iter().any(|part| text.contains(part))
        })
    }

    /// Compares what happened in a module with what was expected. `prefixes` tell which patterns are about it.
    ///
    /// # Errors
    /// Every difference, in words.
    pub(crate) fn compare(&self, prefixes: &[&str], verdicts: &BTreeMap<String, Verdict>) -> Result<(), String> {
        let concerned = |pattern: &&String| prefixes.iter().any(|prefix| pattern.starts_with(prefix));
        let mut faults = String::new();
        let mut unused: BTreeSet<&String> =
            self.failures.iter().flat_map(|reason| &reason.tests).filter(concerned).collect();
        for (test, verdict) in verdicts {
            let pattern = self.failures.iter().flat_map(|reason| &reason.tests).find(|pattern| matches(pattern, test));
            if let Some(pattern) = pattern {
                unused.remove(pattern);
            }
            match (verdict, pattern) {
                (Verdict::Failed(what), None) => {
                    let _ = writeln!(faults, "{test} failed\n{}\n", what.trim_end());
                }
                (Verdict::Passed, Some(pattern)) => {
                    let why = self.failures.iter().find(|reason| reason.tests.contains(pattern));
                    let why = why.map_or("", |reason| &reason.why);
                    let _ = writeln!(faults, "{test} passes; it is listed as failing ({why})\n");
                }
                _ => {}
            }
        }
        for pattern in unused {
            let _ = writeln!(faults, "{pattern} is listed as failing, and there is no such test\n");
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// Returns true if a name matches a pattern with `*` in it.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = left.get(at + part.len()..).unwrap_or_default();
    }
    left.ends_with(last)
}
