//! One connection to a server: a process of its own, or an HTTP session.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use cellar_engine::bridges::ToolSpec;
use cellar_secrets::clip;
use rmcp::{
    ClientHandler, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientConfig, Implementation, JsonObject,
        PaginatedRequestParams, Tool,
    },
    service::{ClientInitializeError, NotificationContext, RoleClient, RunningService, serve_client},
    transport::{DynamicTransportError, streamable_http_client::StreamableHttpError},
};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{Server, transport::http};
use crate::{
    command::{self, ERROR_BYTES_MAX, last_lines},
    options::{McpServer, McpTransport},
    tools::{Granted, Tools, who},
};

/// Tools of one server.
const TOOLS_MAX: usize = 1_000;
/// Bytes that one tool's description and schema may have.
const TOOL_BYTES_MAX: usize = 256 << 10;
/// Grace period of a process to exit once its streams are closed, before it is killed.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_millis(200);

/// A connection to one MCP server. Dropping it ends the server's process.
pub(super) struct Connection {
    service: RunningService<RoleClient, Watcher>,
    process: Option<Process>,
    opened: Instant,
    /// Tools that the server listed last.
    tools: Mutex<Option<Arc<Tools>>>,
}

/// The server's process; its group is killed when this is dropped.
struct Process {
    child: Mutex<cellar_worker::Process>,
    errors: Arc<Mutex<Vec<u8>>>,
}

/// Handler of the server's notifications.
struct Watcher {
    /// The list of tools is out of date.
    is_stale: Arc<AtomicBool>,
}

impl ClientHandler for Watcher {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.client_info = Implementation::new("cellar", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.is_stale.store(true, Ordering::Relaxed);
    }
}

impl Connection {
    /// Starts the server, or connects to it, and performs the handshake.
    ///
    /// # Errors
    /// A message without any credential.
    pub(super) async fn open(options: &McpServer) -> Result<Connection, String> {
        let watcher = Watcher { is_stale: Arc::default() };
        let (service, process) = match &options.transport {
            McpTransport::Command(command) => {
                let started = command::start(command, &[]).await;
                let mut child = started.map_err(|error| format!("cannot be started: {error}"))?;
                let errors = Arc::default();
                if let Some(stderr) = child.stderr.take() {
                    tokio::spawn(keep_tail(stderr, Arc::clone(&errors)));
                }
                let streams = child.stdout.take().zip(child.stdin.take()).ok_or("has no streams")?;
                let process = Process { child: Mutex::new(child), errors };
                match serve_client(watcher, streams).await {
                    Ok(service) => (service, Some(process)),
                    Err(error) => {
                        // What the process says when it ends is worth more than that its stream has closed.
                        tokio::time::sleep(LAST_WORDS_TIMEOUT).await;
                        return Err(format!("{}{}", at_the_start(&error), process.last_words()));
                    }
                }
            }
            McpTransport::Http { url, headers } => {
                let transport = http(url, headers)?;
                let service = serve_client(watcher, transport).await;
                (service.map_err(|error| format!("cannot be reached: {}", at_the_start(&error)))?, None)
            }
        };
        Ok(Connection { service, process, opened: Instant::now(), tools: Mutex::default() })
    }

    /// Returns true if the connection no longer takes requests.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Returns the time since the connection was opened.
    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Returns the reason why the connection is closed.
    pub(super) fn last_words(&self) -> String {
        let process = self.process.as_ref().map(Process::last_words).unwrap_or_default();
        format!("the server closed the connection{process}")
    }

    /// Returns the server's tools, which are listed again after the server announced a change.
    ///
    /// # Errors
    /// A message in words.
    pub(super) async fn tools(&self, server: &Arc<Server>) -> Result<Arc<Tools>, String> {
        let is_stale = self.service.service().is_stale.swap(false, Ordering::Relaxed);
        let known = || self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(tools) = known().filter(|_| !is_stale) {
            return Ok(tools);
        }
        let listed = tokio::time::timeout(server.options.timeout, self.list()).await;
        let listed = listed.unwrap_or_else(|_| Err("did not list its tools in time".to_owned()));
        if listed.is_err() {
            self.service.service().is_stale.store(true, Ordering::Relaxed);
        }
        let tools = Arc::new(granted(server, listed?));
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = Some(tools.clone());
        Ok(tools)
    }

