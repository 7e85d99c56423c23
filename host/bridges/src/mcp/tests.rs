//! Against a server made with the SDK's other half, which is this very test program: see [`served`].

use std::{path::PathBuf, time::Duration};

use rmcp::{
    ErrorData, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::{RequestContext, RoleServer},
};
use serde_json::{Value, json};

use super::*;
use crate::{Command, HeaderTemplate, McpTransport};

mod http;

/// Set in the environment of the server: a folder in which it leaves notes.
const NOTES: &str = "CELLAR_TEST_MCP_NOTES";

#[derive(Clone)]
struct Example {
    notes: PathBuf,
}

fn schema(of: Value) -> Arc<JsonObject> {
    Arc::new(of.as_object().expect("an object").clone())
}

impl Example {
    fn tools(&self) -> Vec<Tool> {
        let number = json!({"type": "number"});
        let add = json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"], "additionalProperties": false});
        let free = schema(json!({"type": "object"}));
        let mut tools = vec![Tool::new("add", "adds", schema(add))];
        let names =
            ["text", "json", "image", "mixed", "nothing", "fail", "wait", "die", "grow", "secrets", "flood", "leak"];
        tools.extend(names.map(|name| Tool::new(name, "", free.clone())));
        if self.notes.join("grown").exists() {
            tools.push(Tool::new("grown", "", free));
        }
        tools
    }
}

impl ServerHandler for Example {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        info
    }

    /// Two pages.
    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let is_second = request.and_then(|request| request.cursor).is_some();
        let mut tools = self.tools();
        let rest = tools.split_off(2);
        let mut page = ListToolsResult::with_all_items(if is_second { rest } else { tools });
        page.next_cursor = (!is_second).then(|| "2".to_owned());
        Ok(page)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let text = |text: &str| CallToolResult::success(vec![ContentBlock::text(text)]);
        let result = match request.name.as_ref() {
            "add" => {
                let number = |name: &str| arguments.get(name).and_then(Value::as_f64).unwrap_or_default();
                CallToolResult::structured(json!({"sum": number("a") + number("b")}))
            }
            "text" => text("just words"),
            "json" => text(r#"[1, {"a": null}]"#),
            "image" => CallToolResult::success(vec![ContentBlock::image("aGk=", "image/png")]),
            "mixed" => CallToolResult::success(vec![
                ContentBlock::text("a"),
                ContentBlock::image("aGk=", "image/png"),
                ContentBlock::text("1"),
            ]),
            "nothing" => CallToolResult::success(Vec::new()),
            "fail" => CallToolResult::error(vec![ContentBlock::text("on purpose")]),
            "wait" => {
                std::fs::write(self.notes.join("waiting"), "").expect("a note");
                context.ct.cancelled().await;
                std::fs::write(self.notes.join("cancelled"), "").expect("a note");
                text("too late")
            }
            "die" => {
                eprintln!("a last word");
                std::process::exit(3);
            }
            "grow" => {
                std::fs::write(self.notes.join("grown"), "").expect("a note");
                context.peer.notify_tool_list_changed().await.expect("told");
                text("grown")
            }
            "secrets" => {
                let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                CallToolResult::structured(json!(names))
            }
            "flood" => text(&"x".repeat(40 << 20)),
            // As a server would that repeats the headers of requests.
            "leak" => {
                let secret = format!("it is {}", env!("CARGO_MANIFEST_DIR"));
                let is_failure = arguments.contains_key("fail");
                if is_failure { CallToolResult::error(vec![ContentBlock::text(secret)]) } else { text(&secret) }
            }
            name => return Err(ErrorData::invalid_params(format!("no {name} here"), None)),
        };
        Ok(CallToolResponse::Complete(result))
    }
}

/// Not a test but the server, when it is started as one: on standard input and descriptor 3, because the harness prints
/// on standard output.
#[tokio::test(flavor = "multi_thread")]
async fn served() {
    let Some(notes) = std::env::var_os(NOTES) else { return };
    let answers = tokio::fs::OpenOptions::new().write(true).open("/dev/fd/3").await.expect("descriptor 3");
    let service = Example { notes: notes.into() }.serve((tokio::io::stdin(), answers)).await.expect("shakes hands");
    let _ = service.waiting().await;
}

