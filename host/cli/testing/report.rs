//! Reports of tests, for people and for machines that build.

use std::{fmt::Write as _, time::Duration};

use sha2::{Digest, Sha256};

use crate::terminal::{Look, escaped, escaped_lines};

use super::{Suite, Test, Verdict};

const GOOD: anstyle::Style = anstyle::AnsiColor::Green.on_default();
const BAD: anstyle::Style = anstyle::AnsiColor::Red.on_default();
/// Lines of the output of a failed file that are shown.
const LINES_MAX: usize = 200;

/// Counts of tests, in words: `1 failed, 2 passed`.
fn counts<'a>(tests: impl Iterator<Item = &'a Test> + Clone) -> String {
    let words = [
        (Verdict::Failed, "failed"),
        (Verdict::Error, "in error"),
        (Verdict::Passed, "passed"),
        (Verdict::Skipped, "skipped"),
    ];
    let count = |verdict| tests.clone().filter(|test| test.outcome == verdict).count();
    let told = words.into_iter().map(|(verdict, word)| (count(verdict), word)).filter(|(count, _)| *count > 0);
    let told: Vec<String> = told.map(|(count, word)| format!("{count} {word}")).collect();
    if told.is_empty() { "no tests".to_owned() } else { told.join(", ") }
}

/// A file on a line; below it what it printed, if a test has failed or `shows_output`.
pub(super) fn text(suite: &Suite, shows_output: bool) -> String {
    let look = Look::of_stdout();
    let mark = if suite.is_failed() { look.paint(BAD, "✗") } else { look.paint(GOOD, "✓") };
    let mut text =
        format!("{mark} {}  {}  {:.2} s\n", escaped(&suite.name), counts(suite.tests.iter()), suite.time.as_secs_f64());
    if !suite.is_failed() && !shows_output {
        return text;
    }
    let lines: Vec<&str> = suite.output.lines().collect();
    let left_out = lines.len().saturating_sub(LINES_MAX);
    if left_out > 0 {
        let _ = writeln!(text, "  … {left_out} more lines");
    }
    for line in lines.iter().skip(left_out) {
        let _ = writeln!(text, "  {}", escaped_lines(line));
    }
    for test in suite.tests.iter().filter(|test| test.outcome == Verdict::Error && !test.message.is_empty()) {
        let _ = writeln!(text, "  {}: {}", escaped(&test.name), escaped(&test.message));
    }
    text
}

/// All files, on a line.
pub(super) fn summary(suites: &[Suite], time: Duration) -> String {
    let files = if suites.len() == 1 { "1 run".to_owned() } else { format!("{} runs", suites.len()) };
    let told = counts(suites.iter().flat_map(|suite| &suite.tests));
    format!("{files}: {told} in {:.2} s\n", time.as_secs_f64())
}

/// Commands by which GitHub shows failures beside the lines of the code; nothing elsewhere.
pub(super) fn annotations(suite: &Suite) -> String {
    if std::env::var_os("GITHUB_ACTIONS").is_none_or(|value| value != "true") {
        return String::new();
    }
    let value = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| value(text).replace(':', "%3A").replace(',', "%2C");
    let mut text = String::new();
    for test in suite.tests.iter().filter(|test| test.is_failed()) {
        let file = property(test.file.as_deref().unwrap_or(&suite.name));
        let line = test.line.map(|line| format!(",line={line}")).unwrap_or_default();
        let _ = writeln!(text, "::error file={file}{line},title={}::{}", property(&test.name), value(message(test)));
    }
    text
}

fn message(test: &Test) -> &str {
    if test.message.is_empty() { &test.name } else { &test.message }
}

/// The Test Anything Protocol.
pub(super) fn tap(suites: &[Suite]) -> String {
    let tests: Vec<(&Suite, &Test)> =
        suites.iter().flat_map(|suite| suite.tests.iter().map(move |test| (suite, test))).collect();
    let mut text = format!("TAP version 14\n1..{}\n", tests.len());
    for (number, (_, test)) in (1..).zip(tests) {
        let ok = if test.is_failed() { "not ok" } else { "ok" };
        let name = escaped(&test.name).replace('#', "\\#");
        let skipped = if test.outcome == Verdict::Skipped {
            format!(" # SKIP {}", escaped(&test.message))
        } else {
            String::new()
        };
        let _ = writeln!(text, "{ok} {number} - {name}{skipped}");
        if test.is_failed() {
            let line = test.line.map(|line| format!("  line: {line}\n")).unwrap_or_default();
            let (message, file) = (serde_json::json!(message(test)), serde_json::json!(test.file));
            let _ = writeln!(text, "  ---\n  message: {message}\n  file: {file}\n{line}  ...");
        }
    }
    text
}

/// XML as JUnit has it.
pub(super) fn junit(suites: &[Suite]) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n".to_owned();
    for suite in suites {
        let count = |verdict| suite.tests.iter().filter(|test| test.outcome == verdict).count();
        let _ = writeln!(
            text,
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\">",
            xml(&suite.name),
            suite.tests.len(),
            count(Verdict::Failed),
            count(Verdict::Error),
            count(Verdict::Skipped),
            suite.time.as_secs_f64()
        );
        for test in &suite.tests {
            let file = test.file.as_deref().unwrap_or(&suite.name);
            let line = test.line.map(|line| format!(" line=\"{line}\"")).unwrap_or_default();
            let _ = write!(
                text,
                "    <testcase classname=\"{}\" name=\"{}\" file=\"{}\"{line} time=\"{:.3}\"",
                xml(file),
                xml(&test.name),
                xml(file),
                test.seconds.max(0.0)
            );
            let (message, detail) = (xml(message(test)), xml(&test.detail));
            let _ = match test.outcome {
                Verdict::Passed => writeln!(text, "/>"),
                Verdict::Skipped => writeln!(text, "><skipped message=\"{message}\"/></testcase>"),
                Verdict::Failed => writeln!(text, "><failure message=\"{message}\">{detail}</failure></testcase>"),
                Verdict::Error => writeln!(text, "><error message=\"{message}\">{detail}</error></testcase>"),
            };
        }
        let _ = writeln!(text, "    <system-out>{}</system-out>\n  </testsuite>", xml(&suite.output));
    }
    text + "</testsuites>\n"
}

/// Text within XML. Characters that XML 1.0 does not have are replaced.
fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A report of code quality, which GitLab shows in merge requests.
pub(super) fn code_quality(suites: &[Suite]) -> String {
    let failed = suites.iter().flat_map(|suite| suite.tests.iter().map(move |test| (suite, test)));
    let issues: Vec<_> = failed
        .filter(|(_, test)| test.is_failed())
        .map(|(suite, test)| {
            let file = test.file.as_deref().unwrap_or(&suite.name);
            let digest = Sha256::digest(format!("{file}\n{}", test.name));
            serde_json::json!({
                "description": format!("{}: {}", test.name, message(test)),
                "check_name": "cellar test",
                "fingerprint": format!("{digest:x}"),
                "severity": "major",
                "location": {"path": file, "lines": {"begin": test.line.unwrap_or(1)}},
            })
        })
        .collect();
    serde_json::Value::from(issues).to_string() + "\n"
}
