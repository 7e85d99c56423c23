//! Two tenants, neither of which sees anything of the other, and their tokens.

use super::*;

pub(super) struct Tenants {
    _folder: tempfile::TempDir,
    pub(super) config: String,
    pub(super) store: tempfile::TempDir,
}

impl Tenants {
    pub(super) fn new(text: &str) -> Tenants {
        let (folder, store) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let path = folder.path().join("cellar.toml");
        std::fs::write(&path, text).expect("written");
        std::fs::write(folder.path().join("blue.toml"), "[environment]\nCOLOUR = \"blue\"\n").expect("written");
        Tenants { config: path.to_str().expect("text").to_owned(), _folder: folder, store }
    }

    pub(super) fn token(&self, arguments: &[&str]) -> String {
        let store = self.store.path().to_str().expect("text");
        let ended = run(cellar(["token", "--config", &self.config, "--store", store]).args(arguments));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stdout.trim().to_owned()
    }

    pub(super) fn serve(&self) -> Served {
        Served::start(self.store.path(), &["--config", &self.config])
    }
}

/// Returns the operations under `/v1` that the description has: methods with paths.
pub(super) fn operations() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("fixtures/openapi/openapi.json")).expect("the description");
    let described: Value = serde_json::from_str(&text).expect("JSON");
    let paths = described["paths"].as_object().expect("paths");
    let methods = ["get", "put", "post", "patch", "delete"];
    let of_path = |(path, operations): (&String, &Value)| {
        let named = methods.iter().filter(|method| operations.get(**method).is_some());
        named.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

/// The id in a path.
fn id(path: &str) -> &str {
    path.split('/').nth(3).expect("an id")
}

#[test]
fn neither_sees_anything_of_the_other() {
    let tenants = Tenants::new("[tenants.red]\n[tenants.blue]\nconfig = \"blue.toml\"\n");
    let red = tenants.token(&["new", "--tenant", "red"]);
    let blue = tenants.token(&["new", "--tenant", "blue"]);
    let served = tenants.serve();
    assert!(served.lines[1].starts_with("tenants: blue, red"), "{:?}", served.lines);
    let ask = |token: &str, method: &str, path: &str, body: Value| {
        served.ask_as(token, method, path, &[], body.to_string().as_bytes())
    };
    let session = ask(&red, "POST", "/v1/sessions", json!({})).json()["session"].as_str().expect("a name").to_owned();
    let place = format!("/v1/sessions/{session}");
    let code = "import os; print(os.environ.get('COLOUR')); print('x' * 100_000)";
    let answer = ask(&red, "POST", &format!("{place}/runs"), cell("py", code));
    assert!(answer.json()["content"][0]["text"].as_str().expect("text").starts_with("None"), "{}", answer.text());
    let started = served.ask_as(
        &red,
        "POST",
        &format!("{place}/runs"),
        &[("Prefer", "respond-async")],
        cell("py", "1").to_string().as_bytes(),
    );
    let run = format!("/v1/runs/{}", started.json()["run"].as_str().expect("an id"));
    let snapshot = ask(&red, "POST", &format!("{place}/snapshots"), json!({})).json()["snapshot"].clone();
    let snapshot = format!("/v1/snapshots/{}", snapshot.as_str().expect("an id"));
    let artifacts = ask(&red, "GET", "/v1/artifacts", json!({})).json();
    let artifact = format!("/v1/artifacts/{}", artifacts["artifacts"][0]["id"].as_str().expect("an id"));
    assert!(!artifacts.to_string().contains(tenants.store.path().to_str().expect("text")), "{artifacts}");
    assert_eq!(ask(&red, "PUT", &format!("{place}/files/f"), json!("x")).status, 201);
    // What is another's is answered exactly as what does not exist, whatever is asked of it.
    let ids =
        [("{session}", id(&place)), ("{run}", id(&run)), ("{snapshot}", id(&snapshot)), ("{artifact}", id(&artifact))];
    for (method, template) in operations() {
        let Some((_, id)) = ids.iter().find(|(name, _)| template.contains(name)) else { continue };
        let body = match template.rsplit('/').next().expect("a segment") {
            "runs" => cell("py", "1"),
            "input" => json!({"request_id": "r", "value": null}),
            "{call}" => json!({"result": 1}),
            "commands" => json!({"command": "ls"}),
            "rewind" => json!({"snapshot": ids[2].1}),
            "complete" | "inspect" => json!({"language": "py", "code": "x"}),
            _ => json!({}),
        };
        let filled = |id: &str| {
            let path = ids.iter().fold(template.clone(), |path, (name, _)| path.replace(name, id));
            [
                ("{path}", "f"),
                ("{name}", "x"),
                ("{state}", "1"),
                ("{other}", "1"),
                ("{call}", "call-x"),
                ("{output}", "0"),
            ]
            .iter()
            .fold(path, |path, (name, value)| path.replace(name, value))
        };
        let others = ask(&blue, &method, &filled(id), body.clone());
        let turned: String = id.chars().rev().collect();
        let made_up = id.split_once('-').map_or(turned.clone(), |(kind, _)| format!("{kind}-{}", &turned[..22]));
        let none = ask(&blue, &method, &filled(&made_up), body);
        assert_eq!((others.status, others.text()), (none.status, none.text()), "{method} {template}");
        assert_eq!(others.status, 404, "{method} {template}: {}", others.text());
    }
    for list in ["sessions", "snapshots", "artifacts", "datasets"] {
        assert_eq!(ask(&blue, "GET", &format!("/v1/{list}"), json!({})).json()[list], json!([]), "{list}");
    }
    // The same name is another session.
    let named = |token: &str| ask(token, "POST", "/v1/sessions", json!({"session": "same"})).status;
    assert_eq!((named(&red), named(&blue), named(&red)), (201, 201, 409));
    let of = |token: &str, code: &str| {
        ask(token, "POST", "/v1/sessions/same/runs", cell("py", code)).json()["content"][0]["text"].clone()
    };
    assert_eq!(of(&red, "secret = 1; secret"), "1");
    assert!(of(&blue, "secret").as_str().expect("text").contains("NameError"));
    assert_eq!(of(&blue, "import os; os.environ['COLOUR']"), "'blue'");
    assert_eq!(ask(&red, "GET", &place, json!({})).status, 200);
}

#[test]
fn each_has_the_packages_of_its_own_configuration() {
    let tenants = Tenants::new("[tenants.red]\nconfig = \"red.toml\"\n[tenants.blue]\nconfig = \"blue.toml\"\n");
    let folder = Path::new(&tenants.config).parent().expect("a folder");
    std::fs::write(folder.join("red.toml"), "packages = [\"natsort\"]\n").expect("written");
    let packages = folder.join("packages").to_str().expect("text").to_owned();
    let add = |name: &str| {
        let ended = run(&mut cellar(["packages", "add", name, "--package-store", &packages]));
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    };
    add("natsort==8.3.1");
    let [red, blue] = ["red", "blue"].map(|tenant| tenants.token(&["new", "--tenant", tenant]));
    let served = Served::start(tenants.store.path(), &["--config", &tenants.config, "--package-store", &packages]);
    let told = |token: &str, session: &str, code: &str| {
        let path = format!("/v1/sessions/{session}");
        served.ask_as(token, "POST", "/v1/sessions", &[], json!({ "session": session }).to_string().as_bytes());
        let answer =
            served.ask_as(token, "POST", &format!("{path}/runs"), &[], cell("py", code).to_string().as_bytes());
        answer.json()["content"][0]["text"].as_str().expect("text").to_owned()
    };
    let code = "import natsort; print(natsort.__version__)";
    assert_eq!(told(&red, "first", code), "8.3.1");
    let refused = told(&blue, "first", &code.replace("import", "%pip install natsort\nimport"));
    assert!(refused.contains("the owner of the host runs `cellar packages add natsort`"), "{refused}");
    // What is brought up to date while it serves is what a session has that is opened then.
    add("natsort==8.4.0");
    assert_eq!((told(&red, "second", code), told(&red, "first", code)), ("8.4.0".into(), "8.3.1".into()));
}

#[test]
fn tokens_have_scopes_take_over_from_one_another_and_are_revoked() {
    let tenants = Tenants::new("[tenants.red]\n[tenants.blue]\nrequests_per_second = 5\nruns = 1\n");
    let read = tenants.token(&["new", "--tenant", "red", "--name", "viewer", "--scope", "read"]);
    let first = tenants.token(&["new", "--tenant", "red"]);
    let blue = tenants.token(&["new", "--tenant", "blue"]);
    let served = tenants.serve();
    let status = |token: &str, method: &str, path: &str| served.ask_as(token, method, path, &[], b"{}").status;
    assert_eq!((status(&read, "GET", "/v1/sessions"), status(&read, "POST", "/v1/sessions")), (200, 403));
    assert_eq!((status(&first, "POST", "/v1/sessions"), status(&first, "GET", "/metrics")), (201, 403));
    let second = tenants.token(&["new", "--tenant", "red"]);
    assert_eq!(status(&second, "GET", "/v1/sessions"), 401, "it is not known yet");
    served.signal("-HUP");
    while status(&second, "GET", "/v1/sessions") != 200 {}
    assert_eq!(status(&first, "GET", "/v1/sessions"), 200, "both are of use");
    let store = tenants.store.path().to_str().expect("text");
    let third = run(&mut cellar(["token", "--config", &tenants.config, "--store", store, "new", "--tenant", "red"]));
    assert_eq!(third.code, 2, "{}", third.stderr);
    let id = first.split('_').nth(1).expect("an id");
    tenants.token(&["revoke", id]);
    served.signal("-HUP");
    while status(&first, "GET", "/v1/sessions") != 401 {}
    let listed = tenants.token(&["list", "--json"]);
    for token in [&read, &first, &second, &blue] {
        assert!(!listed.contains(&token[20..50]), "{listed}");
    }
    assert!(listed.contains(&second[second.len() - 4..]) && !listed.contains(id), "{listed}");
    // A tenant that asks too often is told when to come again.
    let refused =
        (0..200).map(|_| served.ask_as(&blue, "GET", "/v1/tenant", &[], b"")).find(|answer| answer.status != 200);
    let refused = refused.expect("it is refused");
    assert_eq!((refused.status, refused.problem().as_str()), (429, "limit"));
    assert_eq!(refused.json()["limit"], "requests_per_second");
    assert!(refused.header("retry-after").is_some(), "{}", refused.head);
}

#[test]
fn every_mistake_of_a_configuration_is_named_at_once() {
    let tenants = Tenants::new(
        "[server]\nlisten = \"nowhere\"\nport = 1\n[tenants.red]\nruns = 0\n[tenants.\"bad name\"]\n[limits]\ntimeout = 0\n",
    );
    let store = tenants.store.path().to_str().expect("text");
    let ended = run(&mut cellar(["serve", "--config", &tenants.config, "--store", store]));
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    for path in ["server.listen", "server.port", "tenants.red.runs", "tenants[\"bad name\"]", "limits.timeout"] {
        assert!(ended.stderr.contains(path), "{path}: {}", ended.stderr);
    }
}