/// A folder for the notes of a server.
fn notes() -> PathBuf {
    let notes = std::env::temp_dir().join(format!("cellar-mcp-{:016x}", unique()));
    std::fs::create_dir_all(&notes).expect("a folder");
    notes
}

/// A server, and the folder of its notes.
fn server(mut options: McpServer) -> (Arc<Server>, PathBuf) {
    let notes = notes();
    if let McpTransport::Command(command) = &mut options.transport {
        command.environment = vec![(NOTES.to_owned(), notes.to_string_lossy().into_owned())];
    }
    (Server::new("example".to_owned(), options), notes)
}

fn unique() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    (COUNT.fetch_add(1, Ordering::Relaxed) << 8) ^ ((std::process::id() as usize) << 24)
}

fn options() -> McpServer {
    let program = std::env::current_exe().expect("this program").to_string_lossy().into_owned();
    let script = "exec \"$0\" --exact mcp::tests::served --nocapture 3>&1 >/dev/null";
    let command = Command {
        argv: ["/bin/sh", "-c", script, &program].map(str::to_owned).to_vec(),
        folder: PathBuf::from("/"),
        environment: Vec::new(),
        inherit: Vec::new(),
        timeout: Duration::from_secs(30),
    };
    McpServer {
        transport: McpTransport::Command(command),
        timeout: Duration::from_secs(30),
        tools: None,
        prefix: String::new(),
        confirm: None,
    }
}

async fn call(server: &Arc<Server>, name: &str, arguments: Value) -> Result<Value, String> {
    let tools = server.tools().await.map_err(|error| error.message)?;
    let tool = tools.get(name).ok_or_else(|| format!("no {name}"))?;
    match crate::clean::clean(tool.call(arguments.to_string(), cellar_engine::CellId(1)).await) {
        Ok(Response::Json(text)) => Ok(serde_json::from_str(&text).expect("JSON")),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.message),
    }
}

