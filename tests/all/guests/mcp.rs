//! Tools of MCP servers made with the official Python SDK, called from cells.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use crate::support::{cellar, cellar_with_guests, config, root, run};

/// The token that the server wants, in the environment of Cellar and nowhere else.
const TOKEN: (&str, &str) = ("CELLAR_TEST_TOKEN", "s3cret");

fn python() -> String {
    let python = root().join("target/mcp/bin/python");
    assert!(python.exists(), "no Python SDK of MCP at `{}`; run `make packages` first", python.display());
    python.display().to_string()
}

fn script() -> String {
    root().join("fixtures/mcp/server.py").display().to_string()
}

fn stdio() -> String {
    format!("[mcp.example]\ncommand = [{:?}, {:?}]\n", python(), script())
}

/// A server on a port.
struct Served(Child, u16);

impl Served {
    fn start() -> Served {
        let mut process =
            Command::new(python()).args([script(), "http".to_owned()]).stdout(Stdio::piped()).spawn().expect("starts");
        let mut port = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut port).expect("a port");
        Served(process, port.trim().parse().expect("a port"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a cell with this configuration and the token, and returns what it prints and what it complains of.
fn eval(language: &str, code: &str, text: &str) -> (String, String) {
    let (_folder, path) = config(text);
    let path = path.to_str().expect("text");
    let ended = run(cellar_with_guests(["eval", "-l", language, "--config", path, code]).env(TOKEN.0, TOKEN.1));
    (ended.stdout, ended.stderr)
}

fn check(language: &str, code: &str, text: &str, expected: &str) {
    let (stdout, stderr) = eval(language, code, text);
    assert_eq!(stdout.trim(), expected, "{stderr}");
}

#[test]
fn tools_of_a_process_are_called_from_both_languages() {
    check("py", "print(tool.add(a=1), tool.add(a=1, b=5))", &stdio(), "{'result': 3} {'result': 6}");
    check(
        "py",
        "import asyncio\nprint(await asyncio.gather(tool.describe.aio(name='x'), tool.picture.aio()))",
        &stdio(),
        "[{'name': 'x'}, {'mimeType': 'image/png', 'data': 'aGk='}]",
    );
    check("js", "(await tool.describe({ name: 'x' })).name", &stdio(), "x");
    check(
        "py",
        "print(sorted(dir(tool)), tool.add.spec()['description'])",
        &stdio(),
        "['add', 'describe', 'fail', 'picture', 'read'] Adds two numbers.",
    );
}

#[test]
fn failures_are_exceptions_that_name_the_tool() {
    let code = "try:\n    tool.fail()\nexcept ToolError as error:\n    print(error.name, error)";
    let (stdout, stderr) = eval("py", code, &stdio());
    assert!(stdout.starts_with("fail tool `fail` failed: Error executing tool fail"), "{stdout}{stderr}");
    let code = "try:\n    tool.add(a='x', c=1)\nexcept ToolError as error:\n    print(error)";
    let (stdout, stderr) = eval("py", code, &stdio());
    assert!(stdout.contains("`/a`: expected integer, found \"x\""), "{stdout}{stderr}");
    let code = "try:\n    tool.descibe()\nexcept ToolError as error:\n    print(error)";
    let (stdout, stderr) = eval("py", code, &stdio());
    assert!(stdout.contains("did you mean `describe`"), "{stdout}{stderr}");
}

#[test]
fn tools_behind_a_url_are_called_with_a_token_that_cells_do_not_see() {
    let server = Served::start();
    let url = format!("[mcp.example]\nurl = \"http://127.0.0.1:{}/mcp\"\nprefix = \"ex_\"\n", server.1);
    let with_token = format!("{url}headers_env = {{ Authorization = \"Bearer ${{{}}}\" }}\n", TOKEN.0);
    check(
        "py",
        "print([tool.ex_add(a=n) for n in range(3)])",
        &with_token,
        "[{'result': 2}, {'result': 3}, {'result': 4}]",
    );
    check(
        "js",
        "JSON.stringify(await Promise.all([1, 2].map((a) => tool.ex_add({ a }))))",
        &with_token,
        r#"[{"result":3},{"result":4}]"#,
    );
    let code = "try:\n    tool.ex_add(a=1)\nexcept ToolError as error:\n    print(error)";
    let (stdout, stderr) = eval("py", code, &url);
    assert!(stdout.contains("MCP server `example`: cannot be reached"), "{stdout}{stderr}");
    assert!(!(stdout + &stderr).contains(TOKEN.1), "the token leaked");
}

#[test]
fn a_server_behind_a_url_that_is_slow_or_starts_again_costs_the_calls_it_lost() {
    let server = Served::start();
    let text = format!(
        "[mcp.example]\nurl = \"http://127.0.0.1:{}/mcp\"\ntimeout = 4\nheaders_env = {{ Authorization = \"Bearer ${{{}}}\" }}\n",
        server.1, TOKEN.0
    );
    let code = "\
import time
def tell(call):
    try:
        return call()
    except ToolError as error:
        return str(error)
print(tell(tool.slow))
print(tell(lambda: tool.add(a=1)))
print('lost' if 'tool `restart`' in tell(tool.restart) else 'answered')
deadline = time.monotonic() + 25
while 'result' not in (answer := tell(lambda: tool.add(a=2))) and time.monotonic() < deadline:
    time.sleep(0.05)
print(answer)";
    let slow = "tool `slow` did not answer within 4 s and was cancelled";
    check("py", code, &text, &format!("{slow}\n{{'result': 3}}\nlost\n{{'result': 4}}"));
}

#[test]
fn doctor_tells_of_servers_that_work_and_of_those_that_do_not() {
    let text = format!("{}[mcp.gone]\ncommand = [\"./no-such-server\"]\n", stdio());
    let (_folder, path) = config(&text);
    let ended = run(&mut cellar(["doctor", "--config", path.to_str().expect("text")]));
    assert!(ended.stdout.contains("example (4 tools), gone (out of reach)"), "{}", ended.stdout);
    assert!(ended.stdout.contains("MCP server `gone`: cannot be started: No such file"), "{}", ended.stdout);
    assert_eq!(ended.code, 3);
}
