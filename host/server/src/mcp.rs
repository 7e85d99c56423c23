//! The same sessions for clients of the Model Context Protocol. Nothing hangs on the protocol's own sessions, which newer
//! clients do not have: a session is an argument of each tool.

mod answers;
mod described;

use std::{sync::Arc, time::Duration};

use cellar_bridges::Doors;
use cellar_engine::{Host, Session};
use cellar_files::{FileKind, OpenHow, ROOT};
use cellar_hub::{Delivery, HubError, OnDisconnect, RunHandle, RunRequest};
use cellar_wire::{FileAction, MCP_TOOLS, McpCall, SessionRequest, mcp_call, mcp_schema};
use rmcp::{
    ErrorData, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, InitializeResult,
        JsonObject, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
        ResourceContents, ResourceTemplate, ServerCapabilities, Tool,
    },
    service::{RequestContext, RoleServer},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use serde_json::{Value, json};

use crate::{
    ServeError, ServerConfig,
    files::guest_path,
    problem::Problem,
    store_all,
    tenant::{Tenant, minted, on_a_thread},
};

/// How often a client hears of a run that goes on.
const PROGRESS: Duration = Duration::from_secs(5);
/// Characters of the last line that it hears.
const LINE_CHARACTERS: usize = 200;
/// Bytes of a file or an artifact that a tool or a resource gives: clients refuse messages of more than a mebibyte, and
/// text grows when it becomes JSON.
const READ_BYTES_MAX: u64 = 400 << 10;
/// Artifacts in a list.
const RESOURCES_MAX: usize = 200;

/// A server of the protocol, for one tenant or for whoever's token a request carries.
#[derive(Clone, Debug)]
pub(crate) struct Mcp {
    tenant: Option<Arc<Tenant>>,
}

/// The protocol over HTTP, without sessions of its own: the token of each request says whose it is.
pub(crate) type Service = StreamableHttpService<Mcp, NeverSessionManager>;

pub(crate) fn service() -> Service {
    // The token is checked before; a page in a browser has none, and is refused by its origin besides.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .disable_allowed_hosts()
        .enforce_origin_validation();
    StreamableHttpService::new(|| Ok(Mcp { tenant: None }), Arc::default(), config)
}

/// Serves the user who started this process on standard input and output, until the client has gone.
///
/// # Errors
/// The configuration is not valid, the engine, a store or a stream fails.
pub async fn serve_mcp(config: ServerConfig, doors: Arc<dyn Doors>) -> Result<(), ServeError> {
    let ServerConfig { host: host_config, mut tenants, progress, .. } = config;
    let Some(own) = tenants.pop() else { return Ok(()) };
    let host = Host::open(host_config.clone()).map_err(HubError::from)?;
    let tenant = Arc::new(Tenant::open(own, host, host_config, doors, progress)?);
    let served = Mcp { tenant: Some(tenant.clone()) }.serve(rmcp::transport::stdio()).await;
    // A client that goes away before it has said anything is no failure of ours.
    match served {
        Ok(running) => drop(running.waiting().await),
        Err(error) => tracing::debug!(%error, "the client went away"),
    }
    store_all([&tenant].into_iter()).await;
    Ok(())
}

/// A tool's answer, or what the model is told in its place.
type Told = Result<CallToolResult, Problem>;

impl Mcp {
    /// Whose request this is: the front of the server has checked its token.
    fn tenant(&self, context: &RequestContext<RoleServer>) -> Result<Arc<Tenant>, ErrorData> {
        let of_request = || {
            let parts = context.extensions.get::<http::request::Parts>()?;
            parts.extensions.get::<Arc<Tenant>>().cloned()
        };
        let tenant = self.tenant.clone().or_else(of_request);
        tenant.ok_or_else(|| ErrorData::invalid_request("a token is needed", None))
    }
}