async fn until(exists: PathBuf) {
    while !exists.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn results_become_plain_values() {
    let (server, _) = server(options());
    assert_eq!(call(&server, "add", json!({"a": 1, "b": 2.5})).await, Ok(json!({"sum": 3.5})));
    let image = json!({"mimeType": "image/png", "data": "aGk="});
    for (name, expected) in [
        ("text", json!("just words")),
        ("json", json!([1, {"a": null}])),
        ("image", image.clone()),
        ("mixed", json!(["a", image, "1"])),
        ("nothing", json!(null)),
    ] {
        assert_eq!(call(&server, name, json!({})).await, Ok(expected), "{name}");
    }
    assert_eq!(call(&server, "fail", json!({})).await, Err("tool `fail` failed: on purpose".to_owned()));
}

#[tokio::test]
async fn arguments_are_checked_before_the_server_hears_of_them() {
    let (server, _) = server(options());
    let refused = call(&server, "add", json!({"a": "x", "c": 1})).await.expect_err("refused");
    assert!(refused.starts_with("tool `add`: the arguments do not fit its schema: "), "{refused}");
    for fault in [
        "`/a`: expected number, found \"x\"",
        "`/b`: expected a value, found nothing",
        "`/c`: unknown field, known are `a` and `b`",
    ] {
        assert!(refused.contains(fault), "{refused}");
    }
}

#[tokio::test]
async fn a_list_of_tools_and_a_prefix_say_what_cells_may_call() {
    let tools = Some(vec!["add".to_owned(), "text".to_owned(), "absent".to_owned()]);
    let (server, _) = server(McpServer { tools, prefix: "ex_".to_owned(), ..options() });
    let listed = server.tools().await.expect("listed");
    assert_eq!(listed.names().collect::<Vec<_>>(), ["ex_add", "ex_text"]);
    assert!(server.may_have("ex_add") && !server.may_have("add") && !server.may_have("ex_die"));
    assert_eq!(call(&server, "ex_text", json!({})).await, Ok(json!("just words")));
}

#[tokio::test]
async fn a_changed_list_is_asked_for_again() {
    let (server, _) = server(options());
    assert_eq!(call(&server, "grown", json!({})).await, Err("no grown".to_owned()));
    assert_eq!(call(&server, "grow", json!({})).await, Ok(json!("grown")));
    while call(&server, "grown", json!({})).await == Err("no grown".to_owned()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = call(&server, "grown", json!({})).await.expect_err("not there after all");
    assert_eq!(error, "MCP server `example`: tool `grown`: no grown here");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    let (server, notes) = server(options());
    let waiting = until(notes.join("waiting"));
    tokio::select! {
        result = call(&server, "wait", json!({})) => panic!("{result:?}"),
        () = waiting => {}
    }
    until(notes.join("cancelled")).await;
    assert_eq!(call(&server, "text", json!({})).await, Ok(json!("just words")));
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_given_up() {
    let (server, notes) = server(McpServer { timeout: Duration::from_secs(3), ..options() });
    let message = "tool `wait` did not answer within 3 s and was cancelled";
    assert_eq!(call(&server, "wait", json!({})).await, Err(message.to_owned()));
    until(notes.join("cancelled")).await;
}

#[tokio::test]
async fn a_server_that_dies_is_told_by_its_last_words_and_started_again_after_a_pause() {
    let (server, _) = server(options());
    let message = call(&server, "die", json!({})).await.expect_err("dead");
    assert!(message.starts_with("MCP server `example`: tool `die`: the server closed the connection"), "{message}");
    assert!(message.contains("a last word"), "{message}");
    let again = call(&server, "text", json!({})).await;
    assert!(again.is_err_and(|message| message.contains("the server closed the connection")), "no pause");
    while call(&server, "text", json!({})).await != Ok(json!("just words")) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why() {
    let command = |script: &str| {
        let McpServer { transport: McpTransport::Command(command), .. } = options() else { panic!("a command") };
        let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        McpServer { transport: McpTransport::Command(Command { argv, ..command }), ..options() }
    };
    let (silent, _) = server(McpServer { timeout: Duration::from_secs(1), ..command("sleep 100") });
    let message = silent.tools().await.expect_err("silent").message;
    assert_eq!(message, "MCP server `example`: did not start within 1 s");
    let (broken, _) = server(command("echo no such module >&2; exit 7"));
    let message = broken.tools().await.expect_err("broken").message;
    assert!(message.contains("; its process failed with exit status 7:\nno such module"), "{message}");
    let nowhere = McpTransport::Http { url: "http://127.0.0.1:1/mcp".to_owned(), headers: Vec::new() };
    let (nowhere, _) = server(McpServer { transport: nowhere, ..options() });
    let message = nowhere.tools().await.expect_err("nowhere").message;
    assert_eq!(message, "MCP server `example`: cannot be reached: Connection refused (os error 111)");
    let template = HeaderTemplate::parse("Bearer ${CELLAR_TEST_NOT_SET}").expect("a template");
    let headers = vec![("Authorization".to_owned(), template)];
    let keyless = McpTransport::Http { url: "http://127.0.0.1:1/mcp".to_owned(), headers };
    let (keyless, _) = server(McpServer { transport: keyless, ..options() });
    let message = keyless.tools().await.expect_err("no key").message;
    assert_eq!(message, "MCP server `example`: the environment variable CELLAR_TEST_NOT_SET is not set");
}

#[tokio::test]
async fn a_server_sees_of_the_environment_what_it_is_granted() {
    let (server, _) = server(options());
    let names = call(&server, "secrets", json!({})).await.expect("a list");
    let granted = ["HOME", "LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "_", NOTES];
    let names: Vec<&str> = names.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(names.iter().all(|name| granted.contains(name)), "{names:?}");
}

#[tokio::test]
async fn a_message_that_is_too_large_is_not_taken_in() {
    let (server, _) = server(McpServer { timeout: Duration::from_secs(5), ..options() });
    let message = call(&server, "flood", json!({})).await.expect_err("too large");
    assert!(message.contains("tool `flood`"), "{message}");
    assert_eq!(call(&server, "text", json!({})).await, Ok(json!("just words")));
}

#[tokio::test]
async fn a_server_ends_with_the_bridges_that_were_granted_it() {
    let (server, _) = server(options());
    let id = call(&server, "secrets", json!({})).await.expect("runs");
    assert!(id.is_array());
    let alive = Arc::downgrade(&server);
    drop(server);
    while alive.upgrade().is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
