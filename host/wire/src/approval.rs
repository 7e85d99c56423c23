//! Calls that wait for a person, and decisions on them.

use cellar_core::limits::CALL_BYTES_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    check::{Invalid, Problems},
    object::{Kind, Members, Object, Text, member},
    server::read,
};

/// Bytes of a reason.
const REASON_BYTES_MAX: usize = 4 << 10;
/// Bytes of the name of whoever decides.
const BY_BYTES_MAX: usize = 200;

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingCallJson {
    /// Names the call in the decision.
    pub call: String,
    /// The session of the cell.
    pub session: String,
    /// The cell.
    pub cell: u32,
    /// `tool`, `runtime`, `agent`, `http` or `connector`.
    pub bridge: String,
    /// The tool, the primitive with its pack, the agent type, the URL, or the fetch with its connector.
    pub name: String,
    /// Arguments of the cell, or what an agent or a host is sent.
    pub arguments: Value,
    /// True if a decision may change the arguments.
    pub editable: bool,
    /// Time at which it began to wait, in seconds since the Unix epoch.
    pub since: u64,
}

/// Calls that wait for a person, the oldest first.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct WaitingCallsJson {
    /// The calls.
    pub calls: Vec<WaitingCallJson>,
}

/// Decision on a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The one who decided.
    pub by: String,
    /// Outcome for the call.
    pub outcome: DecisionOutcome,
}

/// Outcome of a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum DecisionOutcome {
    /// The call is carried out, with these arguments where there are some.
    Approve(Option<Map<String, Value>>),
    /// The call fails, for this reason.
    Reject(String),
}

pub(crate) static DECISION: Object = Object::new(
    "Decision",
    "A person's decision on a call that waits for it.",
    &[
        member("decision", Kind::Word(&["approve", "reject"]), "").required("\"approve\" or \"reject\""),
        member("arguments", Kind::Entries, "Arguments with which an approved call is carried out, instead of its own."),
        member("reason", Kind::Text(Text::ANY.at_most(REASON_BYTES_MAX)), "Why it is rejected, for the cell."),
        member("by", Kind::Text(Text::ANY.at_most(BY_BYTES_MAX)), "The person, for the audit log."),
    ],
);

impl Decision {
    /// Reads a decision. `by` is the one who decides unless the text names somebody.
    ///
    /// # Errors
    /// Every fault, with its path and what was expected there.
    pub fn from_json(bytes: &[u8], by: &str) -> Result<Decision, Invalid> {
        read(&DECISION, bytes, |members, problems| decision(members, by, problems))
    }

    /// The decision as JSON.
    pub fn to_json(&self) -> Value {
        let mut members = Map::from_iter([("by".to_owned(), self.by.as_str().into())]);
        match &self.outcome {
            DecisionOutcome::Approve(arguments) => {
                members.insert("decision".to_owned(), "approve".into());
                let arguments = arguments.clone().map(|arguments| ("arguments".to_owned(), Value::Object(arguments)));
                members.extend(arguments);
            }
            DecisionOutcome::Reject(reason) => {
                members.insert("decision".to_owned(), "reject".into());
                members.insert("reason".to_owned(), reason.as_str().into());
            }
        }
        Value::Object(members)
    }
}

fn decision(members: &Members<'_>, by: &str, problems: &mut Problems) -> Option<Decision> {
    let by = members.text("by", problems).unwrap_or_else(|| by.to_owned());
    let reason = members.text("reason", problems);
    let arguments = members.get("arguments", problems);
    let outcome = match members.word("decision", problems)? {
        "approve" => {
            if reason.is_some() {
                problems.add("$.reason", "only has a meaning beside \"reject\"");
            }
            let read = |at: crate::check::At<'_>| {
                at.entries(problems)?;
                let value = Value::from(at.node);
                if value.to_string().len() > CALL_BYTES_MAX {
                    problems.add(&at.path, format_args!("expected at most {CALL_BYTES_MAX} bytes"));
                }
                if let Value::Object(arguments) = value { Some(arguments) } else { None }
            };
            DecisionOutcome::Approve(arguments.and_then(read))
        }
        _ => {
            if arguments.is_some() {
                problems.add("$.arguments", "only have a meaning beside \"approve\"");
            }
            DecisionOutcome::Reject(reason.unwrap_or_default())
        }
    };
    Some(Decision { by, outcome })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_come_back_as_they_were_written() {
        let arguments = Map::from_iter([("amount".to_owned(), Value::from(3))]);
        for outcome in [
            DecisionOutcome::Approve(None),
            DecisionOutcome::Approve(Some(arguments)),
            DecisionOutcome::Reject("no".to_owned()),
        ] {
            let decision = Decision { by: "ada".to_owned(), outcome };
            let text = decision.to_json().to_string();
            assert_eq!(Decision::from_json(text.as_bytes(), "nobody").expect("valid"), decision);
        }
        for (text, fault) in [
            ("{}", "$.decision: expected \"approve\" or \"reject\", found nothing"),
            (r#"{"decision": "yes"}"#, "$.decision: expected \"approve\" or \"reject\", found \"yes\""),
            (r#"{"decision": "reject", "arguments": {}}"#, "$.arguments: only have a meaning beside \"approve\""),
            (r#"{"decision": "approve", "arguments": [1]}"#, "$.arguments: expected an object, found an array"),
        ] {
            let invalid = Decision::from_json(text.as_bytes(), "").expect_err(text).to_string();
            assert!(invalid.contains(fault), "{invalid}");
        }
    }
}