    /// All pages of the list.
    async fn list(&self) -> Result<Vec<Tool>, String> {
        if self.service.peer_info().is_some_and(|info| info.capabilities.tools.is_none()) {
            return Ok(Vec::new());
        }
        let (mut tools, mut cursor) = (Vec::new(), None);
        loop {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.peer().list_tools(Some(page)).await.map_err(|error| self.words(&error))?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if tools.len() > TOOLS_MAX {
                return Err(format!("lists more than {TOOLS_MAX} tools"));
            }
            if cursor.is_none() {
                return Ok(tools);
            }
        }
    }

    /// Calls a tool.
    ///
    /// # Errors
    /// A message in words.
    ///
    /// # Cancel safety
    /// Dropping the future tells the server that the request is cancelled.
    pub(super) async fn call(&self, tool: String, arguments: &str) -> Result<CallToolResult, String> {
        let arguments: JsonObject = serde_json::from_str(arguments).map_err(|error| error.to_string())?;
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        match self.service.peer().call_tool_once(request).await {
            Ok(CallToolResponse::Complete(result)) => Ok(result),
            Ok(_) => Err("asks for more than a result, which this client cannot give".to_owned()),
            Err(error) => Err(self.words(&error)),
        }
    }

    fn words(&self, error: &ServiceError) -> String {
        match error {
            ServiceError::McpError(error) => clip(&error.message),
            _ if self.is_closed() => self.last_words(),
            ServiceError::TransportSend(error) => on_the_way(error),
            error => clip(&error.to_string()),
        }
    }
}

impl Process {
    /// Returns the exit status, if the process has ended, and its last lines on standard error.
    fn last_words(&self) -> String {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let ending =
            child.ended().map(|status| format!("; its process {}", command::ending(status))).unwrap_or_default();
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        format!("{ending}{}", last_lines(&errors))
    }
}

/// Describes why the handshake with a server failed.
fn at_the_start(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => on_the_way(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => at_the_start(fallback),
        error => clip(&error.to_string()),
    }
}

/// Describes a transport error without the names of the SDK's types.
fn on_the_way(error: &DynamicTransportError) -> String {
    // The outer ones say that there was an error, and the URL, which may hold a credential.
    let mut innermost: &dyn std::error::Error = match error.error.downcast_ref() {
        Some(StreamableHttpError::<reqwest::Error>::Client(error)) => error,
        _ => error.error.as_ref(),
    };
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    clip(&innermost.to_string())
}

async fn keep_tail(mut stderr: impl AsyncRead + Unpin, tail: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&chunk[..count]);
        let excess = tail.len().saturating_sub(ERROR_BYTES_MAX);
        tail.drain(..excess);
    }
}

/// Returns the tools for cells: those that are allowed, with their prefix.
fn granted(server: &Arc<Server>, listed: Vec<Tool>) -> Tools {
    let options = &server.options;
    let mut tools = Tools::new();
    for tool in listed {
        let bare = tool.name.into_owned();
        let name = format!("{}{bare}", options.prefix);
        if !server.may_have(&name) {
            continue;
        }
        let schema = serde_json::Value::Object(tool.input_schema.as_ref().clone()).to_string();
        let description = tool.description.or(tool.title.map(Into::into)).unwrap_or_default().into_owned();
        if [name.len(), description.len(), schema.len()].into_iter().fold(0, usize::saturating_add) > TOOL_BYTES_MAX {
            tracing::warn!(
                server = server.name,
                tool = clip(&name),
                "a tool with an over-long description is left out"
            );
            continue;
        }
        // The server's tools hold it weakly: it lives as long as the bridges that were granted it.
        let weak = Arc::downgrade(server);
        let called = name.clone();
        let handler = move |arguments, _| -> cellar_engine::bridges::CallFuture {
            let (server, name, bare) = (weak.upgrade(), called.clone(), bare.clone());
            Box::pin(async move {
                match server {
                    Some(server) => server.call(name, bare, arguments).await,
                    None => Err(super::gone(&name)),
                }
            })
        };
        let who = who(&name);
        tools.add(Granted::of_stranger(who, ToolSpec { name, description, schema: Some(schema) }, Box::new(handler)));
    }
    tools
}
