//! Connectors: the sources of `cellar-connectors`, and those that are commands or tools of MCP servers.

use std::{collections::BTreeMap, sync::Arc};

use arrow_array::{ArrayRef, GenericStringArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions, cast::AsArray};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use cellar_connectors::{ConnectorOptions, Connectors, FetchError, FetchFault, Kind, ToolSource};
use cellar_engine::{
    CellId,
    bridges::{CallError, CallErrorKind, ConnectorSpec, FetchName, FetchSpec, Response},
};
use cellar_tables::Batches;
use serde_json::{Map, Value, json};

use crate::{Connector, Sources, command, json_text};

/// The connectors of a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    connectors: Connectors,
    /// Cached specifications: every kernel requests them when it starts.
    specs: Arc<[ConnectorSpec]>,
}

impl Held {
    /// Creates the connectors of `options`. Errors are only logged, because the reader of a configuration file has checked
    /// it.
    pub(crate) fn new(options: BTreeMap<String, Connector>, tools: &Arc<Sources>) -> Held {
        let made = options.into_iter().map(|(name, connector)| {
            let options = source(&name, connector, tools.clone())?;
            Ok((name, options))
        });
        let made = made.collect::<Result<_, String>>().map_err(|problem| vec![problem]);
        match made.and_then(Connectors::new) {
            Ok(connectors) => Held { specs: specs(&connectors), connectors },
            Err(problems) => {
                problems.iter().for_each(|problem| tracing::error!("{problem}"));
                Held::default()
            }
        }
    }

    /// Creates the connectors of another process from their specifications.
    pub(crate) fn told(specs_told: Vec<cellar_connectors::ConnectorSpec>) -> Held {
        let connectors = Connectors::told(specs_told);
        Held { specs: specs(&connectors), connectors }
    }

    /// Returns the specifications for another process, in JSON.
    pub(crate) fn told_of(&self) -> String {
        serde_json::to_string(&self.connectors.specs()).unwrap_or_default()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.connectors.names().map(str::to_owned).collect()
    }

    pub(crate) fn specs(&self) -> Vec<ConnectorSpec> {
        self.specs.to_vec()
    }

