//! Cells from a file: a run as JSON, a notebook, or source with `# %%` (Python) or `// %%` (JavaScript) before each cell.

use std::{
    io::{self, Read},
    path::Path,
    time::Duration,
};

use cellar_core::text::nearest;
use cellar_engine::{
    Cell, Language,
    limits::{TIMEOUT_MAX, TIMEOUT_MIN},
};

use crate::{notebook::Notebook, report::CliError};
use cellar_wire::{REQUEST_BYTES_MAX, language_meant, language_of, run_from_json};

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Notebook,
    Source(Language),
}

/// Tags of a cell besides its language.
const RESET: &str = "reset";
const TIMEOUT: &str = "timeout";
/// Languages that a marker may name although no cell can be in them, as editors and notebooks call them.
const OTHER_LANGUAGES: [&str; 30] = [
    "awk",
    "bash",
    "cpp",
    "csharp",
    "css",
    "elixir",
    "go",
    "haskell",
    "html",
    "jl",
    "julia",
    "kotlin",
    "latex",
    "lua",
    "perl",
    "php",
    "powershell",
    "rb",
    "rs",
    "ruby",
    "rust",
    "scala",
    "sh",
    "shell",
    "sql",
    "svg",
    "swift",
    "wasm",
    "xml",
    "zsh",
];

/// Content of a file.
#[derive(Debug)]
pub(crate) enum Source {
    /// Cells, and nothing that outputs could be written to.
    Cells(Vec<Cell>),
    /// A program, with markers between its cells or without any.
    Program { cells: Vec<Cell>, has_markers: bool },
    /// A notebook.
    Notebook(Box<Notebook>),
}

/// Loads `file`, or standard input for `-`. `language` gives the language of a file whose name does not.
///
/// # Errors
/// It cannot be read, its kind is not known, or it is no valid run.
pub(crate) fn load(file: &Path, language: Option<Language>) -> Result<Source, CliError> {
    let bytes = read(file)?;
    let place = if is_stdin(file) { "on standard input".to_owned() } else { format!("in `{}`", file.display()) };
    match format(file, &bytes, language)? {
        Format::Json => Ok(Source::Cells(run_from_json(&bytes, &format!("the run {place}"))?)),
        Format::Notebook => Ok(Source::Notebook(Box::new(Notebook::parse(file, &bytes)?))),
        Format::Source(language) => {
            let not_text = |_| CliError::usage(format!("the source {place} is not UTF-8 text"), "save it as UTF-8");
            let text = String::from_utf8(bytes).map_err(not_text)?;
            let has_markers = text.lines().any(|line| marker(line, language).is_some());
            let cells = cells(&text, language)?;
            if cells.is_empty() {
                return Err(CliError::usage(format!("there is no code {place}"), "write a cell first"));
            }
            Ok(Source::Program { cells, has_markers })
        }
    }
}

/// The text on standard input.
///
/// # Errors
/// It cannot be read, or is not text.
pub(crate) fn load_stdin() -> Result<String, CliError> {
    let bytes = read(Path::new("-"))?;
    String::from_utf8(bytes).map_err(|_| CliError::usage("standard input is not UTF-8 text", "pass UTF-8 text"))
}

fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// One byte more than a run may have, at most: enough to see that it is too long.
fn read(file: &Path) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let limit = (REQUEST_BYTES_MAX as u64).saturating_add(1);
    let read = if is_stdin(file) {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        cellar_core::files::open_input(file).and_then(|open| open.take(limit).read_to_end(&mut bytes))
    };
    match read {
        Ok(_) => Ok(bytes),
        Err(source) => Err(CliError::Read { path: file.to_owned(), source }),
    }
}

fn format(file: &Path, bytes: &[u8], language: Option<Language>) -> Result<Format, CliError> {
    if let Some(language) = language {
        return Ok(Format::Source(language));
    }
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Ok(Format::Json),
        Some("ipynb") => Ok(Format::Notebook),
        Some("py") => Ok(Format::Source(Language::Python)),
        Some("js" | "mjs" | "cjs" | "ts" | "mts" | "cts" | "tsx" | "jsx") => Ok(Format::Source(Language::JavaScript)),
        None if let Some(language) = interpreted(bytes) => Ok(Format::Source(language)),
        _ if is_stdin(file) && bytes.trim_ascii_start().starts_with(b"{") => Ok(Format::Json),
        _ => Err(CliError::usage(
            format!("cannot tell what is in `{}`", file.display()),
            "name it .json, .ipynb, .py, .js or .ts, or say -l py or -l js",
        )),
    }
}

