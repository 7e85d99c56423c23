//! Grants of transcripts with `granted: yes` besides the tools of all: a pack of primitives, and agents.

use std::sync::Arc;

use cellar_bridges::{
    Agent, AgentFuture, AgentRequest, AgentTransport, HostBridges, Options, Pack, Spawns, ToolFailure,
};
use cellar_engine::{Cell, Language, Session};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Span {
    first: u32,
    last: u32,
    #[serde(default)]
    step: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: u32,
    count: usize,
}

/// The pack `numbers`; the agents `task`, which may call `helper` alone, and `helper`, which may call none.
pub(crate) fn bridges() -> HostBridges {
    let pack = Pack::new("numbers", "numbers of many kinds")
        .version("1.2")
        .primitive("sum", "the sum of a span", |span: Span| async move {
            let all = || (span.first..=span.last).step_by(span.step.unwrap_or(1) as usize);
            Ok(Sum { sum: all().sum(), count: all().count() })
        })
        .primitive("hard.problem", "cannot be solved", |_: Span| async move {
            Err::<u32, _>(ToolFailure::new("nobody knows"))
        });
    let agent = |spawns: &[&str]| Agent {
        spawns: Spawns::Only(spawns.iter().map(|name| (*name).to_owned()).collect()),
        ..Agent::new(AgentTransport::Program(Arc::new(work)))
    };
    let mut options = Options::default();
    options.agents.insert("task".to_owned(), agent(&["helper"]));
    options.agents.insert("helper".to_owned(), agent(&[]));
    HostBridges::new(options).with_pack(pack)
}

/// Does what the prompt says: `say WORDS`, `run CODE` in the session, `object`, `request`.
fn work(request: AgentRequest, session: Session) -> AgentFuture {
    Box::pin(async move {
        let (verb, rest) = request.prompt.split_once(' ').unwrap_or((&request.prompt, ""));
        Ok(match verb {
            "say" => rest.into(),
            "run" => session.run(vec![Cell::new(Language::Python, rest)])?.collect_result().await.text().into(),
            "run-js" => session.run(vec![Cell::new(Language::JavaScript, rest)])?.collect_result().await.text().into(),
            "object" => serde_json::json!({"n": 41}),
            "request" => serde_json::json!([request.context, request.label, request.model, request.depth]),
            _ => return Err(ToolFailure::new(format!("does not know how to {verb}"))),
        })
    })
}
