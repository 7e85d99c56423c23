//! Lineage options of a run: its producer, and the datasets that its caller has seen.

use cellar_core::{
    origin::{PRODUCER_BYTES_MAX, SEEN_BYTES_MAX, SEEN_MAX},
    run::RunOptions,
};

use crate::{
    check::{At, Problems},
    json::Node,
    object::{Kind, Member, Members, Text, member},
};

/// Producer of a run.
pub(crate) const PRODUCER: Member = member(
    "producer",
    Kind::Text(Text::ANY.at_most(PRODUCER_BYTES_MAX).filled().described()),
    "Who makes the run: the path of a notebook, the name of an agent. The names that its cells bind get an origin.",
);
/// Description of the member that has no name get an origin, which interfaces spell in their own ways.
pub(crate) const DRY_RUN: &str = "No name gets an origin although there is a producer, and no dataset is published.";
/// Members of a run's request about its lineage. `None` for a `seen` that is not valid.
pub(crate) const SEEN: Member =
    member("seen", Kind::Seen, "What the caller has seen, as kinds and names: cells load no other dataset.");

/// Reads them among the members of a run; `dry_run` is the key of that member.
pub(crate) fn run_options(members: &Members<'_>, dry_run: &str, problems: &mut Problems) -> Option<RunOptions> {
    let producer = members.text("producer", problems);
    let dry_run = members.boolean(dry_run, problems).unwrap_or_default();
    let seen = match members.get("seen", problems) {
        Some(at) => Some(seen(&at, problems)?),
        None => None,
    };
    Some(RunOptions { producer, dry_run, seen })
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
