//! Files of SQLite, opened read-only for each fetch.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use cellar_core::time::later;
use cellar_tables::Batches;
use futures::future::BoxFuture;
use rusqlite::{
    Connection, OpenFlags,
    hooks::{AuthAction, AuthContext, Authorization},
    types::{ToSqlOutput, Value as Bound, ValueRef},
};
use serde_json::{Map, Value as Json};

use crate::{
    FetchSpec, Request, Source,
    error::{FetchError, FetchFault},
    rows::{ColumnKind, Hint, Rows, Value},
    sql,
    tool::{Queries, Stop, as_text},
};

/// Steps of SQLite's machine between two looks at the clock.
const STEPS: i32 = 100;
/// Bytes that each value of a row may have, however many there are.
const VALUE_BYTES_LEAST: usize = 100_000;
/// Bytes of one value.
const VALUE_BYTES_MAX: i32 = 64 << 20;
/// Bytes that SQLite may have in this process, for all fetches together.
const HEAP_BYTES_MAX: i64 = 1 << 30;
/// Bytes of a pattern of `like`, whose time grows with it.
const PATTERN_BYTES_MAX: i32 = 1_000;
/// Pragmas that cells may use.
const PRAGMAS: [&str; 6] = ["table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"];

/// A file.
pub(crate) struct Sqlite {
    file: Arc<Path>,
    queries: Arc<Queries>,
}

impl Sqlite {
    pub(crate) fn new(file: PathBuf, queries: Queries) -> Sqlite {
        Sqlite { file: file.into(), queries: Arc::new(queries) }
    }
}

impl Source for Sqlite {
    fn fetches(&self) -> Vec<FetchSpec> {
        self.queries.specs()
    }

    fn fetch(&self, request: Request) -> BoxFuture<'static, Result<Batches, FetchError>> {
        let (file, queries) = (Arc::clone(&self.file), Arc::clone(&self.queries));
        Box::pin(async move {
            let stop = Stop::default();
            let is_stopped = stop.flag();
            let asked = tokio::task::spawn_blocking(move || {
                let (statement, arguments) = queries.statement(&request)?;
                let connection = open(&file, &is_stopped, request.deadline)?;
                let rows = read(&connection, &statement, &arguments, &request);
                rows.map_err(|error| match error {
                    Fault::Ours(error) => error,
                    Fault::Theirs(_) if Instant::now() > request.deadline => {
                        FetchError::timeout(request.bounds.timeout)
                    }
                    Fault::Theirs(error) => translated(&error),
                })
            });
            let answer = asked.await.unwrap_or_else(|_| Err(FetchError::failed("the file could not be read")));
            drop(stop);
            answer
        })
    }

    fn probe(&self) -> BoxFuture<'static, Result<String, FetchError>> {
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            let asked = tokio::task::spawn_blocking(move || {
                let connection =
                    open(&file, &Arc::default(), later(Instant::now(), std::time::Duration::from_secs(10)))?;
                let count = "select count(*) from sqlite_master where type in ('table', 'view')";
                let tables: i64 =
                    connection.query_row(count, [], |row| row.get(0)).map_err(|error| translated(&error))?;
                Ok(format!("SQLite {}, {tables} tables", rusqlite::version()))
            });
            asked.await.unwrap_or_else(|_| Err(FetchError::failed("the file could not be read")))
        })
    }
}

enum Fault {
    Ours(FetchError),
    Theirs(rusqlite::Error),
}

