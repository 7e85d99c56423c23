use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use proptest::prelude::*;
use serde_json::Value;
use url::form_urlencoded::byte_serialize;

use super::{
    json::{clean_json, clean_text},
    *,
};

/// One that no other test of this process has.
const SECRET: &str = "k3y/with \"all\" sorts+of=ü?";

fn known(value: &str) -> Finder {
    let mut known = Known::default();
    known.learn(value);
    Arc::into_inner(known.finder.expect("a finder")).expect("nobody else has it")
}

/// Writes a text in one of the ways that are promised to be seen through. `choices` says which characters are escaped, and how.
fn encode(form: usize, text: &str, choices: &[u8]) -> String {
    let choice = |place: usize| choices[place % choices.len()];
    let percent = |is_escaped: &dyn Fn(usize, u8) -> bool| -> String {
        let byte = |(place, byte): (usize, u8)| match (
            is_escaped(place, byte) || !byte.is_ascii_graphic() || byte == b'%',
            choice(place) % 2,
        ) {
            (true, 0) => format!("%{byte:02x}"),
            (true, _) => format!("%{byte:02X}"),
            _ => char::from(byte).to_string(),
        };
        text.bytes().enumerate().map(byte).collect()
    };
    // Without the quotes around it; one of its own may stand beside them.
    let json = |text: &str| {
        let quoted = Value::from(text).to_string();
        quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default().to_owned()
    };
    let units = |is_escaped: &dyn Fn(usize) -> bool| -> String {
        let mut buffer = [0; 2];
        let character = |(place, character): (usize, char)| {
            let must = matches!(character, '"' | '\\') || character.is_control();
            match must || is_escaped(place) {
                true => character.encode_utf16(&mut buffer).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
                false => character.to_string(),
            }
        };
        text.chars().enumerate().map(character).collect()
    };
    let html = |is_escaped: &dyn Fn(usize) -> bool| -> String {
        let character = |(place, character): (usize, char)| match character {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\'' => "&#39;".to_owned(),
            other if is_escaped(place) && choice(place) % 3 == 0 => format!("&#{};", u32::from(other)),
            other if is_escaped(place) => format!("&#x{:X};", u32::from(other)),
            other => other.to_string(),
        };
        text.chars().enumerate().map(character).collect()
    };
    let broken = |digits: String, columns: usize, end: &str| {
        digits
            .as_bytes()
            .chunks(columns)
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect::<Vec<_>>()
            .join(end)
    };
    let length = usize::from(choice(0) % 60) + 4;
    match form {
        0 => text.to_owned(),
        1 => json(text),
        2 => json(text).replace('/', "\\/"),
        3 => json(&json(text)),
        4 => units(&|_| true),
        5 => units(&|place| choice(place) % 3 == 0),
        6 => percent(&|_, _| true),
        7 => percent(&|place, _| choice(place) % 3 == 0),
        8 => percent(&|_, byte| !(byte.is_ascii_alphanumeric() || b"-_.!~*'();/?:@&=+$,#".contains(&byte))),
        9 => byte_serialize(text.as_bytes()).collect(),
        10 => percent(&|_, _| true).replace('%', "%25"),
        11 => html(&|_| false),
        12 => html(&|place| choice(place) % 2 == 0),
        13 => text.bytes().map(|byte| format!("={byte:02X}")).collect::<Vec<_>>().join(if choice(0) % 2 == 0 {
            ""
        } else {
            "=\r\n"
        }),
        14 => STANDARD_NO_PAD.encode(format!("{}{text}{}", "x".repeat(length % 5), "y".repeat(length % 3))),
        15 => URL_SAFE_NO_PAD.encode(format!("{}{text}{}", "x".repeat(length % 5), "y".repeat(length % 3))),
        16 => broken(STANDARD_NO_PAD.encode(text), length, "\r\n"),
        17 => broken(STANDARD_NO_PAD.encode(text), length, "\\n"),
        18 => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        19 => broken(text.bytes().map(|byte| format!("{byte:02X}")).collect(), length, "\n "),
        20 => json(&html(&|place| choice(place) % 2 == 0)),
        _ => json(&percent(&|place, _| choice(place) % 3 == 0)),
    }
}
const FORMS: usize = 22;

