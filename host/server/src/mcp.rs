//! The same sessions for clients of the Model Context Protocol. A session is an argument of each tool, and that of the
//! connection where it is left out.

mod answers;
mod connection;
mod described;
mod endpoint;
mod models;
mod resources;
mod runs;
mod shell;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum_core::body::Body;
use cellar_bridges::Doors;
use cellar_core::budget::Budget;
use cellar_engine::{Cell, Host, Session, config::RunOptions};
use cellar_files::{FileKind, OpenHow, ROOT};
use cellar_hub::{HubError, OnDisconnect, RunRequest};
use cellar_wire::{FileAction, MCP_TOOLS, McpCall, SessionRequest, mcp_call, mcp_output_schema, mcp_schema};
use rmcp::{
    ErrorData, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, InitializeResult,
        JsonObject, ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
        ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
        Tool,
    },
    service::{RequestContext, RoleServer},
};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore};

use endpoint::Endpoint;
pub(crate) use models::Offers;

use crate::{
    configuration::{ServeError, ServerConfig},
    http::{
        Call, check_values,
        files::{self, guest_path},
        is_read,
    },
    problem::{Answer, Problem},
    tenant::{Extensions, Ground, Stray, Tenant, fingerprint, keep_times, minted, on_a_thread, store_all},
};
use connection::Used;
use runs::{Asking, Came, Following, Waiting};

/// Bytes that are read for the user of standard input and output and not yet handed on.
const BUFFERED_BYTES_MAX: usize = 1 << 30;
/// Bytes of a file or an artifact that a tool or a resource gives: clients refuse messages of more than a mebibyte, and
/// text grows when it becomes JSON.
const READ_BYTES_MAX: u64 = 400 << 10;

/// The interface at `/mcp`: an endpoint for each tenant.
#[derive(Default)]
pub(crate) struct Interface {
    by_tenant: BTreeMap<String, Endpoint>,
}

impl Interface {
    /// Adds a tenant, with the models that clients offer to its cells.
    pub(crate) fn add(&mut self, tenant: &Arc<Tenant>, offers: Offers) {
        self.by_tenant.insert(tenant.name.clone(), Endpoint::new(Mcp::new(tenant.clone(), offers)));
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, mut call: Call) -> Answer {
        if !is_read(&call.parts.method) {
            call.state.lifecycle.admit()?;
        }
        let body = call.body().await?;
        check_values(&body)?;
        let endpoint = self.by_tenant.get(&call.tenant.name).ok_or_else(|| Problem::unknown("resource"))?;
        Ok(endpoint.answer(call.parts, body.bytes.clone(), call.grant).await.map(Body::new))
    }
}

/// A server of the protocol, for one tenant. A cheap handle: each connection has one.
#[derive(Clone, Debug)]
struct Mcp {
    tenant: Arc<Tenant>,
    /// Name of the session of the only connection, where there is but one.
    own: Option<Arc<str>>,
    waiting: Arc<Waiting>,
    /// Models that clients offer.
    offers: Offers,
    /// Description of `eval`, made when it is first asked for.
    described: Arc<OnceCell<String>>,
}

/// Serves the user who started this process on standard input and output, until the client has gone.
///
/// # Errors
/// The configuration is not valid, the engine, a store or a stream fails.
pub async fn serve_mcp(config: ServerConfig, doors: Arc<dyn Doors>) -> Result<(), ServeError> {
    let ServerConfig { host: host_config, mut tenants, progress, .. } = config;
    let Some(own) = tenants.pop() else { return Ok(()) };
    let host = Host::open(host_config.clone()).map_err(HubError::from)?;
    let offers = Offers::default();
    let (buffers, snapshots) = (Budget::new(BUFFERED_BYTES_MAX), Arc::new(Semaphore::new(1)));
    let ground = Ground { host, config: host_config, doors, afar: None, progress, buffers, snapshots };
    let tenant = Arc::new(Tenant::open(own, ground, Extensions::of_sampler(offers.clone()))?);
    let own: Arc<str> = minted("ses").into();
    let mcp = Mcp { own: Some(own.clone()), ..Mcp::new(tenant.clone(), offers) };
    let tenants = [tenant];
    let served = async {
        match mcp.serve(rmcp::transport::stdio()).await {
            Ok(running) => drop(running.waiting().await),
            // A client that goes away before it has said anything is no failure of ours.
            Err(error) => tracing::debug!(%error, "the client went away"),
        }
    };
    tokio::select! {
        () = served => {}
        () = keep_times(tenants.to_vec()) => {}
    }
    for tenant in &tenants {
        tenant.end_connection(&own).await;
    }
    store_all(&tenants).await;
    Ok(())
}

