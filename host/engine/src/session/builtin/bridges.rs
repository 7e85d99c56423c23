//! The calls that a session answers itself, in front of those that its embedder answers.
//!
//! [`SessionBridges`] decorates the embedder's [`Bridges`]: it serves what every session answers of itself, and `tool.read`
//! and the packs `selfref` and `tools` unless the embedder grants its own, starts processes, hands each call a handle of the session,
//! and keeps what agents say.

use std::sync::Arc;

use cellar_core::cell::Language;

use super::{
    catalog::{self, TOOLS},
    reading::{READ_TOOL, read_tool},
    selfref::{SELFREF, selfref_pack},
};
use crate::{
    contract::bridge::{Call, CallError, ConnectorSpec, PackSpec, ToolsFuture, denied},
    kernel::{
        calls::{Answers, Begun, Site},
        state::KernelLink,
    },
    session::{
        WeakSession,
        granted::{Bridges, Caller},
        waits::Wait,
    },
};

/// Dispatcher of calls from a session's kernel, to the session itself or to the embedder's bridges.
pub(crate) struct SessionBridges {
    session: WeakSession,
    granted: Arc<dyn Bridges>,
    /// Link of the calling kernel.
    link: Arc<KernelLink>,
    /// Language of the calling kernel.
    language: Language,
}

impl SessionBridges {
    pub(crate) fn new(
        session: WeakSession,
        granted: Arc<dyn Bridges>,
        link: Arc<KernelLink>,
        language: Language,
    ) -> SessionBridges {
        SessionBridges { session, granted, link, language }
    }
}

impl Answers for SessionBridges {
    fn tools(&self) -> ToolsFuture {
        let asked = self.granted.tools();
        Box::pin(async move {
            let mut tools = asked.await;
            if !tools.iter().any(|tool| tool.name == READ_TOOL) {
                tools.push(read_tool());
            }
            tools
        })
    }

    fn packs(&self) -> Vec<PackSpec> {
        let own = (!self.granted.has_pack(SELFREF)).then(selfref_pack);
        self.granted.packs().into_iter().chain(own).collect()
    }

    fn connectors(&self) -> Vec<ConnectorSpec> {
        self.granted.connectors()
    }

    fn call(&self, call: Call, site: Site) -> Result<Begun, CallError> {
        let spawned = if let Call::Agent(asked) = &call { Some(asked.agent_type.as_str()) } else { None };
        let scope = site.scope.as_ref().map(|scope| scope.run.clone());
        let lineage = site.lineage.with(site.cell.0, site.call, spawned).within(scope);
        let Some(session) = self.session.upgrade(lineage) else { return Err(denied(&call)) };
        let call = match call {
            Call::Disk => return Ok(session.call_disk().into()),
            Call::Table(call) => return Ok(session.call_table(call, &site, &self.link).into()),
            Call::Process(call) => return Ok(session.call_process(call, site, &self.link)),
            Call::Tool { name, arguments } if name == READ_TOOL && !self.granted.has_tool(READ_TOOL) => {
                return Ok(session.call_read(arguments).into());
            }
            Call::Primitive { pack, name, arguments }
                if pack == SELFREF && !name.is_empty() && !self.granted.has_pack(SELFREF) =>
            {
                return Ok(session.call_selfref(&name, arguments, site).into());
            }
            Call::Primitive { pack, name, arguments } if pack == TOOLS && !self.granted.has_pack(TOOLS) => {
                return Ok(catalog::answer(&*self.granted, self.language, &name, arguments).into());
            }
            call => call,
        };
        let agent = site.lineage.agent().map(str::to_owned);
        let wait = self.granted.confirms(&call).then(|| Wait::new(&session, &site, &call));
        let waits = wait.is_some();
        let caller = Caller { session: session.clone(), cell: site.cell, depth: site.depth, agent, wait };
        if let Call::Fetch { name, arguments, refresh } = &call {
            let begun = session.call_fetch(&self.granted, &self.link, name.clone(), arguments, *refresh, caller);
            return Ok(Begun { waits, ..begun });
        }
        let asked = if let Call::Agent(asked) = &call { Some(asked.clone()) } else { None };
        let callee = catalog::callee(&call);
        let future = self.granted.call(call, caller);
        let future = match callee {
            Some(callee) => catalog::with_signature(self.granted.clone(), self.language, callee, future),
            None => future,
        };
        let begun = match asked {
            Some(asked) => session.keeping_output(asked, future),
            None => future.into(),
        };
        Ok(Begun { waits, is_free: begun.is_free || waits, ..begun })
    }
}
