//! Attacks of one tenant on what all share, beside the cells of another one.

use super::{tenants::Tenants, *};

struct Both {
    served: Served,
    red: String,
    blue: String,
    _tenants: Tenants,
}

impl Both {
    fn open() -> Both {
        let tenants = Tenants::new("[server]\nconnections = 64\n[tenants.red]\n[tenants.blue]\n");
        let [red, blue] = ["red", "blue"].map(|tenant| tenants.token(&["new", "--tenant", tenant]));
        Both { served: tenants.serve(), red, blue, _tenants: tenants }
    }

    /// Checks that a cell of this token's tenant runs.
    fn runs(&self, token: &str) {
        let answer = self.served.ask_as(token, "POST", "/v1/eval", &[], cell("py", "6 * 7").to_string().as_bytes());
        assert_eq!(
            (answer.status, answer.json()["content"][0]["text"].as_str()),
            (200, Some("42")),
            "{}",
            answer.text()
        );
    }

    fn stalled(&self, token: &str, length: usize, sent: usize) -> TcpStream {
        let mut stream = self.served.connect();
        let head = format!(
            "POST /v1/eval HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
        );
        let _ = stream.write_all(head.as_bytes());
        for _ in 0..sent >> 20 {
            if stream.write_all(&[b' '; 1 << 20]).is_err() {
                break;
            }
        }
        stream
    }
}

#[test]
fn one_tenant_leaves_connections_to_others() {
    let both = Both::open();
    let stalled: Vec<TcpStream> = (0..100).map(|_| both.stalled(&both.red, 1_000, 0)).collect();
    both.runs(&both.blue);
    // Those beyond its share are refused by name, and have not been waited for.
    let last = stalled.into_iter().next_back().map(read_some).expect("one");
    assert!(last.starts_with("HTTP/1.1 429") && last.contains("requests_under_way"), "{last}");
    // They have ended as soon as the server has noticed.
    let status = || both.served.ask_as(&both.red, "GET", "/v1/tenant", &[], b"").status;
    eventually("red asks again", || (status() == 200).then_some(()));
    both.runs(&both.red);
    let strangers: Vec<TcpStream> = (0..100).map(|_| both.stalled("", 1_000, 0)).collect();
    both.runs(&both.blue);
    drop(strangers);
}

#[test]
fn bodies_that_do_not_end_cost_their_tenant_alone() {
    let both = Both::open();
    let length = 60 << 20;
    let held: Vec<TcpStream> = (0..20).map(|_| both.stalled(&both.red, length, length - 1)).collect();
    let status = std::fs::read_to_string(format!("/proc/{}/status", both.served.process.id())).expect("a status");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size").trim();
    let resident: u64 = resident.split(' ').next().and_then(|kib| kib.parse().ok()).expect("KiB");
    // They would be 1,200 MiB. Half of a GiB is red's, and all of it in a process of its own.
    assert!(resident < 800 << 10, "{resident} KiB");
    both.runs(&both.blue);
    let large = json!({"cells": [{"language": "py", "code": format!("len('{}')", "x".repeat(8 << 20))}]}).to_string();
    let answer = both.served.ask_as(&both.blue, "POST", "/v1/eval", &[], large.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    // Where tenants have processes, they are read side by side.
    let is_answered = |stream: &TcpStream| {
        stream.set_nonblocking(true).expect("it does not wait");
        let found = stream.peek(&mut [0]).is_ok_and(|count| count > 0);
        stream.set_nonblocking(false).expect("it waits");
        found
    };
    let answered = eventually("a body is refused", || held.iter().position(is_answered));
    let refused = held.into_iter().nth(answered).map(read_some).expect("one");
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("buffered_bytes"), "{refused}");
    both.runs(&both.red);
}

#[test]
fn a_schema_of_a_caller_stops_nobody() {
    let both = Both::open();
    let doubled = |depth: usize, word: &str, last: Value| {
        let mut defs = serde_json::Map::new();
        for level in 0..depth {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            defs.insert(format!("d{level}"), json!({ word: [next, next] }));
        }
        defs.insert(format!("d{depth}"), last);
        json!({"$defs": defs, "$ref": "#/$defs/d0"})
    };
    let schemas = [
        doubled(40, "allOf", json!({"type": "object"})),
        doubled(24, "oneOf", json!({"type": "object", "required": ["zz"]})),
    ];
    for schema in schemas {
        let tool = json!({"name": "x", "description": "d", "schema": schema});
        let cells = json!([{"language": "py", "code": "tool.x(a=1)", "timeout": 20}]);
        let body = json!({"tools": [tool], "cells": cells}).to_string();
        let asked: Vec<TcpStream> = (0..6)
            .map(|_| {
                let mut stream = both.served.connect();
                both.served.send(&mut stream, &both.red, "POST", "/v1/eval", &[], body.as_bytes());
                stream
            })
            .collect();
        both.runs(&both.blue);
        for stream in asked {
            let answer = Answer::read(stream);
            let text = answer.text();
            assert!(text.contains("the schema is none: "), "{text}");
        }
        both.runs(&both.red);
    }
}

/// Reads the part of an answer that has come.
fn read_some(mut stream: TcpStream) -> String {
    let mut bytes = vec![0; 16 << 10];
    let count = stream.read(&mut bytes).unwrap_or_default();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}