/// The language of a file by its first line, such as `#!/usr/bin/env python3`.
fn interpreted(bytes: &[u8]) -> Option<Language> {
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(['/', ' ', '\t', '\r']);
    words.find_map(|word| match word {
        _ if word.starts_with("python") => Some(Language::Python),
        "node" | "deno" | "bun" | "nodejs" => Some(Language::JavaScript),
        _ => None,
    })
}

/// Splits source into cells. A marker may name another language, a timeout or a reset in brackets, and then a title:
/// `# %% [js timeout=5 reset] rank the species`. What is before the first marker is a cell of its own if there is code
/// in it; if there are only comments, they belong to the first cell. Cells without code, and those marked `[markdown]`,
/// are left out.
///
/// # Errors
/// A marker asks for a timeout that no cell can have.
pub(crate) fn cells(text: &str, language: Language) -> Result<Vec<Cell>, CliError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parts = Vec::new();
    // No title means: no marker yet.
    let (mut title, mut code) = (None, String::new());
    for line in text.split_inclusive('\n') {
        match marker(line, language) {
            Some(first) if title.is_none() && is_only_comments(&code, language) => title = Some(first),
            Some(next) => parts.push((title.replace(next), std::mem::take(&mut code))),
            None => code.push_str(line),
        }
    }
    parts.push((title, code));
    let is_cell = |(title, code): &(Option<&str>, String)| {
        !code.trim().is_empty() && !title.is_some_and(|title| title.starts_with("[markdown]"))
    };
    let cell = |(title, code): (Option<&str>, String)| {
        let title = title.unwrap_or_default();
        let refused = |tag| CliError::usage(format!("the cell `# %% {title}` cannot have `{tag}`"), tag_hint(tag));
        tagged(title, Cell::new(language, code)).map_err(refused)
    };
    parts.into_iter().filter(is_cell).map(cell).collect()
}

/// Applies what a marker says to its cell. Brackets without a tag in them are part of the title; beside a tag, all that they hold
/// must be tags: otherwise the cell would run in another language, or for another time, than was asked.
///
/// # Errors
/// The tag that no cell can have.
fn tagged(title: &str, cell: Cell) -> Result<Cell, &str> {
    let brackets = title.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (title, cell) = match brackets.filter(|(tags, _)| tags.split_whitespace().any(is_tag)) {
        Some((tags, title)) => (title.trim(), tags.split_whitespace().try_fold(cell, with_tag)?),
        None => (title, cell),
    };
    Ok(Cell { title: (!title.is_empty()).then(|| title.to_owned()), ..cell })
}

fn with_tag(cell: Cell, tag: &str) -> Result<Cell, &str> {
    if let Some(seconds) = tag.strip_prefix("timeout=") {
        let timeout = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let timeout = timeout.filter(|timeout| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(timeout));
        return Ok(Cell { timeout: Some(timeout.ok_or(tag)?), ..cell });
    }
    match language_of(tag) {
        Some(language) => Ok(Cell { language, ..cell }),
        None if tag == RESET => Ok(Cell { reset: true, ..cell }),
        None => Err(tag),
    }
}

/// Returns true if a word in brackets is meant as a tag, valid or not: nobody names a cell after a language.
fn is_tag(word: &str) -> bool {
    let is_timeout = |(key, _): (&str, &str)| nearest(key, &[TIMEOUT]).is_some();
    word == RESET
        || word.split_once('=').is_some_and(is_timeout)
        || language_meant(word).is_some()
        || OTHER_LANGUAGES.contains(&&*word.to_lowercase())
}

/// Returns a hint at the valid tag that was meant.
fn tag_hint(tag: &str) -> String {
    if tag.contains('=') {
        return format!("say {TIMEOUT}=SECONDS, from {} to {}", TIMEOUT_MIN.as_secs_f64(), TIMEOUT_MAX.as_secs_f64());
    }
    match language_meant(tag).or_else(|| nearest(tag, &[RESET])) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("brackets hold `py` or `js`, `{RESET}` and `{TIMEOUT}=SECONDS`; a title comes behind them"),
    }
}

/// The title, perhaps empty, of a line that begins a cell.
fn marker(line: &str, language: Language) -> Option<&str> {
    let comment = line.strip_prefix(comment_prefix(language))?;
    let title = comment.strip_prefix(' ').unwrap_or(comment).strip_prefix("%%")?;
    (title.is_empty() || title.starts_with(char::is_whitespace)).then(|| title.trim())
}

fn is_only_comments(code: &str, language: Language) -> bool {
    let is_comment = |line: &str| {
        line.is_empty()
            || line.starts_with(comment_prefix(language))
            || line.starts_with("#!")
            || (language == Language::JavaScript && (line.starts_with("/*") || line.starts_with('*')))
    };
    code.lines().map(str::trim).all(is_comment)
}

