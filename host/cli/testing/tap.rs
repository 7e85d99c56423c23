//! The Test Anything Protocol, as node:test writes it.

use super::{Test, Verdict};

/// Blanks by which a test within another one is indented.
const INDENT: usize = 4;

/// Reads the tests in an output. A suite counts if it has failed and none of its tests has; what is no TAP is passed over.
pub(super) fn tests(output: &str) -> Vec<Test> {
    let (mut tests, mut path) = (Vec::<(usize, Test)>::new(), Vec::<String>::new());
    let mut detail: Option<usize> = None;
    for line in output.lines() {
        let text = line.trim_start_matches(' ');
        let depth = line.len().saturating_sub(text.len()) / INDENT;
        if let Some(at) = detail {
            if text == "..." {
                detail = None;
            } else if let Some((_, test)) = tests.get_mut(at) {
                test.detail.push_str(line.trim_start());
                test.detail.push('\n');
            }
            continue;
        }
        if let Some(name) = text.strip_prefix("# Subtest: ") {
            path.truncate(depth);
            path.push(name.to_owned());
        } else if let Some(test) = result(text, path.get(..depth).unwrap_or_default()) {
            let within = tests.iter().rposition(|(other, _)| *other <= depth).map_or(0, |at| at.saturating_add(1));
            let has_failed = tests.get(within..).unwrap_or_default().iter().any(|(_, test)| test.is_failed());
            let is_suite = tests.len() > within;
            if !is_suite || (test.is_failed() && !has_failed) {
                tests.push((depth, test));
            } else {
                // Its tests are those of the level above from now on.
                tests.iter_mut().skip(within).for_each(|(other, _)| *other = depth);
            }
        } else if text == "---" {
            detail = tests.last().filter(|(_, test)| test.is_failed()).map(|_| tests.len().saturating_sub(1));
            detail = detail.or(Some(usize::MAX));
        }
    }
    tests.into_iter().map(|(_, test)| named(test)).collect()
}

/// A line such as `not ok 2 - adds # TODO later`.
fn result(line: &str, path: &[String]) -> Option<Test> {
    let (is_ok, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok ")?),
    };
    let (number, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    number.parse::<u64>().ok()?;
    let rest = rest.strip_prefix("- ").unwrap_or(rest);
    let (name, note) = rest.rsplit_once(" # ").unwrap_or((rest, ""));
    let is_left = ["SKIP", "TODO"].iter().any(|word| note.to_ascii_uppercase().starts_with(word));
    let outcome = match (is_left, is_ok) {
        (true, _) => Verdict::Skipped,
        (false, true) => Verdict::Passed,
        (false, false) => Verdict::Failed,
    };
    let name = path.iter().map(String::as_str).chain([if is_left { name } else { rest }]);
    let name = name.collect::<Vec<_>>().join(" > ");
    let message = if is_left { note.to_owned() } else { String::new() };
    Some(Test { name, outcome, seconds: 0.0, file: None, line: None, message, detail: String::new() })
}

/// A failed test with the first line of its error as the message, and the line of its file.
fn named(mut test: Test) -> Test {
    let mut lines = test.detail.lines().skip_while(|line| !line.starts_with("error:")).skip(1);
    if test.is_failed()
        && let Some(first) = lines.next()
    {
        test.message = first.to_owned();
    }
    test.line = test.detail.lines().find_map(|line| {
        let place = line.trim_end_matches(')').split_once("/workspace/")?.1;
        place.split(':').nth(1)?.parse().ok()
    });
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_within_suites_are_counted_once() {
        let output = "TAP version 13\nwords of a test\n# Subtest: adds\nok 1 - adds\n# Subtest: a suite\n    # Subtest: one\n    \
                      ok 1 - one\n    # Subtest: two\n    not ok 2 - two\n      ---\n      error: |-\n        AssertionError: 1 == 2\n            \
                      at /workspace/a.test.mjs:7:3\n      ...\n    1..2\nnot ok 2 - a suite\n  ---\n  error: x\n  ...\n\
                      # Subtest: later\nok 3 - later # SKIP why\n1..3\n# tests 4\n";
        let found = tests(output);
        let told: Vec<_> = found.iter().map(|test| (test.name.as_str(), test.outcome)).collect();
        let expected = [
            ("adds", Verdict::Passed),
            ("a suite > one", Verdict::Passed),
            ("a suite > two", Verdict::Failed),
            ("later", Verdict::Skipped),
        ];
        assert_eq!(told, expected);
        assert_eq!((found[2].message.as_str(), found[2].line), ("AssertionError: 1 == 2", Some(7)));
        assert_eq!(tests("ok then\nnot ok at all\n"), []);
    }
}
