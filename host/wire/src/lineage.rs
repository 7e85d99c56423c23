//! What a run says of itself: who makes it, and what its caller has seen.

use cellar_core::{
    origin::{PRODUCER_BYTES_MAX, SEEN_BYTES_MAX, SEEN_MAX},
    run::RunOptions,
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    check::{At, Fields, Problems},
    json::Node,
};

/// These members of a line.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LineageJson {
    /// Who makes the run: the path of a notebook, the name of an agent. The names that its cells bind get an origin.
    #[schemars(length(min = 1, max = PRODUCER_BYTES_MAX))]
    producer: Option<String>,
    /// No name gets an origin although there is a producer.
    dry_run: Option<bool>,
    /// What the caller has seen, as kinds and names: cells load no other dataset.
    #[schemars(length(max = SEEN_MAX))]
    seen: Option<Vec<(String, String)>>,
}

/// Reads them among the members of a run. Doors spell `dry_run` in their own ways.
pub(crate) fn run_options(fields: &Fields<'_>, dry_run: &str, problems: &mut Problems) -> Option<RunOptions> {
    let producer = match fields.get("producer") {
        Some(at) => Some(bounded(&at, PRODUCER_BYTES_MAX, problems)?),
        None => None,
    };
    let dry_run = match fields.get(dry_run) {
        Some(at) => at.boolean(problems)?,
        None => false,
    };
    let seen = match fields.get("seen") {
        Some(at) => Some(seen(&at, problems)?),
        None => None,
    };
    Some(RunOptions { producer, dry_run, seen })
}

fn bounded(at: &At<'_>, bytes_max: usize, problems: &mut Problems) -> Option<String> {
    let text = at.filled_text(problems)?;
    if text.len() > bytes_max {
        problems.add(&at.path, format_args!("expected at most {bytes_max} bytes, found {}", text.len()));
        return None;
    }
    Some(text.to_owned())
}

/// Pairs of a kind and a name. An empty array is a caller that has seen nothing.
fn seen(at: &At<'_>, problems: &mut Problems) -> Option<Vec<(String, String)>> {
    let Node::Array(nodes) = at.node else {
        at.expected("an array of pairs, each a kind and a name", problems);
        return None;
    };
    if nodes.len() > SEEN_MAX {
        problems.add(&at.path, format_args!("expected at most {SEEN_MAX} pairs, found {}", nodes.len()));
        return None;
    }
    let mut pairs = Vec::with_capacity(nodes.len());
    for (place, node) in nodes.iter().enumerate() {
        let pair = At { node, path: format!("{}[{place}]", at.path) };
        let texts = pair.texts("string", problems)?;
        let [kind, name] = <[String; 2]>::try_from(texts).ok().or_else(|| {
            pair.expected("a kind and a name", problems);
            None
        })?;
        if kind.len().max(name.len()) > SEEN_BYTES_MAX {
            problems.add(&pair.path, format_args!("expected at most {SEEN_BYTES_MAX} bytes each"));
            return None;
        }
        pairs.push((kind, name));
    }
    Some(pairs)
}