/// Returns the text between the angle brackets, after cleaning.
fn inside(text: &str) -> &str {
    text.split_once("<<<").and_then(|(_, rest)| rest.rsplit_once(">>>")).map_or("", |(inside, _)| inside)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_promised_form_is_found_on_every_way(
        secret in "[!-~]([ -~ü漢🦀]{6,40})[!-~]",
        form in 0..FORMS,
        choices in prop::collection::vec(any::<u8>(), 1..20),
    ) {
        learn(&secret);
        let encoded = encode(form, &secret, &choices);
        // A piece of base64 may have some characters of what surrounds the credential.
        let is_gone = |text: &str| inside(text).contains(HIDDEN) && inside(text).len() <= HIDDEN.len() + 16;
        let framed = format!("<<<{encoded}>>>");
        prop_assert!(is_gone(&hide(&framed)), "{}", hide(&framed));
        for value in [serde_json::json!({"a": [framed]}), serde_json::json!({(framed.as_str()): 1}), serde_json::json!(framed)] {
            let read: Value = serde_json::from_str(&hide_json(value.to_string())).expect("JSON still");
            let said = match &read {
                Value::String(text) => text.clone(),
                Value::Object(fields) => fields.iter().map(|(name, item)| if name == "a" { item[0].as_str().unwrap_or_default().to_owned() } else { name.clone() }).collect(),
                _ => String::new(),
            };
            prop_assert!(is_gone(&said), "{}", said);
        }
        let body = String::from_utf8_lossy(&hide_bytes(framed.clone().into_bytes())).into_owned();
        prop_assert!(is_gone(&body), "{}", body);
    }
}

#[test]
fn nothing_else_is_hidden() {
    let finder = known(SECRET);
    for text in
        ["nothing of it", "100% \\u0041 &amp; a=b", "%%%\\\\&&&===", "\\ud83e", "&#xffffffffff;", "\\u{}", "=\n"]
    {
        assert_eq!(clean_text(&finder, text.to_owned()), text);
    }
}

#[test]
fn json_stays_json_and_escapes_hide_nothing() {
    let finder = known("12345678");
    let clean = |text: &str| clean_json(&finder, text.to_owned());
    assert_eq!(clean(r#"{"a": 12345678, "b": [1, "x12345678"]}"#), r#"{"a":"***","b":[1,"x***"]}"#);
    assert_eq!(clean(r#"{"12345678": "\u0031\u0032345678"}"#), r#"{"***":"***"}"#);
    assert_eq!(clean("[1.2345678e7, 1234567.8e1]"), r#"["***","***"]"#);
    let untouched = r#"{"b" : 1.50, "a": "\u00fc\n"}"#;
    assert_eq!(clean(untouched), untouched);
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
    assert!(is_learned("SLACK_WEBHOOK", "https://hooks.example.com/T0/B1/four"));
    assert!(is_learned("OTHER", "sk-0123456789abcdefghij"));
    assert!(!is_learned("MODE", "production"));
    assert!(!is_learned("LOG_DIR", "/var/log/some/application/2024"));
    assert!(is_learned("DB_PASSWORD", "hunter2"));
    assert!(!is_learned("API_KEY", "short"));
    assert!(is_too_short("API_KEY", "short") && !is_too_short("MODE", "short"));
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

#[test]
fn a_configuration_names_credentials() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, "named-by-a-file\n").expect("written");
    assert_eq!(learn_named(&SecretSource::File(file.clone())), Named::Hidden);
    assert_eq!(hide("<named-by-a-file>"), "<***>");
    std::fs::write(&file, "abc").expect("written");
    assert_eq!(learn_named(&SecretSource::File(file)), Named::TooShort);
    assert_eq!(learn_named(&SecretSource::Variable("NO_SUCH_VARIABLE_OF_CELLAR".to_owned())), Named::Absent);
}
