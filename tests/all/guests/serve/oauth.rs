//! Tokens that an authorization server has signed: PyJWT's, checked by Cellar.

use super::*;

/// An authorization server, and what it says of itself.
struct Issuer {
    process: Child,
    says: Value,
}

impl Issuer {
    fn start(audience: &str) -> Issuer {
        let python = root().join("target/mcp/bin/python");
        assert!(python.exists(), "no Python SDK of MCP at `{}`; run `make packages` first", python.display());
        let mut command = Command::new(python);
        command.arg(root().join("fixtures/mcp/issuer.py")).arg(audience).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("Python starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        Issuer { process, says: serde_json::from_str(&line).expect("what it says") }
    }

    fn tokens(&self, kind: &str) -> Vec<String> {
        serde_json::from_value(self.says["tokens"][kind].clone()).expect("tokens")
    }

    /// Returns the number of requests for its keys.
    fn count(&self) -> String {
        let address = self.says["address"].as_str().and_then(|url| url.strip_prefix("http://")).expect("an address");
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "GET /count HTTP/1.0\r\n\r\n").expect("a request");
        Answer::read(stream).text()
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const AUDIENCE: &str = "https://cellar.example/mcp";

fn serve(store: &Path, issuer: &Issuer, name: &str) -> Served {
    let issuer = issuer.says["issuer"].as_str().expect("text");
    let text = format!(
        "[server.oauth]\nissuer = \"{issuer}\"\naudience = \"{AUDIENCE}\"\n[tenants.red]\n[tenants.{name}]\n[tenants.none]\n"
    );
    let path = store.join("cellar.toml");
    std::fs::write(&path, text).expect("a file");
    Served::start(&store.join("store"), &["--config", path.to_str().expect("text")])
}

#[test]
fn tokens_of_an_authorization_server_are_taken_and_forged_ones_are_not() {
    let issuer = Issuer::start(AUDIENCE);
    let store = tempfile::tempdir().expect("a folder");
    let served = serve(store.path(), &issuer, "blue");
    let body = br#"{"cells":[{"language":"py","code":"1 + 1"}]}"#;
    let run = |token: &str| served.ask_as(token, "POST", "/v1/eval", &[("Content-Type", "application/json")], body);
    for token in issuer.tokens("refused") {
        let answer = run(&token);
        assert_eq!((answer.status, answer.problem().as_str()), (401, "token"), "{token}");
    }
    assert_eq!(issuer.count(), "1", "strangers do not make the server ask again and again");
    for token in issuer.tokens("taken") {
        let answer = run(&token);
        assert_eq!(answer.status, 200, "{token}: {}", answer.text());
    }
    for token in issuer.tokens("powerless").into_iter().chain(issuer.tokens("reading")) {
        let answer = run(&token);
        assert_eq!((answer.status, answer.problem().as_str()), (403, "scope"), "{token}");
        let told = answer.header("www-authenticate").expect("a challenge");
        assert!(told.contains("error=\"insufficient_scope\", scope=\"cellar:run\""));
    }
    let tenant = |token: &str| served.ask_as(token, "GET", "/v1/tenant", &[], b"").json()["tenant"].clone();
    assert_eq!(tenant(&issuer.tokens("reading")[0]), "red");
    assert_eq!(tenant(&issuer.tokens("other")[0]), "blue");
}

#[test]
fn a_client_without_a_token_is_told_where_to_get_one() {
    let issuer = Issuer::start(AUDIENCE);
    let store = tempfile::tempdir().expect("a folder");
    let served = serve(store.path(), &issuer, "blue");
    let answer = served.ask_as("", "POST", "/mcp", &[], b"{}");
    assert_eq!(answer.status, 401);
    let told = answer.header("www-authenticate");
    let place = "https://cellar.example/.well-known/oauth-protected-resource/mcp";
    assert_eq!(told, Some(&*format!("Bearer realm=\"cellar\", resource_metadata=\"{place}\"")));
    let metadata = served.ask_as("", "GET", "/.well-known/oauth-protected-resource/mcp", &[], b"").json();
    assert_eq!(metadata["resource"], AUDIENCE);
    assert_eq!(metadata["authorization_servers"], json!([issuer.says["issuer"]]));
    assert_eq!(metadata["scopes_supported"], json!(["cellar:run", "cellar:read"]));
    // A server that takes no such tokens says nothing of them.
    let plain = Served::start(&store.path().join("plain"), &[]);
    assert_eq!(plain.ask_as("", "GET", "/.well-known/oauth-protected-resource/mcp", &[], b"").status, 404);
}

#[test]
fn the_sdk_of_mcp_comes_with_such_a_token() {
    let issuer = Issuer::start(AUDIENCE);
    let store = tempfile::tempdir().expect("a folder");
    let served = serve(store.path(), &issuer, "blue");
    mcp::client(
        &["http", "sessions", &format!("http://{}/mcp", served.address), &issuer.tokens("taken")[0]],
        "sessions",
    );
}