impl ServerHandler for Mcp {
    fn get_info(&self) -> InitializeResult {
        let mut info = InitializeResult::new(ServerCapabilities::builder().enable_tools().enable_resources().build());
        info.server_info = Implementation::new("cellar", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tenant = self.tenant(&context)?;
        let mut tools = Vec::new();
        for name in MCP_TOOLS {
            let schema: JsonObject = mcp_schema(name).as_object().cloned().unwrap_or_default();
            let description = match name {
                "eval" => described::eval(&tenant).await,
                other => described::other(other).to_owned(),
            };
            tools.push(Tool::new(name, description, Arc::new(schema)));
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tenant = self.tenant(&context)?;
        let arguments = Value::Object(request.arguments.unwrap_or_default()).to_string();
        let call = mcp_call(&request.name, arguments.as_bytes());
        let call = call.ok_or_else(|| ErrorData::invalid_params(format!("no tool `{}`", request.name), None))?;
        let told = match call {
            Ok(McpCall::Eval { session, cells }) => eval(&tenant, session, cells, &context).await,
            Ok(call) => other(&tenant, call).await,
            Err(invalid) => Err(invalid.into()),
        };
        // A model can mend what it is told of; an error of the protocol it does not see.
        let told = told.unwrap_or_else(|problem| CallToolResult::error(vec![ContentBlock::text(problem.words())]));
        Ok(told.into())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let store = self.tenant(&context)?.artifacts.clone();
        let list = on_a_thread(move || store.list()).await.map_err(internal)?;
        let list = list.map_err(|error| internal(error.into()))?;
        let resource = |artifact: &cellar_engine::artifacts::Artifact| {
            let name = artifact.title.clone().unwrap_or_else(|| artifact.id.clone());
            let mut resource = Resource::new(artifact.uri(), name);
            resource.mime_type = Some(artifact.mime_type.clone());
            resource.size = Some(artifact.size_bytes);
            resource
        };
        Ok(ListResourcesResult::with_all_items(list.iter().take(RESOURCES_MAX).map(resource).collect()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new("artifact://{id}", "artifact")
            .with_description("An output that a result does not show whole, by the id that it has there");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let tenant = self.tenant(&context)?;
        let unknown = || ErrorData::resource_not_found(format!("there is no `{}`", request.uri), None);
        let id = request.uri.strip_prefix(cellar_engine::artifacts::ARTIFACT_SCHEME).ok_or_else(unknown)?.to_owned();
        let store = tenant.artifacts.clone();
        let read = on_a_thread(move || {
            let artifact = store.get(&id)?;
            let file = store.read(&artifact.id)?;
            Ok::<_, cellar_engine::artifacts::ArtifactError>((artifact, file))
        });
        let (artifact, file) = read.await.map_err(internal)?.map_err(|_| unknown())?;
        let mime_type = artifact.mime_type.clone();
        let bytes = on_a_thread(move || {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut std::io::Read::take(file, READ_BYTES_MAX), &mut bytes).map(|_| bytes)
        });
        let bytes =
            bytes.await.map_err(internal)?.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let contents = match String::from_utf8(bytes) {
            Ok(text) => ResourceContents::text(text, request.uri.clone()),
            Err(error) => ResourceContents::blob(answers::base64(error.as_bytes()), request.uri.clone()),
        };
        Ok(ReadResourceResult::new(vec![contents.with_mime_type(mime_type)]).into())
    }
}

fn internal(problem: Problem) -> ErrorData {
    ErrorData::internal_error(problem.words(), None)
}

/// Runs cells, and tells of progress until they have ended. What a client cancels is stopped, and what was printed is kept.
async fn eval(
    tenant: &Tenant,
    session: Option<String>,
    cells: Vec<cellar_engine::Cell>,
    context: &RequestContext<RoleServer>,
) -> Told {
    let is_new = session.is_none();
    let session = match session {
        Some(session) => session,
        None => tenant.create(SessionRequest::default()).await?,
    };
    tenant.session(&session).await?;
    let request = RunRequest {
        id: minted("run"),
        cells,
        keep_going: false,
        is_owned: true,
        on_disconnect: OnDisconnect::Cancel(Duration::ZERO),
    };
    let run = tenant.hub.start(&session, request)?;
    follow(&run, context).await;
    let result = run.result().await?;
    answers::of_run(tenant, &session, is_new, &result).await
}

/// Reads a run to its end.
async fn follow(run: &RunHandle, context: &RequestContext<RoleServer>) {
    let token = context.meta.get_progress_token();
    let mut reader = run.own(0);
    let (mut line, mut count, mut is_cancelled) = (String::new(), 0.0, false);
    let mut tick = tokio::time::interval(PROGRESS);
    tick.tick().await;
    loop {
        tokio::select! {
            delivery = reader.next() => match delivery {
                Some(Delivery::Event(event)) => note(&event.kind, &mut line),
                Some(_) => {}
                None => return,
            },
            () = context.ct.cancelled(), if !is_cancelled => {
                is_cancelled = true;
                run.cancel();
            }
            _ = tick.tick() => if let Some(token) = &token {
                count += 1.0;
                let message = if line.is_empty() { "running".to_owned() } else { line.clone() };
                let told = ProgressNotificationParam::new(token.clone(), count).with_message(message);
                let _ = context.peer.notify_progress(told).await;
            }
        }
    }
}

/// Notes the last line that was printed.
fn note(kind: &cellar_engine::EventKind, line: &mut String) {
    let (cellar_engine::EventKind::Stdout { text, .. } | cellar_engine::EventKind::Stderr { text, .. }) = kind else {
        return;
    };
    if let Some(last) = text.lines().rev().find(|line| !line.trim().is_empty()) {
        *line = last.chars().take(LINE_CHARACTERS).collect();
    }
}

/// Carries out what is no run.
async fn other(tenant: &Tenant, call: McpCall) -> Told {
    let said = match call {
        McpCall::Eval { .. } => return Err(Problem::unknown("tool")),
        McpCall::Reset { session, languages } => {
            let entry = tenant.session(&session).await?;
            languages.into_iter().for_each(|language| entry.session.reset(language));
            entry.session.save().await?;
            "its kernels are fresh; its files are as they were".to_owned()
        }
        McpCall::Snapshot { session } => {
            let id = tenant.take_snapshot(&session).await?.snapshot;
            format!("snapshot {id}; `fork` makes a session of it")
        }
        McpCall::Fork { session: Some(session), .. } => format!("session {}", tenant.fork(&session, None).await?),
        McpCall::Fork { session: None, snapshot } => {
            let name = tenant.create(SessionRequest { snapshot, ..SessionRequest::default() }).await?;
            format!("session {name}")
        }
        McpCall::Files { session, path, action } => {
            let session = tenant.session(&session).await?.session;
            let names: Vec<&str> = path.split('/').filter(|_| !path.is_empty()).collect();
            let path = guest_path(&names)?;
            return on_a_thread(move || files(&session, &path, action)).await?;
        }
    };
    Ok(CallToolResult::success(vec![ContentBlock::text(said)]))
}

/// Does something with a file. Blocks.
fn files(session: &Session, path: &str, action: FileAction) -> Told {
    let mut files = session.files();
    let text = |text: String| CallToolResult::success(vec![ContentBlock::text(text)]);
    match action {
        FileAction::List => {
            let how = OpenHow { directory: true, read: true, follow_symlinks: true, ..OpenHow::default() };
            let folder = files.open(ROOT, path, how)?;
            let entries = crate::files::entries(&mut files, folder)?;
            Ok(text(json!(entries).to_string()))
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
            crate::files::replace(&mut files, path, new.as_bytes())?;
            Ok(text(format!("{} bytes were written", new.len())))
        }
        FileAction::Remove => {
            match files.stat_at(ROOT, path, false)?.kind {
                FileKind::Directory => files.remove_directory(ROOT, path)?,
                _ => files.remove_file(ROOT, path)?,
            }
            Ok(text("it was removed".to_owned()))
        }
    }
}
