//! Checks of values against schemas, outside of the kernel's turn where they may take long.

use std::{
    sync::{Arc, LazyLock, OnceLock},
    time::Duration,
};

use cellar_core::sync::cores;
use cellar_engine::bridges::Account;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::schema::Schema;

/// Bytes of a schema that is compiled, and steps of a check that is made, while the kernel waits.
const SMALL_BYTES: usize = 4 << 10;
const SMALL_STEPS: usize = 100_000;
/// Time for which a call waits for its check.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Permits of checks that are made side by side outside of the kernels' turns.
static CHECKS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(cores())));

/// A schema as a text, compiled when it is first needed: most sessions call few of their tools.
#[derive(Debug)]
pub(crate) struct Checked {
    text: String,
    is_bounded: bool,
    compiled: OnceLock<Result<Schema, String>>,
}

impl Checked {
    /// A schema of the operator's, or of the embedding program.
    pub(crate) fn own(text: String) -> Arc<Checked> {
        Arc::new(Checked { text, is_bounded: false, compiled: OnceLock::new() })
    }

    /// A schema of a caller's or a server's, which is bounded.
    pub(crate) fn of_stranger(text: String) -> Arc<Checked> {
        Arc::new(Checked { text, is_bounded: true, compiled: OnceLock::new() })
    }

    fn compiled(&self) -> Result<&Schema, String> {
        let compile = || match self.is_bounded {
            true => Schema::bounded(&self.text),
            false => {
                let schema: Value = serde_json::from_str(&self.text).map_err(|error| error.to_string())?;
                Schema::compile(&schema)
            }
        };
        self.compiled.get_or_init(compile).as_ref().map_err(|fault| format!("the schema is none: {fault}"))
    }

    fn is_small(&self, value: &Value) -> bool {
        let is_compiled = self.compiled.get().is_some();
        (is_compiled || self.text.len() <= SMALL_BYTES)
            && self.compiled().map_or(true, |schema| schema.steps(value) <= SMALL_STEPS)
    }

    /// Checks a value, and returns it.
    ///
    /// # Errors
    /// The parts of the value that do not fit, in words.
    ///
    /// # Cancel safety
    /// Cancel safe. A check that has begun goes on within its bounds, on the account of the call.
    pub(crate) async fn check(self: &Arc<Checked>, value: Value) -> Result<Value, String> {
        if self.is_small(&value) {
            return self.compiled()?.check(&value).map(|()| value);
        }
        // THREAT: T12
        let long = || format!("the check took more than {} s", TIMEOUT.as_secs());
        let (checked, account) = (self.clone(), Account::current());
        let work = async move {
            let permit = CHECKS.clone().acquire_owned().await.map_err(|error| error.to_string())?;
            let work = move || {
                let began = thread_time();
                let checked = checked.compiled().and_then(|schema| schema.check(&value)).map(|()| value);
                if let Some(account) = account {
                    account.charge(thread_time().saturating_sub(began));
                }
                drop(permit);
                checked
            };
            tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
        };
        tokio::time::timeout(TIMEOUT, work).await.map_err(|_| long())?
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or_default();
    Duration::from_secs(part(time.tv_sec)).saturating_add(Duration::from_nanos(part(time.tv_nsec)))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;

    fn doubled(depth: usize, word: &str, last: Value) -> Value {
        let mut defs = serde_json::Map::new();
        for level in 0..depth {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            defs.insert(format!("d{level}"), json!({ word: [next, next] }));
        }
        defs.insert(format!("d{depth}"), last);
        json!({"$defs": defs, "$ref": "#/$defs/d0"})
    }

    #[tokio::test]
    async fn schemas_of_strangers_cost_bounded_time_and_memory() {
        let deep = (0..60).fold(json!(1), |inner, _| json!({ "a": inner }));
        let wide: Vec<u32> = (0..200_000).collect();
        let names: serde_json::Map<String, Value> = (0..2_000).map(|n| (format!("n{n}"), json!(n))).collect();
        let patterns: serde_json::Map<String, Value> =
            (0..500).map(|n| (format!("(\\w{{200}}){n}"), json!({}))).collect();
        let mut unevaluated = doubled(16, "allOf", json!({"properties": {"a": {}}}));
        unevaluated["unevaluatedProperties"] = json!(false);
        let lookaround = json!({"items": {"type": "string", "pattern": "^(?=(a+)+$)(a|aa)+$"}});
        let attacks = [
            (doubled(40, "allOf", json!({"type": "object"})), json!({})),
            (doubled(24, "oneOf", json!({"type": "object", "required": ["zz"]})), json!({})),
            (doubled(40, "anyOf", json!({"type": "string"})), json!({})),
            (json!({"additionalProperties": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}), deep.clone()),
            (
                json!({"$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}),
                deep,
            ),
            (unevaluated, Value::Object(names)),
            (json!({"items": {"enum": (0..20_000).map(|n| n + 1_000_000).collect::<Vec<_>>()}}), json!(wide)),
            (json!({"items": {"enum": (0..9_000).map(|n| n + 1_000_000).collect::<Vec<_>>()}}), json!(wide)),
            (json!({"patternProperties": patterns}), json!({})),
            (json!({"pattern": "(\\w{1000}){1000}"}), json!("a")),
            (lookaround, json!(vec!["a".repeat(40) + "b"; 10_000])),
        ];
        for (schema, value) in attacks {
            let began = Instant::now();
            let shown = schema.to_string().chars().take(100).collect::<String>();
            let refused = Checked::of_stranger(schema.to_string()).check(value).await;
            assert!(refused.is_err(), "{shown}");
            assert!(began.elapsed() < Duration::from_secs(20), "{shown}: {:?}", began.elapsed());
        }
        let plain = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"pattern": "^x"}}});
        let plain = Checked::of_stranger(plain.to_string());
        assert!(plain.check(json!({"a": 1, "b": "xy"})).await.is_ok());
        let fault = plain.check(json!({"a": "no"})).await.expect_err("it does not fit");
        assert!(fault.contains("`/a`"), "{fault}");
        let list = json!({"type": "object", "properties": {"a": {"items": {"type": "integer"}}}});
        assert!(Checked::of_stranger(list.to_string()).check(json!({ "a": wide })).await.is_ok(), "much is no fault");
    }
}
