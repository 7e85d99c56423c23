//! Size of functions in the languages that clippy does not read: Python, JavaScript, C and C++.
//!
//! The sources are read by their layout, which formatters hold: a function of Python ends where its indentation does, and one of
//! the other languages with the bracket that stands under its head.

use std::collections::BTreeMap;

use crate::{support::root, tidy::tracked_files};

/// Largest function, in lines of code without those of functions inside it. `.clippy.toml` has the same number for Rust.
const LINES_MAX: usize = 80;
/// Most parameters of a function, without `self`.
const PARAMETERS_MAX: usize = 8;

/// Functions that may be larger: file, name, and the reason.
const EXCEPTIONS: [(&str, &str, &str); 6] = [
    ("guests/javascript/deno/wasm/wasm_compiler.js", "instruction()", "a table: a case for each kind of instruction"),
    ("guests/probe/crossings.c", "static void cross_files(void)", "a list: each import of files is called once"),
    (
        "guests/python-data/added/numpy/numpy/_core/src/common/cellar_radix_sort.hpp",
        "sort_keys",
        "one loop over digits",
    ),
    ("guests/python-data/prelude/ranks.py", "_plot_density", "the parameters of pandas"),
    ("guests/python/_cellar_prelude/processes/popen.py", "__init__", "the parameters of `subprocess.Popen`"),
    ("guests/python/_cellar_prelude/shell/packing.py", "unpacked", "the options of `tar`"),
];

/// A function as its source is laid out.
#[derive(Debug, PartialEq)]
struct Function {
    /// Its first lines, up to where its body begins.
    head: String,
    /// Number of its first line.
    line: usize,
    /// Lines of code, without blank lines, comments and functions inside.
    lines: usize,
    parameters: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Syntax {
    Python,
    JavaScript,
    C,
}

impl Syntax {
    fn of(extension: &str) -> Option<Self> {
        match extension {
            "py" => Some(Self::Python),
            "js" | "mjs" | "ts" => Some(Self::JavaScript),
            "c" | "h" | "cpp" | "hpp" => Some(Self::C),
            _ => None,
        }
    }

