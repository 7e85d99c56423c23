//! Quotas of tenants, and requests beyond them.

use super::{tenants::Tenants, *};

fn ask(served: &Served, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    served.ask_as(token, method, path, &[], body.to_string().as_bytes())
}

/// Computes for so many seconds of processor time, more or less.
fn busy(seconds: u64) -> Value {
    json!({"cells": [{"language": "js", "timeout": 60, "code": format!(
        "const end = Date.now() + {seconds}000; let n = 0; while (Date.now() < end) {{ n += 1 }}")}]})
}

#[test]
fn a_day_of_processor_time_is_counted_over_restarts_and_refused_by_name() {
    let tenants = Tenants::new("[tenants.red]\ncpu_seconds_per_day = 2\nweight = 50\n[tenants.blue]\n");
    let red = tenants.token(&["new", "--tenant", "red", "--scope", "run"]);
    let blue = tenants.token(&["new", "--tenant", "blue"]);
    let metrics = tenants.token(&["new", "--tenant", "blue", "--name", "metrics", "--scope", "metrics"]);
    let served = tenants.serve();
    assert_eq!(ask(&served, &red, "POST", "/v1/eval", &busy(1)).status, 200);
    let of_red = ask(&served, &red, "GET", "/v1/tenant", &json!({})).json();
    assert_eq!((&of_red["weight"], &of_red["quotas"]["cpu_seconds_per_day"]["limit"]), (&json!(50), &json!(2)));
    assert!(of_red["cpuSeconds"].as_f64().expect("a number") > 0.0, "{of_red}");
    // A run that goes past it ends, and those to come are refused.
    let ended = ask(&served, &red, "POST", "/v1/eval", &busy(50)).json();
    assert_eq!(ended["details"]["cells"][0]["error"]["kind"], "interrupted", "{ended}");
    let check = |served: &Served| {
        let refused = ask(served, &red, "POST", "/v1/eval", &busy(1));
        assert_eq!((refused.status, refused.problem().as_str()), (429, "limit"), "{}", refused.text());
        assert_eq!(refused.json()["limit"], "cpu_seconds_per_day");
        let wait: u64 = refused.header("retry-after").and_then(|wait| wait.parse().ok()).expect("seconds");
        assert!((1..=24 * 3_600).contains(&wait), "{wait}");
        // It may look at what it has.
        assert_eq!(ask(served, &red, "GET", "/v1/sessions", &json!({})).status, 200);
        assert_eq!(ask(served, &blue, "POST", "/v1/eval", &cell("js", "1+1")).status, 200);
    };
    check(&served);
    let told = ask(&served, &metrics, "GET", "/metrics", &json!({})).text();
    for line in [
        "cellar_quota_limit{tenant=\"red\",quota=\"cpu_seconds_per_day\"} 2",
        "cellar_cpu_seconds_total{tenant=\"red\"} 2",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    served.signal("-TERM");
    assert_eq!(served.ended(), Some(0));
    check(&tenants.serve());
}

#[test]
fn memory_and_disk_of_a_tenant_are_bounded_over_all_of_its_sessions() {
    let tenants = Tenants::new("[tenants.red]\nmemory_mib = 64\ndisk_mib = 2\n[tenants.blue]\n");
    let red = tenants.token(&["new", "--tenant", "red"]);
    let blue = tenants.token(&["new", "--tenant", "blue"]);
    let served = tenants.serve();
    let text = |token: &str, session: &str, code: &str| {
        let answer = ask(&served, token, "POST", &format!("/v1/sessions/{session}/runs"), &cell("js", code));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["content"][0]["text"].as_str().expect("text").to_owned()
    };
    let opened =
        |token: &str, name: &str| ask(&served, token, "POST", "/v1/sessions", &json!({"session": name})).status;
    assert_eq!((opened(&red, "a"), opened(&red, "b"), opened(&blue, "c")), (201, 201, 201));
    let fill = "globalThis.held = new Uint8Array(48 << 20).fill(1); held.length";
    assert_eq!(text(&red, "a", fill), "50331648");
    assert!(text(&red, "b", fill).contains("out of memory"), "it is the tenant's, not a session's");
    assert_eq!((text(&red, "b", "1 + 1"), text(&blue, "c", fill)), ("2".to_owned(), "50331648".to_owned()));
    // What is asleep takes none.
    assert_eq!(ask(&served, &red, "POST", "/v1/sessions/a/hibernate", &json!({})).status, 204);
    assert_eq!(text(&red, "b", fill), "50331648");
    // A run begins only while there is some left.
    assert_eq!(ask(&served, &red, "POST", "/v1/sessions/b/hibernate", &json!({})).status, 204);
    let write = "const fs = require('fs'); try { fs.writeFileSync('f', 'x'.repeat(3 << 20)); 'written' } catch (error) { error.code }";
    assert_eq!((text(&red, "a", write).as_str(), text(&blue, "c", write).as_str()), ("EDQUOT", "written"));
    assert_eq!(text(&red, "a", &write.replace("3 << 20", "1 << 20")), "written");
    // States and snapshots lie on the disk as well: a store that is full takes none until something is deleted.
    let refused = std::iter::repeat_with(|| ask(&served, &red, "POST", "/v1/sessions/b/snapshots", &json!({})))
        .inspect(|_| std::thread::sleep(Duration::from_millis(100)))
        .take(600)
        .find(|answer| answer.status != 201)
        .expect("it is refused");
    assert_eq!((refused.status, refused.json()["limit"].as_str()), (507, Some("disk_mib")), "{}", refused.text());
    assert!(refused.header("retry-after").is_none(), "no time helps");
    let run = ask(&served, &red, "POST", "/v1/sessions/a/runs", &cell("js", "1"));
    assert_eq!((run.status, run.json()["limit"].as_str()), (507, Some("disk_mib")), "{}", run.text());
    assert_eq!(opened(&blue, "d"), 201);
}
