use cellar_engine::bridges::{CallErrorKind, HttpResponse};

use super::*;

/// One that no other test of this process has.
const SECRET: &str = "k3y/with \"all\" sorts+of=ü?";

fn known(value: &str) -> AhoCorasick {
    let mut known = Known::default();
    known.learn(value);
    Arc::into_inner(known.finder.expect("a finder")).expect("nobody else has it")
}

fn cleaned(value: &str, text: &str) -> String {
    clean_text(&known(value), text.to_owned())
}

#[test]
fn usual_encodings_are_found() {
    for text in [
        SECRET.to_owned(),
        Value::from(SECRET).to_string(),
        Value::from(SECRET).to_string().replace('/', "\\/"),
        byte_serialize(SECRET.as_bytes()).collect(),
        lower_hex(&byte_serialize(SECRET.as_bytes()).collect::<String>()),
        byte_serialize(SECRET.as_bytes()).collect::<String>().replace('+', "%20"),
    ] {
        let found = cleaned(SECRET, &format!("<{text}>"));
        assert!(found.contains(HIDDEN) && found.len() < 10, "{text}: {found}");
    }
    assert_eq!(cleaned(SECRET, "nothing of it"), "nothing of it");
}

#[test]
fn base64_is_found_wherever_the_credential_begins() {
    for before in ["", "a", "ab", "abc", "Bearer ", "user:"] {
        for behind in ["", "x", "xy", "xyz"] {
            let text = format!("{before}{SECRET}{behind}");
            for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                let encoded = engine.encode(&text);
                let found = cleaned(SECRET, &encoded);
                assert!(found.contains(HIDDEN) && found.len() < encoded.len() - 20, "{text}: {encoded} {found}");
            }
        }
    }
}

#[test]
fn json_stays_json_and_escapes_hide_nothing() {
    let finder = known("12345678");
    let clean = |text: &str| clean_json(&finder, text.to_owned());
    assert_eq!(clean(r#"{"a": 12345678, "b": [1, "x12345678"]}"#), r#"{"a":"***","b":[1,"x***"]}"#);
    assert_eq!(clean(r#"{"12345678": "\u0031\u0032345678"}"#), r#"{"***":"***"}"#);
    let untouched = r#"{"b" : 1.50, "a": "\u00fc\n"}"#;
    assert_eq!(clean(untouched), untouched);
}

#[test]
fn answers_and_errors_are_cleaned() {
    learn("only-known-to-this-test");
    let headers = vec![("x-only-known-to-this-test".to_owned(), "only-known-to-this-test".to_owned())];
    let body = b"\xff only-known-to-this-test \xfe".to_vec();
    let url = "https://a/?only-known-to-this-test".to_owned();
    let answer = clean(Ok(Response::Http(HttpResponse { status: 200, url, headers, body })));
    let headers = vec![("x-***".to_owned(), "***".to_owned())];
    let body = b"\xff *** \xfe".to_vec();
    let url = "https://a/?***".to_owned();
    assert_eq!(answer, Ok(Response::Http(HttpResponse { status: 200, url, headers, body })));
    let error = CallError::new(CallErrorKind::Failed, "said only-known-to-this-test");
    assert_eq!(clean(Err(error)).expect_err("an error").message, "said ***");
}

#[test]
fn variables_are_credentials_by_their_names_or_looks() {
    let is_learned = |name: &str, value: &str| {
        learn_variable(name, value, false);
        hide(value) == HIDDEN
    };
    assert!(is_learned("API_KEY", "correct horse one"));
    assert!(is_learned("db_password", "correct horse two"));
    assert!(is_learned("DATABASE", "postgres://user:pass@host/three"));
    assert!(is_learned("OTHER", "sk-0123456789abcdefghij"));
    assert!(!is_learned("MODE", "production"));
    assert!(!is_learned("LOG_DIR", "/var/log/some/application/2024"));
    assert!(!is_learned("API_KEY", "short"));
    assert!(!is_learned("GREETING", "a text with words, 20 letters or more"));
    learn_variable("GREETING", "a text that is inherited", true);
    assert_eq!(hide("a text that is inherited"), HIDDEN);
    learn_variable("VIRTUAL_ENV", "/home/someone/venv", true);
    assert_eq!(hide("/home/someone/venv"), "/home/someone/venv");
}

#[test]
fn what_is_known_is_bounded() {
    let mut known = Known::default();
    for number in 0..SECRETS_MAX + 3 {
        // Building the finder each time would take the test's time, and nothing else.
        if number < SECRETS_MAX {
            known.values.push_back(format!("secret-{number}"));
        } else {
            known.learn(&format!("secret-{number}"));
        }
    }
    assert_eq!((known.values.len(), known.values.front().map(String::as_str)), (SECRETS_MAX, Some("secret-3")));
}