/// Result of a tool, or the refusal that the model receives in its place.
type Told = Result<CallToolResult, Problem>;

impl Mcp {
    fn new(tenant: Arc<Tenant>, offers: Offers) -> Mcp {
        Mcp { tenant, own: None, waiting: Arc::default(), offers, described: Arc::default() }
    }

    /// Follows a run to its end, or to where its client is asked.
    async fn follow(
        &self,
        mut following: Following,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, Problem> {
        while following.go_on(context).await == Came::ToAQuestion {
            following = match self.waiting.keep(following) {
                Ok(required) => return Ok(required.into()),
                Err(mut following) => {
                    following.refuse();
                    following
                }
            };
        }
        let Following { run, is_new, .. } = following;
        let result = run.result().await?;
        Ok(answers::of_run(&self.tenant, run.session_name(), is_new, &result).await?.into())
    }

    /// Begins to run cells.
    async fn begin(
        &self,
        session: Option<String>,
        cells: Vec<Cell>,
        what: u64,
        context: &RequestContext<RoleServer>,
    ) -> Result<Following, Problem> {
        let tenant = &self.tenant;
        let Used { name: session, is_new, .. } = self.session(session, context).await?;
        let request = RunRequest {
            id: minted("run"),
            cells,
            keep_going: false,
            options: RunOptions::default(),
            is_owned: true,
            on_disconnect: OnDisconnect::Cancel(Duration::ZERO),
        };
        let offer = Asking::of(context).has_model.then(|| self.offers.offer(&session));
        Ok(Following::new(tenant.hub.start(&session, request)?, is_new, what, offer))
    }
}

impl ServerHandler for Mcp {
    fn get_info(&self) -> InitializeResult {
        let mut info = InitializeResult::new(ServerCapabilities::builder().enable_tools().enable_resources().build());
        info.server_info = Implementation::new("cellar", env!("CARGO_PKG_VERSION")).with_title("Cellar");
        info.instructions = Some(described::instructions().to_owned());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut tools = Vec::new();
        let languages = self.tenant.hub.languages();
        for name in MCP_TOOLS.into_iter().filter(|name| *name != "shell" || self.has_shell()) {
            let schema: JsonObject = mcp_schema(name, &languages).as_object().cloned().unwrap_or_default();
            let description = match name {
                "eval" => described::eval(self, Asking::of(&context).has_model).await,
                other => described::other(other).to_owned(),
            };
            let output: JsonObject = mcp_output_schema(name).as_object().cloned().unwrap_or_default();
            let tool = Tool::new(name, description, Arc::new(schema))
                .with_title(described::title(name))
                .with_annotations(described::annotations(name, self.reaches_out()))
                .with_raw_output_schema(Arc::new(output));
            tools.push(tool);
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default()).to_string();
        let call = mcp_call(&request.name, arguments.as_bytes());
        let call = call.ok_or_else(|| ErrorData::invalid_params(format!("no tool `{}`", request.name), None))?;
        let told = match call {
            Ok(McpCall::Eval { session, cells }) => {
                let what = fingerprint(&arguments);
                let begun = match request.request_state {
                    Some(name) => {
                        let answers = request.input_responses.unwrap_or_default();
                        Ok(self.waiting.take(&name, what, &answers).ok_or_else(gone)?)
                    }
                    None => self.begin(session, cells, what, &context).await,
                };
                match begun {
                    Ok(following) => self.follow(following, &context).await,
                    Err(problem) => Err(problem),
                }
            }
            Ok(McpCall::Shell { session, command, timeout, stdin }) => {
                self.shell(session, &command, timeout, stdin, &context).await.map(CallToolResponse::from)
            }
            Ok(call) => self.carry_out(call, &context).await.map(CallToolResponse::from),
            Err(invalid) => Err(invalid.into()),
        };
        // A model can mend what it is told of; an error of the protocol it does not see.
        Ok(told.unwrap_or_else(|problem| CallToolResult::error(vec![ContentBlock::text(problem.words())]).into()))
    }

    /// There are none, and clients are told of none.
    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(&self.tenant).await?))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(resources::read(&self.tenant, request.uri).await?.into())
    }
}

/// Error for an answer to a run that does not wait for it. Models have no part in that.
fn gone() -> ErrorData {
    let detail = "the run that this answers has ended, or has waited for too long; run the cells again";
    ErrorData::invalid_params(detail, None)
}

