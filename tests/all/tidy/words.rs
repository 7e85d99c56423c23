//! Words of doc comments.

use crate::{support::root, tidy::tracked_files};

/// First words that are neither a noun nor a verb.
const QUESTIONS: [&str; 15] = [
    "What", "Whatever", "Who", "Whoever", "Whom", "Whose", "Of", "Those", "Whether", "That", "How", "Which", "Where",
    "When", "Why",
];
/// Files whose doc comments are texts that users see (help texts, descriptions of schemas), or of which a digest is made that
/// guests are cached by.
const NOT_HELD: [&str; 4] = ["host/wire/src/", "host/cli/args", "host/core/src/limits.rs", "guests/build/src/"];

/// The first lines of doc comments, with their numbers.
fn first_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let comment = |line: &'_ str| ["///", "//!"].into_iter().find(|mark| line.trim_start().starts_with(mark));
    let before = std::iter::once("").chain(text.lines());
    let pairs = before.zip(text.lines()).enumerate();
    pairs.filter_map(move |(index, (before, line))| {
        let mark = comment(line).filter(|mark| comment(before) != Some(mark))?;
        Some((index + 1, line.trim_start().trim_start_matches(mark).trim_start()))
    })
}

fn is_question(line: &str) -> bool {
    let first = line.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    QUESTIONS.contains(&first)
}

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    let mut found = Vec::new();
    for path in tracked_files().into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs")) {
        let name = path.strip_prefix(root()).expect("below").to_string_lossy().into_owned();
        if NOT_HELD.iter().any(|held| name.starts_with(held)) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("source is text");
        found.extend(
            first_lines(&text).filter(|(_, line)| is_question(line)).map(|(at, line)| format!("{name}:{at}: {line}")),
        );
    }
    assert!(found.is_empty(), "begin these with a noun or a verb:\n{}", found.join("\n"));
}

#[test]
fn first_lines_alone_are_read() {
    let text = "//! Whole.\n//! What follows.\n\n    /// How many.\nfn x() {}\n// Why not.\n";
    let found: Vec<(usize, bool)> = first_lines(text).map(|(at, line)| (at, is_question(line))).collect();
    assert_eq!(found, [(1, false), (4, true)]);
}
