//! Grants that callers of `/v1` ask for when they open a session, and templates of the operator.

use super::{tenants::Tenants, *};

fn ask(served: &Served, token: &str, path: &str, body: &Value) -> Answer {
    served.ask_as(token, "POST", path, &[], body.to_string().as_bytes())
}

#[test]
fn one_cell_is_evaluated_by_its_language_and_code_and_has_pandas() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &[]);
    let text = |body: Value| {
        let answer = served.post("/v1/eval", body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["content"][0]["text"].as_str().expect("text").to_owned()
    };
    assert_eq!(text(json!({"language": "javascript", "code": "6 * 7"})), "42");
    assert_eq!(text(json!({"language": "python", "code": "import pandas\npandas.Series([1, 2]).sum().item()"})), "3");
    assert!(
        text(json!({"guest": "python", "language": "py", "code": "import pandas"})).contains("ModuleNotFoundError")
    );
    let environment = json!({"language": "py", "code": "env('STAGE')", "environment": {"STAGE": "test"}});
    assert_eq!(text(environment), "'test'");
    for (body, path) in [
        (json!({}), "$.cells"),
        (json!({"language": "py"}), "$.code"),
        (json!({"language": "py", "code": "1", "cells": [{"language": "py", "code": "1"}]}), "$"),
        (json!({"language": "py", "code": "1", "guest": "probe"}), "$.guest"),
    ] {
        let refused = served.post("/v1/eval", body);
        assert_eq!((refused.status, &refused.json()["problems"][0]["path"]), (400, &json!(path)), "{}", refused.text());
    }
}

#[test]
fn sessions_have_a_guest_an_environment_and_limits_of_their_own_and_keep_them() {
    let store = tempfile::tempdir().expect("a folder");
    let served = Served::start(store.path(), &["--memory", "256"]);
    let asked = json!({
        "session": "small", "guest": "python", "environment": {"STAGE": "test"},
        "limits": {"timeout": 1, "timeout_max": 2},
    });
    let opened = served.post("/v1/sessions", asked);
    assert_eq!(opened.status, 201, "{}", opened.text());
    assert_eq!(opened.json()["guests"], json!(["python"]));
    assert_eq!(opened.json()["limits"], json!({"timeout": 1, "timeout_max": 2}));
    assert!(!opened.text().contains("STAGE"), "an environment may hold credentials");
    let check = |served: &Served| {
        assert_eq!(served.run("small", "py", "env('STAGE')"), "'test'");
        assert!(served.run("small", "py", "import numpy").contains("ModuleNotFoundError"));
        assert!(served.run("small", "py", "while True: pass").contains("1 s"));
    };
    check(&served);
    served.signal("-TERM");
    assert_eq!(served.ended(), Some(0));
    check(&Served::start(store.path(), &[]));
}

/// Requests are bounded by the tenant, and by the template that they name; a template is named where the tenant may.
#[test]
fn templates_grant_what_the_operator_wrote_and_callers_get_no_more() {
    let text = "[limits]\nmemory_mib = 128\n\
        [tenants.red]\ntemplates = [\"large\"]\n[tenants.blue]\n\
        [templates.large.limits]\nmemory_mib = 256\n\
        [templates.large.environment]\nSTAGE = \"large\"\n\
        [templates.large.mounts]\n\"/shared\" = \".\"\n\
        [templates.large.session]\nguests = [\"python\"]\n\
        [templates.quick.limits]\ntimeout = 1\ntimeout_max = 1\n";
    let tenants = Tenants::new(text);
    let [red, blue] = ["red", "blue"].map(|tenant| tenants.token(&["new", "--tenant", tenant]));
    let served = tenants.serve();
    let refused = |token: &str, body: Value| {
        let answer = ask(&served, token, "/v1/sessions", &body);
        assert_eq!(answer.status, 400, "{}", answer.text());
        answer.json()["detail"].as_str().expect("words").to_owned()
    };
    assert!(
        refused(&red, json!({"limits": {"memory_mib": 200}})).contains("$.limits.memory_mib: expected at most 128")
    );
    let opened = ask(
        &served,
        &red,
        "/v1/sessions",
        &json!({"session": "a", "template": "large", "limits": {"memory_mib": 200}}),
    );
    assert_eq!((opened.status, &opened.json()["template"]), (201, &json!("large")), "{}", opened.text());
    let more = json!({"template": "large", "limits": {"memory_mib": 300}});
    assert!(refused(&red, more).contains("expected at most 256"));
    let code = "import os\n[env('STAGE'), 'cellar.toml' in os.listdir('/shared')]";
    let ran = ask(&served, &red, "/v1/sessions/a/runs", &cell("py", code)).json();
    assert_eq!(ran["content"][0]["text"], "['large', True]", "{ran}");
    // A template that a tenant may not name is answered as one that is not there.
    let unknown = |name: &str| refused(&red, json!({"template": name})).replace(name, "NAME");
    assert_eq!(unknown("quick"), unknown("nothing"));
    let quick = json!({"template": "quick", "language": "py", "code": "while True: pass"});
    let ended = ask(&served, &blue, "/v1/eval", &quick).json();
    assert_eq!(ended["details"]["cells"][0]["error"]["kind"], "timeout", "{ended}");
}

#[test]
fn a_tenant_that_is_allowed_an_unknown_template_is_told_of_at_the_start() {
    let tenants = Tenants::new("[tenants.red]\ntemplates = [\"larg\"]\n[templates.large.limits]\nmemory_mib = 64\n");
    let store = tenants.store.path().to_str().expect("text");
    let ended = run(&mut cellar_with_guests(["serve", "--listen", "0", "--config", &tenants.config, "--store", store]));
    assert!(ended.code == 2 && ended.stderr.contains("there is no template `larg`"), "{}", ended.stderr);
}