impl From<FetchError> for Fault {
    fn from(error: FetchError) -> Fault {
        Fault::Ours(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Theirs(error)
    }
}

/// Opens the file so that nothing can be written, and nothing else be opened.
fn open(file: &Path, is_stopped: &Arc<AtomicBool>, deadline: Instant) -> Result<Connection, FetchError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(file, flags).and_then(|connection| {
        connection.busy_timeout(deadline.saturating_duration_since(Instant::now()))?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.set_limit(rusqlite::limits::Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
        connection.set_limit(rusqlite::limits::Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        connection.set_limit(rusqlite::limits::Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES_MAX)?;
        // THREAT: T14
        connection.pragma_update(None, "hard_heap_limit", HEAP_BYTES_MAX)?;
        connection.authorizer(Some(authorize))?;
        let is_stopped = Arc::clone(is_stopped);
        connection
            .progress_handler(STEPS, Some(move || is_stopped.load(Ordering::Relaxed) || Instant::now() > deadline))?;
        Ok(connection)
    });
    opened.map_err(|error| translated(&error))
}

/// Authorizes reading only.
fn authorize(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Function { function_name } if function_name != "load_extension" => Authorization::Allow,
        AuthAction::Pragma { pragma_name, .. } if PRAGMAS.contains(&pragma_name) => Authorization::Allow,
        _ => Authorization::Deny,
    }
}

fn read(
    connection: &Connection,
    statement: &sql::Statement,
    arguments: &Map<String, Json>,
    request: &Request,
) -> Result<Batches, Fault> {
    let mut prepared = connection.prepare(&statement.text)?;
    let columns: Vec<(String, ColumnKind)> = prepared
        .columns()
        .iter()
        .map(|column| (column.name().to_owned(), ColumnKind::ByValues(hint(column.decl_type().unwrap_or_default()))))
        .collect();
    let width = columns.len();
    // A row is made whole before it is counted: its values have no more bytes together than a fetch may have.
    let most = request.bounds.bytes.checked_div(width.max(1)).unwrap_or_default().max(VALUE_BYTES_LEAST);
    let most = i32::try_from(most).unwrap_or(i32::MAX).min(VALUE_BYTES_MAX);
    connection.set_limit(rusqlite::limits::Limit::SQLITE_LIMIT_LENGTH, most)?;
    for (place, name) in statement.names.iter().enumerate() {
        let value = sql::value_of(name, arguments).cloned().unwrap_or_default();
        prepared.raw_bind_parameter(place.saturating_add(1), ToSqlOutput::Owned(bound(value)))?;
    }
    let mut gathered = Rows::new(columns, &request.bounds, request.deadline)?;
    let mut rows = prepared.raw_query();
    while let Some(row) = rows.next()? {
        let values = (0..width).map(|place| row.get_ref(place).map(value)).collect::<Result<Vec<_>, _>>()?;
        gathered.push(values)?;
    }
    Ok(gathered.finish()?)
}

fn bound(value: Json) -> Bound {
    match value {
        Json::Null => Bound::Null,
        Json::Bool(value) => Bound::Integer(value.into()),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Bound::Integer(value),
            None => Bound::Real(number.as_f64().unwrap_or(f64::NAN)),
        },
        other => Bound::Text(as_text(&other)),
    }
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Float(value),
        // A text of another encoding is bytes.
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Value::Text(text.to_owned()),
            Err(_) => Value::Binary(text.to_vec()),
        },
        ValueRef::Blob(bytes) => Value::Binary(bytes.to_vec()),
    }
}

/// Returns the type that a column's declaration suggests beyond SQLite's own types.
fn hint(declared: &str) -> Hint {
    let declared = declared.to_ascii_uppercase();
    match declared.split(['(', ' ']).next().unwrap_or_default() {
        "BOOLEAN" | "BOOL" => Hint::Boolean,
        "DATE" => Hint::Date,
        "DATETIME" | "TIMESTAMP" | "TIMESTAMPTZ" => Hint::Timestamp,
        _ => Hint::None,
    }
}

/// Converts an error of SQLite. About the file itself, the message says only that it cannot be opened or is not a database.
fn translated(error: &rusqlite::Error) -> FetchError {
    use rusqlite::ErrorCode::{AuthorizationForStatementDenied, OperationInterrupted, ReadOnly};
    match error {
        rusqlite::Error::SqliteFailure(code, message) => match code.code {
            AuthorizationForStatementDenied | ReadOnly => {
                FetchError::new(FetchFault::Denied, "the statement does what is not allowed: a fetch only reads")
            }
            OperationInterrupted => FetchError::failed("the statement was stopped"),
            rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::NotADatabase => {
                FetchError::failed("the file cannot be opened, or it is no database of SQLite")
            }
            _ => FetchError::failed(message.clone().unwrap_or_else(|| code.to_string())),
        },
        rusqlite::Error::SqlInputError { error, msg, .. } if error.code == AuthorizationForStatementDenied => {
            FetchError::new(
                FetchFault::Denied,
                format!("the statement does what is not allowed ({msg}): a fetch only reads"),
            )
        }
        rusqlite::Error::SqlInputError { msg, .. } => FetchError::failed(msg.clone()),
        other => FetchError::failed(other.to_string()),
    }
}