    fn is_code(self, line: &str) -> bool {
        let line = line.trim();
        let comments: &[&str] = if self == Self::Python { &["#"] } else { &["//", "/*", "*/", "* "] };
        !line.is_empty() && !comments.iter().any(|start| line.starts_with(start))
    }
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Returns the position of the bracket before the parameters of a head.
fn bracket(head: &str) -> Option<usize> {
    let Some(before) = head.strip_suffix("=> {") else {
        let name = head.rfind("function").unwrap_or(0);
        return head[name..].find('(').map(|at| name + at);
    };
    let mut depth = 0;
    before.char_indices().rev().find_map(|(at, character)| {
        depth += i32::from(character == ')') - i32::from(character == '(');
        (character == '(' && depth == 0).then_some(at)
    })
}

/// Number of parameters of a head: what stands between a bracket and the one that closes it.
fn parameters(head: &str) -> usize {
    let Some(start) = bracket(head) else { return 0 };
    let (mut depth, mut begin, mut found) = (0_usize, start + 1, Vec::new());
    for (at, character) in head.char_indices().skip_while(|(at, _)| *at < start) {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 1 => {
                found.push(head[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
        if depth == 0 {
            found.push(head[begin..at].trim());
            break;
        }
    }
    found.retain(|each| !["", "*", "/", "self", "cls", "void"].contains(each));
    found.len()
}

/// Numbers of the lines at which each function begins, and behind which it ends, with its head.
fn spans(syntax: Syntax, lines: &[&str]) -> Vec<(usize, usize, String)> {
    (0..lines.len())
        .filter_map(|at| match syntax {
            Syntax::Python => python_span(lines, at),
            Syntax::JavaScript => javascript_span(lines, at),
            Syntax::C => c_span(lines, at),
        })
        .collect()
}

fn python_span(lines: &[&str], start: usize) -> Option<(usize, usize, String)> {
    let head = lines[start].trim_start();
    if !["def ", "async def "].iter().any(|word| head.starts_with(word)) {
        return None;
    }
    let width = indentation(lines[start]);
    let body = (start..lines.len()).find(|at| lines[*at].trim_end().ends_with(':'))? + 1;
    let (mut end, mut is_text) = (body, false);
    for (at, line) in lines.iter().enumerate().skip(body) {
        if !is_text && !line.trim().is_empty() && indentation(line) <= width {
            break;
        }
        is_text ^= line.matches("\"\"\"").count() % 2 == 1;
        end = if line.trim().is_empty() { end } else { at + 1 };
    }
    Some((start, end, lines[start..body].join(" ")))
}

/// A function ends with the first bracket at the indentation of its head.
fn closed(lines: &[&str], start: usize) -> Option<usize> {
    let width = indentation(lines[start]);
    let is_end = |line: &str| line.trim_start().starts_with('}') && indentation(line) == width;
    (start + 1..lines.len()).find(|at| is_end(lines[*at])).map(|at| at + 1)
}

fn javascript_span(lines: &[&str], start: usize) -> Option<(usize, usize, String)> {
    const STATEMENTS: [&str; 11] =
        ["if", "for", "while", "switch", "try", "else", "do", "class", "catch", "with", "return"];
    let head = lines[start].trim();
    let word = head.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let is_method = head.ends_with(") {") && !STATEMENTS.contains(&word);
    let is_function = head.ends_with("=> {") || is_method || (head.contains("function") && head.ends_with('{'));
    if !is_function || head.starts_with('}') || head.starts_with('/') || head.starts_with('*') {
        return None;
    }
    let first = match head.starts_with(')') {
        false => start,
        true => (0..start).rev().find(|at| indentation(lines[*at]) == indentation(lines[start]))?,
    };
    Some((first, closed(lines, start)?, lines[first..=start].join(" ")))
}

fn c_span(lines: &[&str], start: usize) -> Option<(usize, usize, String)> {
    const TYPES: [&str; 6] = ["struct", "enum", "union", "typedef", "namespace", "class"];
    let is_open = lines[start].ends_with('{') && indentation(lines[start]) == 0;
    let ends = |line: &str| line.is_empty() || line.starts_with(['#', '}', '/']) || line.ends_with([';', '/']);
    let first = (0..start).rev().take_while(|at| !ends(lines[*at])).last().unwrap_or(start);
    let head = lines[first..=start].join(" ");
    let word = head.split(' ').next().unwrap_or_default();
    let is_function = is_open && head.contains('(') && !head.contains(" = ");
    (is_function && !TYPES.contains(&word)).then_some(())?;
    Some((first, closed(lines, start)?, head))
}

/// The functions of a source, but for one that is the whole of it: scripts of the prelude are that.
fn functions(syntax: Syntax, text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let mut spans = spans(syntax, &lines);
    spans.retain(|(_, end, head)| *end < lines.len() || !head.starts_with('('));
    // The innermost function that each line belongs to, by its place in `spans`, which begin in order.
    let mut owners = BTreeMap::new();
    for (number, (start, end, _)) in spans.iter().enumerate() {
        owners.extend((*start..*end).map(|at| (at, number)));
    }
    owners.retain(|at, _| syntax.is_code(lines[*at]));
    let function = |(number, (start, _, head)): (usize, &(usize, usize, String))| Function {
        head: head.trim().to_owned(),
        line: start + 1,
        lines: owners.values().filter(|owner| **owner == number).count(),
        parameters: parameters(head),
    };
    spans.iter().enumerate().map(function).collect()
}

#[test]
fn no_function_of_the_guests_outgrows_a_reader() {
    let mut count = 0;
    let mut unused = EXCEPTIONS.to_vec();
    let mut breaches = Vec::new();
    for path in tracked_files() {
        let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        let syntax = path.extension().and_then(|extension| extension.to_str()).and_then(Syntax::of);
        let Some(syntax) = syntax.filter(|_| !name.starts_with("fixtures/")) else { continue };
        let text = std::fs::read_to_string(&path).expect("source is text");
        for function in functions(syntax, &text) {
            count += 1;
            if function.lines <= LINES_MAX && function.parameters <= PARAMETERS_MAX {
                continue;
            }
            let places = unused.len();
            unused.retain(|(file, head, _)| *file != name || !function.head.contains(head));
            if unused.len() == places {
                let Function { head, line, lines, parameters } = function;
                breaches.push(format!("{name}:{line}: {lines} lines and {parameters} parameters: {head}"));
            }
        }
    }
    assert!(count > 4_000, "{count} functions were found");
    assert!(breaches.is_empty(), "at most {LINES_MAX} and {PARAMETERS_MAX}:\n{}", breaches.join("\n"));
    assert!(unused.is_empty(), "not needed any more: {unused:?}");
}

#[test]
fn functions_are_measured_without_those_inside_them() {
    let measured = |syntax, text: &str| -> Vec<_> {
        functions(syntax, text).into_iter().map(|each| (each.line, each.lines, each.parameters)).collect()
    };
    let python = "def a(self, b, *, c=(1, 2)):\n    \"\"\"Text\n that is longer.\"\"\"\n    def d():\n        return 1\n\n    # why\n    return d\nx = 1\n";
    assert_eq!(measured(Syntax::Python, python), [(1, 4, 2), (4, 2, 0)]);
    let javascript = "(host) => {\n  function a(b, c) {\n    if (b) {\n      c();\n    }\n    // why\n    d((e) => {\n      e();\n    });\n  }\n}\n";
    assert_eq!(measured(Syntax::JavaScript, javascript), [(2, 5, 2), (7, 3, 1)]);
    let c = "struct a {\n    int b;\n};\n\n/* why */\nstatic int d(void) {\n    int e[] = {1};\n\n    return *e;\n}\n\nint\nf(int a,\n  int b)\n{\n}\n";
    assert_eq!(measured(Syntax::C, c), [(6, 4, 0), (12, 5, 2)]);
}
