//! Calls that wait for a person: which ones do, and what becomes of them.
//!
//! [`confirmed`] puts rules in front of the bridges of a session. A call that [`Confirmations`] name is shown to the
//! [`Approver`], and goes on when that has an answer.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use cellar_core::{event::Bridge, limits::INPUT_IDLE_TIMEOUT_MAX};
use cellar_engine::bridges::{
    BridgeGrants, Bridges, Call, CallError, CallErrorKind, CallFuture, Caller, ConnectorSpec, FetchFuture, FetchName,
    PackSpec, ToolsFuture, Verdict, Wait,
};
use cellar_wire::{Decision, DecisionOutcome};
use futures::future::BoxFuture;
use reqwest::{Method, Url};
use serde_json::{Map, Value, json};

use crate::{
    http::granting,
    options::{Confirm, Connector, HttpRule, McpServer, Options},
    schema::Schema,
};

/// Bytes of arguments that are compared with a schema; a call with more waits in any case.
const COMPARED_BYTES_MAX: usize = 64 << 10;
/// Bytes of a body that is shown.
const BODY_BYTES_SHOWN: usize = 16 << 10;

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingCall {
    /// Id of the wait.
    pub id: String,
    /// The session of the cell.
    pub session: String,
    /// The cell.
    pub cell: u32,
    /// Bridge of the call.
    pub bridge: Bridge,
    /// The tool, the primitive with its pack, the agent type, the URL or the fetch with its connector.
    pub name: String,
    /// Its arguments: those of the cell, or what an agent or a host is sent.
    pub arguments: Value,
    /// True if a decision may change its arguments.
    pub is_editable: bool,
}

/// Shows calls to people, and hears of their decisions.
pub trait Approver: Send + Sync + fmt::Debug {
    /// Asks for a decision on a call.
    ///
    /// # Errors
    /// Nobody can be asked.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the call.
    fn ask(&self, call: WaitingCall) -> BoxFuture<'static, Result<Decision, CallError>>;
}

/// Rules by which calls wait.
#[derive(Debug, Default)]
pub struct Confirmations {
    /// Tools of the session's own, with their rules, and primitives as `pack.name`.
    tools: BTreeMap<String, Option<Rule>>,
    servers: Vec<(McpServer, Rule)>,
    agents: BTreeMap<String, Rule>,
    hosts: Vec<(HttpRule, Option<Rule>)>,
    connectors: BTreeMap<String, Rule>,
    /// The tool that a fetch calls, by connector and fetch.
    fetches: BTreeMap<(String, String), String>,
}

#[derive(Debug)]
enum Rule {
    Always,
    When(Schema),
}

impl Rule {
    fn new(confirm: &Confirm) -> Rule {
        match confirm {
            Confirm::Always => Rule::Always,
            // The configuration was checked. A schema that is none after all lets nothing pass.
            Confirm::When(schema) => Schema::compile(schema).map_or(Rule::Always, Rule::When),
        }
    }

    fn is_met(&self, size_bytes: usize, arguments: impl FnOnce() -> Option<Value>) -> bool {
        match self {
            Rule::Always => true,
            Rule::When(_) if size_bytes > COMPARED_BYTES_MAX => true,
            Rule::When(schema) => arguments().is_none_or(|arguments| schema.check(&arguments).is_ok()),
        }
    }
}

impl Confirmations {
    /// The rules of a session's grants; none if no call waits.
    pub fn of(options: &Options) -> Option<Arc<Confirmations>> {
        let rule = |confirm: &Option<Confirm>| confirm.as_ref().map(Rule::new);
        let mut rules = Confirmations::default();
        rules.tools.extend(options.tools.iter().map(|(name, tool)| (name.clone(), rule(&tool.confirm))));
        for (pack, of_pack) in &options.runtime {
            let primitives = of_pack.primitives.iter();
            let named = primitives.map(|(name, primitive)| (format!("{pack}.{name}"), rule(&primitive.tool.confirm)));
            rules.tools.extend(named);
        }
        let servers = options.mcp.values();
        rules.servers.extend(servers.filter_map(|server| Some((server.clone(), rule(&server.confirm)?))));
        let agents = options.agents.iter();
        rules.agents.extend(agents.filter_map(|(name, agent)| Some((name.clone(), rule(&agent.confirm)?))));
        rules.hosts.extend(options.http.allow.iter().map(|host| (host.clone(), rule(&host.confirm))));
        let connectors = options.confirm_connectors.iter();
        rules.connectors.extend(connectors.map(|(name, confirm)| (name.clone(), Rule::new(confirm))));
        for (connector, of_connector) in &options.connectors {
            if let Connector::Mcp { fetches, .. } = of_connector {
                let tools = fetches.iter().map(|(fetch, asked)| (fetch.clone(), asked.asks.clone()));
                rules.fetches.extend(tools.map(|(fetch, tool)| ((connector.clone(), fetch), tool)));
            }
        }
        let some = rules.tools.values().any(Option::is_some)
            || rules.hosts.iter().any(|(_, rule)| rule.is_some())
            || !(rules.servers.is_empty() && rules.agents.is_empty() && rules.connectors.is_empty());
        some.then(|| Arc::new(rules))
    }