    pub(crate) fn check(
        &self,
        name: &FetchName,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, CallError> {
        self.connectors.check(&name.connector, &name.fetch, arguments).map_err(refusal)
    }

    /// Rows without credentials.
    pub(crate) async fn fetch(self, name: FetchName, arguments: Map<String, Value>) -> Result<Batches, CallError> {
        let rows = self.connectors.fetch(&name.connector, &name.fetch, arguments).await.map_err(refusal)?;
        let cleaned = tokio::task::spawn_blocking(move || clean(rows)).await;
        cleaned.map_err(|_| CallError::new(CallErrorKind::Failed, "the rows could not be searched for credentials"))
    }

    /// Checks whether each connector is reachable, and describes it.
    pub(crate) async fn probe(&self) -> Vec<(String, Result<String, String>)> {
        let probes = self.names().into_iter().map(|name| async {
            let probed = self.connectors.probe(&name).await;
            (name, probed.map_err(|error| cellar_secrets::hide(&error.message).into_owned()))
        });
        futures::future::join_all(probes).await
    }
}

/// Returns the specifications of all connectors.
fn specs(connectors: &Connectors) -> Arc<[ConnectorSpec]> {
    let fetch = |fetch: cellar_connectors::FetchSpec| FetchSpec {
        schema: fetch.schema().to_string(),
        columns: fetch.columns.into_iter().map(|column| (column.name, column.kind)).collect(),
        name: fetch.name,
        description: fetch.description,
    };
    let spec = |spec: cellar_connectors::ConnectorSpec| ConnectorSpec {
        name: spec.name,
        description: spec.description,
        fetches: spec.fetches.into_iter().map(fetch).collect(),
    };
    connectors.specs().into_iter().map(spec).collect()
}

fn refusal(error: FetchError) -> CallError {
    let kind = match error.fault {
        FetchFault::Unknown => CallErrorKind::Unknown,
        FetchFault::Invalid => CallErrorKind::Invalid,
        FetchFault::Denied => CallErrorKind::Denied,
        FetchFault::Limit => CallErrorKind::Limit,
        FetchFault::Failed => CallErrorKind::Failed,
    };
    crate::clean::clean_error(CallError::new(kind, error.message))
}

/// Creates the options of a connector, including its source of rows.
fn source(name: &str, connector: Connector, tools: Arc<Sources>) -> Result<ConnectorOptions, String> {
    let (description, bounds, source) = match connector {
        Connector::Source(options) => return Ok(options),
        Connector::Command { description, bounds, command, fetches } => {
            let who = format!("connectors.{name}");
            let program = command.argv.first().cloned().unwrap_or_default();
            let command = Arc::new(command);
            let source = ToolSource::new(&format!("the command `{program}`"), fetches, move |fetch, arguments| {
                let (who, command) = (who.clone(), Arc::clone(&command));
                let asked = json!({"fetch": fetch, "arguments": arguments}).to_string();
                Box::pin(async move {
                    let output = command::run(&command, &who, asked.into_bytes(), &[]).await.map_err(failed)?;
                    json_text(&who, output).map_err(failed)
                })
            })?;
            (description, bounds, source)
        }
        Connector::Mcp { description, bounds, fetches } => {
            let names: BTreeMap<String, String> =
                fetches.iter().map(|(name, fetch)| (name.clone(), fetch.asks.clone())).collect();
            let source = ToolSource::new("tools of an MCP server", fetches, move |fetch, arguments| {
                let (tools, tool) = (Arc::clone(&tools), names.get(fetch).cloned().unwrap_or_default());
                // What is not given is left out: servers take null for a value.
                let given: Map<String, Value> = arguments.into_iter().filter(|(_, value)| !value.is_null()).collect();
                Box::pin(async move {
                    let found = tools.find(&tool).await.map_err(failed)?;
                    match found.call(Value::Object(given).to_string(), CellId(0)).await.map_err(failed)? {
                        Response::Json(text) => Ok(text),
                        _ => Err(failed(CallError::new(CallErrorKind::Failed, "the tool did not give JSON"))),
                    }
                })
            })?;
            (description, bounds, source)
        }
    };
    Ok(ConnectorOptions { description, bounds, kind: Kind::Source(Arc::new(source)) })
}

fn failed(error: CallError) -> FetchError {
    let fault = match error.kind {
        CallErrorKind::Unknown => FetchFault::Unknown,
        CallErrorKind::Invalid => FetchFault::Invalid,
        CallErrorKind::Denied => FetchFault::Denied,
        CallErrorKind::Limit => FetchFault::Limit,
        _ => FetchFault::Failed,
    };
    FetchError::new(fault, error.message)
}

/// The rows without credentials in their texts, and in the names of their columns.
fn clean(rows: Batches) -> Batches {
    let batches = rows.batches.iter().map(|batch| {
        let columns: Vec<ArrayRef> = batch.columns().iter().map(clean_column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        // The types are as they were.
        RecordBatch::try_new_with_options(clean_schema(&batch.schema()), columns, &options)
            .unwrap_or_else(|_| batch.clone())
    });
    let (batches, schema) = (batches.collect(), clean_schema(&rows.schema));
    rows.replaced(schema, batches)
}

fn clean_schema(schema: &SchemaRef) -> SchemaRef {
    let is_clean = |field: &FieldRef| !cellar_secrets::is_found_in(field.name().as_bytes());
    if schema.fields().iter().all(is_clean) {
        return Arc::clone(schema);
    }
    let clean = |field: &FieldRef| field.as_ref().clone().with_name(cellar_secrets::hide(field.name()));
    Arc::new(Schema::new_with_metadata(
        schema.fields().iter().map(clean).collect::<Vec<_>>(),
        schema.metadata().clone(),
    ))
}

fn clean_column(column: &ArrayRef) -> ArrayRef {
    if let Some(rows) = column.as_any_dictionary_opt() {
        let values = clean_column(rows.values());
        return if Arc::ptr_eq(&values, rows.values()) { Arc::clone(column) } else { rows.with_values(values) };
    }
    clean_texts::<i32>(column).or_else(|| clean_texts::<i64>(column)).unwrap_or_else(|| Arc::clone(column))
}

/// The texts of a column without credentials, if there are any in it.
fn clean_texts<O: OffsetSizeTrait>(column: &ArrayRef) -> Option<ArrayRef> {
    let texts = column.as_string_opt::<O>()?;
    // One search finds whether there is anything to do.
    if !cellar_secrets::is_found_in(texts.value_data()) {
        return None;
    }
    let cleaned: GenericStringArray<O> = texts.iter().map(|text| text.map(cellar_secrets::hide)).collect();
    Some(Arc::new(cleaned))
}

#[cfg(test)]
mod tests {
    use arrow_array::{DictionaryArray, LargeStringArray, StringArray, types::Int8Type};

    use super::*;

    #[test]
    fn credentials_are_taken_out_of_texts_however_a_column_has_them() {
        cellar_secrets::learn("correct-horse-battery");
        let texts = ["plain", "its correct-horse-battery"];
        let columns: [ArrayRef; 3] = [
            Arc::new(StringArray::from(texts.to_vec())),
            Arc::new(LargeStringArray::from(texts.to_vec())),
            Arc::new(texts.into_iter().collect::<DictionaryArray<Int8Type>>()),
        ];
        for column in columns {
            let cleaned = clean_column(&column);
            assert_eq!(cleaned.data_type(), column.data_type());
            let shown = format!("{cleaned:?}");
            assert!(shown.contains("plain") && !shown.contains("horse"), "{shown}");
        }
    }
}