impl Mcp {
    /// True if cells reach more than this machine: hosts, models, agents, connectors or tools are granted.
    fn reaches_out(&self) -> bool {
        let granted = &self.tenant.hub.file().bridges;
        !(granted.http.allow.is_empty()
            && granted.llm.is_none()
            && granted.agents.is_empty()
            && granted.tools.is_empty()
            && granted.mcp.is_empty()
            && granted.connectors.is_empty())
    }

    /// Carries out a call that runs nothing.
    async fn carry_out(&self, call: McpCall, context: &RequestContext<RoleServer>) -> Told {
        let tenant = &self.tenant;
        let (said, structured) = match call {
            McpCall::Eval { .. } | McpCall::Shell { .. } => return Err(Problem::unknown("tool")),
            McpCall::Reset { session, languages } => {
                let Used { name, entry, .. } = self.known_session(session, context).await?;
                entry.reset(languages).await;
                entry.session.save().await?;
                ("its kernels are fresh; its files are as they were".to_owned(), json!({"session": name}))
            }
            McpCall::Snapshot { session } => {
                let name = self.known_session(session, context).await?.name;
                let id = tenant.take_snapshot(&name).await?.snapshot;
                let said = format!("snapshot {id}; `fork` makes a session of it");
                (said, json!({"session": name, "snapshot": id}))
            }
            McpCall::Fork { session, snapshot: None } => {
                let from = self.known_session(session, context).await?.name;
                forked(tenant.fork(&from, None).await?)
            }
            McpCall::Fork { snapshot, .. } => {
                let name = tenant.create(SessionRequest { input: true, snapshot, ..SessionRequest::default() }).await?;
                tenant.make_stray(&name, Stray::Named)?;
                forked(name)
            }
            McpCall::Files { session, path, action } => {
                let Used { name, entry, .. } = self.session(session, context).await?;
                let names: Vec<&str> = path.split('/').filter(|_| !path.is_empty()).collect();
                let path = guest_path(&names)?;
                let mut told = on_a_thread(move || with_file(&entry.session, &path, action)).await??;
                if let Some(Value::Object(members)) = &mut told.structured_content {
                    members.insert("session".to_owned(), name.into());
                }
                return Ok(told);
            }
        };
        Ok(answers::with_structure(said, structured))
    }
}

/// Words and structure of the answer to a fork.
fn forked(name: String) -> (String, Value) {
    (format!("session {name}"), json!({"session": name}))
}

/// Does something with a file. Blocks.
fn with_file(session: &Session, path: &str, action: FileAction) -> Told {
    let mut files = session.files();
    match action {
        FileAction::List => {
            let how = OpenHow { directory: true, read: true, follow_symlinks: true, ..OpenHow::default() };
            let folder = files.open(ROOT, path, how)?;
            let entries = files::entries(&mut files, folder)?;
            let list = json!(entries).to_string();
            let shown = answers::cut_text(&list);
            let left_out = list.len().saturating_sub(shown.len());
            let more = if left_out > 0 { format!("\n\n({left_out} more bytes were left out)") } else { String::new() };
            let structured = match left_out {
                0 => json!({"entries": entries}),
                // Names are what a reader goes on with.
                _ => json!({"entries": [], "text": shown}),
            };
            Ok(answers::with_structure(shown + &more, structured))
        }
        FileAction::Read => {
            let how = OpenHow { read: true, follow_symlinks: true, ..OpenHow::default() };
            let file = files.open(ROOT, path, how)?;
            let stat = files.stat(file)?;
            let mut bytes = Vec::new();
            loop {
                let piece = files.read(file, bytes.len() as u64, 1 << 18)?;
                if piece.is_empty() || bytes.len() as u64 >= READ_BYTES_MAX {
                    break;
                }
                bytes.extend_from_slice(&piece);
            }
            answers::of_file(bytes, stat.size)
        }
        FileAction::Write(new) => {
            files::replace(&mut files, path, new.as_bytes())?;
            Ok(answers::with_structure(format!("{} bytes were written", new.len()), json!({"sizeBytes": new.len()})))
        }
        FileAction::Remove => {
            match files.stat_at(ROOT, path, false)?.kind {
                FileKind::Directory => files.remove_directory(ROOT, path)?,
                _ => files.remove_file(ROOT, path)?,
            }
            Ok(answers::with_structure("it was removed".to_owned(), json!({})))
        }
    }
}
