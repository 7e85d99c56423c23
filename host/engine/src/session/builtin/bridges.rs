//! The calls that a session answers itself, in front of those that its embedder answers.
//!
//! [`SessionBridges`] decorates the embedder's [`Bridges`]: it serves what every session answers of itself, and `tool.read`
//! and the pack `selfref` unless the embedder grants its own, starts processes, hands each call a handle of the session,
//! and keeps what agents say.

use std::sync::Arc;

use super::{
    own_calls::OWN,
    reading::{READ_TOOL, read_tool},
    selfref::{SELFREF, selfref_pack},
};
use crate::{
    contract::bridge::{
        CONNECTORS, Call, CallError, ConnectorSpec, FetchSpec, PackSpec, PrimitiveSpec, RUNTIME, ToolSpec, ToolsFuture,
        denied,
    },
    kernel::{
        calls::{Answers, Begun, Site},
        state::KernelLink,
    },
    session::{
        WeakSession,
        granted::{Bridges, Caller},
    },
};

/// Dispatcher of calls from a session's kernel, to the session itself or to the embedder's bridges.
pub(crate) struct SessionBridges {
    session: WeakSession,
    granted: Arc<dyn Bridges>,
    /// Link of the calling kernel.
    link: Arc<KernelLink>,
}

impl SessionBridges {
    pub(crate) fn new(session: WeakSession, granted: Arc<dyn Bridges>, link: Arc<KernelLink>) -> SessionBridges {
        SessionBridges { session, granted, link }
    }
}

impl Answers for SessionBridges {
    fn tools(&self) -> ToolsFuture {
        let (granted, asked) = (self.granted.clone(), self.granted.tools());
        Box::pin(async move {
            let mut tools = asked.await;
            // A name that begins so would be taken for that of a primitive.
            tools.retain(|tool| !tool.name.starts_with(RUNTIME) && !tool.name.starts_with(CONNECTORS));
            if !tools.iter().any(|tool| tool.name == READ_TOOL) {
                tools.push(read_tool());
            }
            let own = (!granted.has_pack(SELFREF)).then(selfref_pack);
            tools.extend(granted.packs().into_iter().chain(own).flat_map(primitives));
            tools.extend(granted.connectors().into_iter().flat_map(fetches));
            tools
        })
    }

    fn call(&self, call: Call, site: Site) -> Result<Begun, CallError> {
        let spawned = if let Call::Agent(asked) = &call { Some(asked.agent_type.as_str()) } else { None };
        let is_produced = site.scope.as_ref().is_some_and(|scope| scope.run.producer.is_some());
        let lineage = site.lineage.with(site.cell.0, site.call, spawned).within(is_produced);
        let Some(session) = self.session.upgrade(lineage) else { return Err(denied(&call)) };
        if let Call::Tool { name, arguments } = &call
            && let Some(own) = name.strip_prefix(OWN)
            && let Some(answer) = session.call_own(own, arguments, &site)
        {
            return Ok(answer.into());
        }
        if let Call::Tool { name, arguments } = &call
            && name == READ_TOOL
            && !self.granted.has_tool(READ_TOOL)
        {
            return Ok(session.call_read(arguments.clone()).into());
        }
        if let Call::Primitive { name, arguments } = &call
            && let Some(begun) = session.call_process(name, arguments, &site, &self.link)
        {
            return Ok(begun);
        }
        if let Call::Primitive { name, arguments } = &call
            && let Some(own) = name.strip_prefix(SELFREF).and_then(|rest| rest.strip_prefix('.'))
            && !self.granted.has_pack(SELFREF)
        {
            return Ok(session.call_selfref(own, arguments.clone(), site).into());
        }
        let agent = site.lineage.agent().map(str::to_owned);
        let caller = Caller { session: session.clone(), cell: site.cell, depth: site.depth, agent };
        if let Call::Fetch { name, arguments } = &call {
            return Ok(session.call_fetch(&self.granted, &self.link, name.clone(), arguments, caller));
        }
        let asked = if let Call::Agent(asked) = &call { Some(asked.clone()) } else { None };
        let future = self.granted.call(call, caller);
        Ok(match asked {
            Some(asked) => session.keeping_output(asked, future),
            None => future.into(),
        })
    }
}

/// The fetches of a connector as they stand among the tools. Their schema says more than that of a tool.
fn fetches(connector: ConnectorSpec) -> Vec<ToolSpec> {
    let ConnectorSpec { name: of, description, fetches } = connector;
    let connector = serde_json::json!({"name": of, "description": description});
    let spec = |fetch: FetchSpec| {
        let columns: Vec<_> =
            fetch.columns.iter().map(|(name, kind)| serde_json::json!({"name": name, "type": kind})).collect();
        let schema = serde_json::from_str::<serde_json::Value>(&fetch.schema).ok();
        let told = serde_json::json!({"connector": connector, "schema": schema, "columns": columns});
        let name = format!("{CONNECTORS}{of}.{}", fetch.name);
        ToolSpec { name, description: fetch.description, schema: Some(told.to_string()) }
    };
    fetches.into_iter().map(spec).collect()
}

/// The primitives of a pack as they stand among the tools. Their schema says more than that of a tool.
fn primitives(pack: PackSpec) -> Vec<ToolSpec> {
    let PackSpec { name: of, version, description, primitives } = pack;
    let pack = serde_json::json!({"name": of, "version": version, "description": description});
    let value = |schema: Option<String>| schema.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    let spec = |primitive: PrimitiveSpec| {
        let told = serde_json::json!({
            "pack": pack,
            "schema": value(primitive.schema),
            "result": value(primitive.result),
        });
        let name = format!("{RUNTIME}{of}.{}", primitive.name);
        ToolSpec { name, description: primitive.description, schema: Some(told.to_string()) }
    };
    primitives.into_iter().map(spec).collect()
}