    fn name(&self, call: &Call) -> bool {
        match call {
            Call::Tool { name, arguments } => self.names_tool(name, arguments),
            Call::Primitive { arguments, .. } => {
                let rule = self.tools.get(&*call.name()).and_then(Option::as_ref);
                rule.is_some_and(|rule| rule.is_met(arguments.len(), || serde_json::from_str(arguments).ok()))
            }
            Call::Agent(asked) => {
                let rule = self.agents.get(&asked.agent_type);
                let size = asked.prompt.len().saturating_add(asked.context.as_ref().map_or(0, String::len));
                rule.is_some_and(|rule| rule.is_met(size, || Some(shown(call))))
            }
            Call::Http(request) => {
                let rules = self.hosts.iter().any(|(_, rule)| rule.is_some());
                let of = rules.then(|| (Method::from_bytes(request.method.as_bytes()), Url::parse(&request.url)));
                // What is granted by no rule is refused behind this.
                let Some((Ok(method), Ok(url))) = of else { return false };
                let allow: Vec<HttpRule> = self.hosts.iter().map(|(host, _)| host.clone()).collect();
                let Ok(granted) = granting(&allow, &method, &url) else { return false };
                let place = allow.iter().position(|host| std::ptr::eq(host, granted));
                let rule = place.and_then(|place| self.hosts[place].1.as_ref());
                let size = request.body.as_ref().map_or(0, Vec::len).saturating_add(request.url.len());
                rule.is_some_and(|rule| rule.is_met(size, || Some(shown(call))))
            }
            Call::Fetch { name, arguments, .. } => {
                let of = |rule: &Rule| rule.is_met(arguments.len(), || serde_json::from_str(arguments).ok());
                let tool = self.fetches.get(&(name.connector.clone(), name.fetch.clone()));
                self.connectors.get(&name.connector).is_some_and(of)
                    || tool.is_some_and(|tool| self.names_tool(tool, arguments))
            }
            _ => false,
        }
    }

    fn names_tool(&self, name: &str, arguments: &str) -> bool {
        let is_met = |rule: &Rule| rule.is_met(arguments.len(), || serde_json::from_str(arguments).ok());
        match self.tools.get(name) {
            Some(rule) => rule.as_ref().is_some_and(is_met),
            // Which server has a tool is known when it was asked. One that may have it is enough.
            None => self.servers.iter().any(|(server, rule)| server.may_have(name) && is_met(rule)),
        }
    }
}

/// Arguments of a call, for people.
fn shown(call: &Call) -> Value {
    match call {
        Call::Tool { arguments, .. } | Call::Primitive { arguments, .. } | Call::Fetch { arguments, .. } => {
            serde_json::from_str(arguments).unwrap_or(Value::Null)
        }
        Call::Agent(asked) => {
            let members = [
                ("prompt", Some(&asked.prompt)),
                ("context", asked.context.as_ref()),
                ("label", asked.label.as_ref()),
                ("model", asked.model.as_ref()),
            ];
            let given = members.into_iter().filter_map(|(name, text)| Some((name.to_owned(), json!(text?))));
            Value::Object(given.collect())
        }
        Call::Http(request) => {
            let mut members = json!({ "method": request.method, "url": request.url });
            if let Some(body) = &request.body {
                let text = String::from_utf8_lossy(&body[..body.len().min(BODY_BYTES_SHOWN)]);
                members["body"] = json!(text);
                members["bodyBytes"] = json!(body.len());
            }
            members
        }
        _ => Value::Null,
    }
}

/// Bridges in front of which calls wait for a person.
struct Confirmed {
    inner: Arc<dyn Bridges>,
    rules: Arc<Confirmations>,
    /// None where nobody can be asked.
    approver: Option<Arc<dyn Approver>>,
}

/// Puts rules in front of bridges. Without an approver the calls that would wait are denied.
pub fn confirmed(
    inner: Arc<dyn Bridges>,
    rules: Arc<Confirmations>,
    approver: Option<Arc<dyn Approver>>,
) -> Arc<dyn Bridges> {
    Arc::new(Confirmed { inner, rules, approver })
}