fn comment_prefix(language: Language) -> &'static str {
    match language {
        Language::Python | Language::Probe => "#",
        Language::JavaScript => "//",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, language: Language, expected: &[(Option<&str>, &str)]) {
        let cells = cells(text, language).expect("cells");
        let found: Vec<_> = cells.iter().map(|cell| (cell.title.as_deref(), &*cell.code)).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn markers_with_and_without_titles() {
        check("# %% load\na = 1\n# %%\na\n", Language::Python, &[(Some("load"), "a = 1\n"), (None, "a\n")]);
        check("#%%  x \r\na", Language::Python, &[(Some("x"), "a")]);
        check("// %% sum\n1\n//%%\n2", Language::JavaScript, &[(Some("sum"), "1\n"), (None, "2")]);
    }

    #[test]
    fn a_file_without_markers_is_one_cell() {
        check("print(1)\n", Language::Python, &[(None, "print(1)\n")]);
        check("// %% no marker here\n", Language::Python, &[(None, "// %% no marker here\n")]);
        check("# %%timeit\nx\n", Language::Python, &[(None, "# %%timeit\nx\n")]);
    }

    #[test]
    fn comments_before_the_first_marker_belong_to_the_first_cell() {
        check("# about\n\n# %% one\n1\n", Language::Python, &[(Some("one"), "# about\n\n1\n")]);
        check("/* about\n * it */\n// %%\n1\n", Language::JavaScript, &[(None, "/* about\n * it */\n1\n")]);
        check("import x\n# %% one\n1\n", Language::Python, &[(None, "import x\n"), (Some("one"), "1\n")]);
    }

    #[test]
    fn a_marker_may_say_more_than_a_title() {
        let source = "# %% [js timeout=5 reset] rank\n1\n# %% [3] of 4\n2\n";
        let found = cells(source, Language::Python).expect("cells");
        let expected = Cell {
            title: Some("rank".to_owned()),
            timeout: Some(Duration::from_secs(5)),
            reset: true,
            ..Cell::new(Language::JavaScript, "1\n")
        };
        assert_eq!(found[0], expected);
        let titles: Vec<_> = found[1..].iter().map(|cell| cell.title.as_deref()).collect();
        assert_eq!(titles, [Some("[3] of 4")]);
        for tags in ["timeout=0", "py timeout=601", "timeout=soon reset"] {
            let refused = cells(&format!("# %% [{tags}] x\n1\n"), Language::Python).expect_err(tags);
            assert!(refused.to_string().contains("cannot have `timeout="), "{refused}");
        }
    }

    #[test]
    fn what_can_only_be_meant_as_a_tag_is_no_title() {
        for (marker, tag, hint) in [
            ("[rb] x", "rb", "brackets hold `py` or `js`"),
            ("[Python] x", "Python", "did you mean `py`?"),
            ("[js rest]", "rest", "did you mean `reset`?"),
            ("[timout=5] x", "timout=5", "say timeout=SECONDS, from 0.1 to 600"),
            ("[reset slowly]", "slowly", "brackets hold"),
        ] {
            let refused = cells(&format!("# %% {marker}\n1\n"), Language::Python).expect_err(marker);
            assert!(refused.to_string().contains(&format!("cannot have `{tag}`")), "{refused}");
            assert!(refused.hint().is_some_and(|found| found.contains(hint)), "{marker}: {:?}", refused.hint());
        }
        for title in ["[n=3] x", "[optional] load", "[c] the third", "[2/4]"] {
            check(&format!("# %% {title}\n1\n"), Language::Python, &[(Some(title), "1\n")]);
        }
    }

    #[test]
    fn tags_in_brackets_change_a_cell() {
        let text = "# %% [js timeout=5 reset] rank\n1\n# %% [1] list\n1\n# %% [py]\n1\n";
        let plain = |title: &str| Cell { title: Some(title.to_owned()), ..Cell::new(Language::Python, "1\n") };
        let timeout = Some(Duration::from_secs(5));
        let tagged = Cell { language: Language::JavaScript, timeout, reset: true, ..plain("rank") };
        let untitled = Cell { title: None, ..plain("") };
        let expected = [tagged, plain("[1] list"), untitled];
        assert_eq!(cells(text, Language::Python).expect("cells"), expected);
    }

    #[test]
    fn cells_without_code_are_left_out() {
        check("", Language::Python, &[]);
        check("# %% a\n\n# %% b\n1\n# %% [markdown]\n# text\n# %% c\n", Language::Python, &[(Some("b"), "1\n")]);
    }
}
