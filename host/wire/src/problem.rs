//! Refusals of the server, as problem documents (RFC 9457).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::Invalid;

/// Why a request was refused. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemJson {
    /// `urn:cellar:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What such problems have in common: what the status says.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// What people read.
    pub detail: String,
    /// A stable word.
    pub code: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    /// The limit that was reached.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<String>,
    /// Every fault of the request's body.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<FaultJson>,
}

/// One fault of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FaultJson {
    /// Where it is: `$.cells[0].code`.
    pub path: String,
    /// What was expected there, and what was found.
    pub expected: String,
}

impl ProblemJson {
    /// A problem without hint, limit and faults.
    pub fn new(status: u16, title: &str, code: &str, detail: impl Into<String>) -> ProblemJson {
        ProblemJson {
            kind: format!("urn:cellar:{code}"),
            title: title.to_owned(),
            status,
            detail: detail.into(),
            code: code.to_owned(),
            hint: None,
            limit: None,
            problems: Vec::new(),
        }
    }
}

/// The faults of a document that was refused.
pub fn faults(invalid: &Invalid) -> Vec<FaultJson> {
    invalid.problems.iter().map(|line| fault(line)).collect()
}

/// A line of [`Invalid`]: the path, unless the fault is of the whole, and then what is wrong.
fn fault(line: &str) -> FaultJson {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (place, character) in line.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ':' if !is_quoted => {
                let (path, rest) = line.split_at(place);
                return FaultJson { path: path.to_owned(), expected: rest[1..].trim_start().to_owned() };
            }
            _ => {}
        }
    }
    FaultJson { path: "$".to_owned(), expected: line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_told_with_its_path() {
        let check = |line: &str, path: &str, expected: &str| {
            assert_eq!(fault(line), FaultJson { path: path.to_owned(), expected: expected.to_owned() });
        };
        check("$.cells[0].code: expected a string, found 1", "$.cells[0].code", "expected a string, found 1");
        check("$[\"a: \\\"b\"]: unknown field", "$[\"a: \\\"b\"]", "unknown field");
        check("no path", "$", "no path");
    }
}