impl Confirmed {
    /// Waits for the decision on a call. Returns the arguments that replace its own, if there are some.
    fn decided(&self, call: &Call, caller: &Caller) -> Option<impl Future<Output = Decided> + Send + use<>> {
        if !self.rules.name(call) {
            return None;
        }
        let is_editable = matches!(call, Call::Tool { .. } | Call::Primitive { .. } | Call::Fetch { .. });
        let what = format!("{} `{}`", call.bridge().as_str(), call.name());
        let waiting = caller.wait.clone().map(|wait| {
            let waiting = WaitingCall {
                id: wait.id().to_owned(),
                session: caller.session.id().to_owned(),
                cell: caller.cell.0,
                bridge: call.bridge(),
                name: call.name().into_owned(),
                arguments: shown(call),
                is_editable,
            };
            (wait, waiting)
        });
        let approver = self.approver.clone();
        Some(async move {
            let (Some(approver), Some((wait, waiting))) = (approver, waiting) else {
                let message = format!("{what} needs a person's approval, and nobody can be asked here");
                return Err(CallError::new(CallErrorKind::Denied, message));
            };
            ask(approver, wait, waiting, &what).await
        })
    }
}

type Decided = Result<Option<Map<String, Value>>, CallError>;

async fn ask(approver: Arc<dyn Approver>, wait: Wait, waiting: WaitingCall, what: &str) -> Decided {
    let is_editable = waiting.is_editable;
    let asked = approver.ask(waiting);
    wait.begin().await;
    let Ok(decision) = tokio::time::timeout(INPUT_IDLE_TIMEOUT_MAX, asked).await else {
        let hours = Duration::as_secs(&INPUT_IDLE_TIMEOUT_MAX) / 3_600;
        let message = format!("{what} waited for approval for {hours} h, and nobody decided");
        return Err(CallError::new(CallErrorKind::Limit, message));
    };
    let Decision { by, outcome } = decision?;
    let verdict = match &outcome {
        DecisionOutcome::Approve(None) => Verdict::Approved,
        DecisionOutcome::Approve(Some(_)) => Verdict::Edited,
        DecisionOutcome::Reject(_) => Verdict::Rejected,
    };
    wait.end(verdict, &by).await?;
    match outcome {
        DecisionOutcome::Approve(Some(_)) if !is_editable => {
            let message = format!("{what} cannot be given other arguments");
            Err(CallError::new(CallErrorKind::Denied, message))
        }
        DecisionOutcome::Approve(arguments) => Ok(arguments),
        DecisionOutcome::Reject(reason) => {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            Err(CallError::new(CallErrorKind::Denied, format!("{what} was rejected{reason}")))
        }
    }
}

/// The call with other arguments.
fn with(call: Call, edited: Option<Map<String, Value>>) -> Call {
    let Some(edited) = edited else { return call };
    let arguments = Value::Object(edited).to_string();
    match call {
        Call::Tool { name, .. } => Call::Tool { name, arguments },
        Call::Primitive { pack, name, .. } => Call::Primitive { pack, name, arguments },
        call => call,
    }
}

impl Bridges for Confirmed {
    fn tools(&self) -> ToolsFuture {
        self.inner.tools()
    }

    fn packs(&self) -> Vec<PackSpec> {
        self.inner.packs()
    }

    fn has_tool(&self, name: &str) -> bool {
        self.inner.has_tool(name)
    }

    fn has_pack(&self, name: &str) -> bool {
        self.inner.has_pack(name)
    }

    fn connectors(&self) -> Vec<ConnectorSpec> {
        self.inner.connectors()
    }

    fn fetch_arguments(
        &self,
        name: &FetchName,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, CallError> {
        self.inner.fetch_arguments(name, arguments)
    }

    fn fetch(&self, name: &FetchName, arguments: Map<String, Value>, caller: Caller) -> FetchFuture {
        let text = Value::Object(arguments.clone()).to_string();
        let call = Call::Fetch { name: name.clone(), arguments: text, refresh: false };
        let Some(decided) = self.decided(&call, &caller) else { return self.inner.fetch(name, arguments, caller) };
        let (inner, name) = (self.inner.clone(), name.clone());
        Box::pin(async move {
            let arguments = match decided.await? {
                Some(edited) => inner.fetch_arguments(&name, edited)?,
                None => arguments,
            };
            inner.fetch(&name, arguments, caller).await
        })
    }

    fn confirms(&self, call: &Call) -> bool {
        self.rules.name(call)
    }

    fn grants(&self) -> BridgeGrants {
        self.inner.grants()
    }

    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        let Some(decided) = self.decided(&call, &caller) else { return self.inner.call(call, caller) };
        let inner = self.inner.clone();
        Box::pin(async move {
            let edited = decided.await?;
            inner.call(with(call, edited), caller).await
        })
    }
}
