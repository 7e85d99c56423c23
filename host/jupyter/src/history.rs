//! History of cells: the answers to `history_request`. The session keeps the sources; this module keeps which of them
//! count.

use std::collections::{BTreeMap, VecDeque};

use cellar_engine::{CellId, Session, limits::HISTORY_CELLS_MAX};
use serde_json::{Value, json};

use crate::message::{Content, Fault};

/// Cells whose requests are remembered, so that output that comes after a cell has ended reaches the client that ran
/// it.
const PARENTS_MAX: usize = 256;
/// Number of the only session that clients see: nothing is known of earlier ones.
const SESSION: i64 = 1;

/// The cells of this kernel, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History {
    cells: VecDeque<CellId>,
    /// The header of the request that ran a cell.
    parents: BTreeMap<CellId, Value>,
    /// Number of cells that the session had when the kernel began.
    before: u32,
}

impl History {
    /// Clears the history: the kernel begins afresh, and `next` will be its first cell.
    pub(crate) fn restart(&mut self, next: CellId) {
        *self = History { before: next.0.saturating_sub(1), ..History::default() };
    }

    /// Returns the number of a session's cell as clients count: from 1 since the kernel began.
    pub(crate) fn number(&self, cell: CellId) -> u32 {
        cell.0.saturating_sub(self.before)
    }

    /// Notes which request runs a cell.
    pub(crate) fn begin(&mut self, cell: CellId, parent: &Value) {
        self.parents.insert(cell, parent.clone());
        if self.parents.len() > PARENTS_MAX {
            self.parents.pop_first();
        }
    }

    /// Notes that a cell belongs to the history.
    pub(crate) fn store(&mut self, cell: CellId) {
        self.cells.push_back(cell);
        if self.cells.len() > HISTORY_CELLS_MAX {
            self.cells.pop_front();
        }
    }

    /// Returns the header of the request that ran a cell; an empty one when it is no longer known.
    pub(crate) fn parent(&self, cell: CellId) -> Value {
        self.parents.get(&cell).cloned().unwrap_or_else(|| json!({}))
    }

    /// Answers a `history_request`.
    ///
    /// # Errors
    /// The request is not valid.
    pub(crate) fn answer(&self, request: &Content, session: Option<&Session>) -> Result<Value, Fault> {
        let with_output = request.flag("output", false)?;
        let kind = request.text("hist_access_type")?;
        let limit = request.integer("n")?.map(|n| usize::try_from(n).unwrap_or(0));
        let source = |cell: &CellId| Some((i64::from(self.number(*cell)), session?.source(*cell)?.code));
        let all = || self.cells.iter().filter_map(source);
        let mut found: Vec<_> = match kind {
            "tail" => all().collect(),
            "range" => {
                let is_this = matches!(request.integer("session")?.unwrap_or(0), 0 | SESSION);
                let start = request.integer("start")?.unwrap_or(1);
                let stop = request.integer("stop")?.unwrap_or(i64::MAX);
                all().filter(|(line, _)| is_this && (start..stop).contains(line)).collect()
            }
            "search" => {
                let pattern: Vec<char> = request.text("pattern").unwrap_or("*").chars().collect();
                all().filter(|(_, code)| matches(&pattern, code)).collect()
            }
            other => {
                let message = format!("content.hist_access_type: expected tail, range or search, found {other:?}");
                return Err(Fault::new(message));
            }
        };
        if kind == "search" && request.flag("unique", false)? {
            let mut seen = std::collections::HashSet::new();
            found.reverse();
            found.retain(|(_, code)| seen.insert(code.clone()));
            found.reverse();
        }
        if let (Some(limit), true) = (limit, kind != "range") {
            found.drain(..found.len().saturating_sub(limit));
        }
        let line = |(line, code): (i64, std::sync::Arc<str>)| match with_output {
            // No output is kept.
            true => json!([SESSION, line, [&*code, null]]),
            false => json!([SESSION, line, &*code]),
        };
        Ok(json!({"status": "ok", "history": found.into_iter().map(line).collect::<Vec<_>>()}))
    }
}

/// Checks whether a pattern matches a whole text. In the pattern `*` stands for any characters and `?` for one.
fn matches(pattern: &[char], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    // Where to go on when what follows the last star does not fit: one character further.
    let (mut p, mut t, mut retry) = (0_usize, 0_usize, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                p = p.saturating_add(1);
                retry = Some((p, t));
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p.saturating_add(1), t.saturating_add(1)),
            _ => match &mut retry {
                Some((after, from)) => {
                    *from = usize::saturating_add(*from, 1);
                    (p, t) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let check = |pattern: &str, text: &str| matches(&pattern.chars().collect::<Vec<_>>(), text);
        for (pattern, text) in [("*", ""), ("a*c", "abbc"), ("*b?d*", "abcde"), ("", ""), ("é?", "éà"), ("**x", "yx")]
        {
            assert!(check(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*c", "abb"), ("?", ""), ("", "x"), ("*x", "xy")] {
            assert!(!check(pattern, text), "{pattern} {text}");
        }
    }
}
