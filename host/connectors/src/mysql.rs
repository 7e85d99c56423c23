//! MySQL and MariaDB.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use cellar_tables::Batches;
use futures::future::BoxFuture;
use mysql_async::{
    Conn, Opts, OptsBuilder, Params, Pool, PoolConstraints, PoolOpts, Row, Value as Sent,
    consts::{ColumnFlags, ColumnType},
    prelude::Queryable,
};
use serde_json::{Map, Value as Json};

use crate::{
    FetchSpec, Request, Source,
    error::{FetchError, FetchFault},
    rows::{ColumnKind, Rows, Value},
    sql,
    tool::{Queries, as_text},
    unready,
};

/// Connections that are kept.
const CONNECTIONS_MAX: usize = 16;
/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The number of the character set that bytes have.
const BINARY: u16 = 63;

/// A server.
pub(crate) struct Mysql {
    /// Server, or the reason why it cannot be used.
    server: Result<Arc<Server>, String>,
    queries: Arc<Queries>,
}

pub(crate) struct Server {
    opts: OptsBuilder,
    /// Made when it is first needed, within a runtime.
    pool: OnceLock<Pool>,
}

impl Mysql {
    pub(crate) fn new(server: Result<Server, String>, queries: Queries) -> Mysql {
        Mysql { server: server.map(Arc::new), queries: Arc::new(queries) }
    }
}

impl Server {
    /// # Errors
    /// What is wrong with the address, which is not told.
    pub(crate) fn new(url: &str, message_bytes_max: usize) -> Result<Server, String> {
        // What the parser says may quote the address.
        let opts = Opts::from_url(url)
            .map_err(|_| "the address is not one of MySQL: mysql://user:password@host:3306/database".to_owned())?;
        let kept = PoolConstraints::new(0, CONNECTIONS_MAX).unwrap_or_default();
        let opts = OptsBuilder::from_opts(opts)
            .prefer_socket(false)
            .stmt_cache_size(0)
            // THREAT: T14
            .max_allowed_packet(Some(message_bytes_max))
            .setup(vec!["SET time_zone = '+00:00'".to_owned(), plain_mode()])
            .pool_opts(PoolOpts::new().with_constraints(kept).with_reset_connection(true));
        Ok(Server { opts, pool: OnceLock::new() })
    }

    fn pool(&self) -> Pool {
        self.pool.get_or_init(|| Pool::new(self.opts.clone())).clone()
    }
}

/// Statement that takes the words out of the session's mode by which strings and names are written in another way than
/// [`sql::read`] knows.
fn plain_mode() -> String {
    // THREAT: T15
    const WORDS: [&str; 8] =
        ["NO_BACKSLASH_ESCAPES", "ANSI_QUOTES", "ANSI", "ORACLE", "MSSQL", "DB2", "MAXDB", "POSTGRESQL"];
    let mode = WORDS.iter().fold("@@sql_mode".to_owned(), |mode, word| format!("REPLACE({mode}, '{word}', '')"));
    format!("SET sql_mode = TRIM(BOTH ',' FROM REGEXP_REPLACE({mode}, ',+', ','))")
}

impl Source for Mysql {
    fn fetches(&self) -> Vec<FetchSpec> {
        self.queries.specs()
    }

    fn fetch(&self, request: Request) -> BoxFuture<'static, Result<Batches, FetchError>> {
        let (server, queries) = (self.server.clone(), Arc::clone(&self.queries));
        Box::pin(async move {
            let pool = server.map_err(|reason| unready(&reason))?.pool();
            let (statement, arguments) = queries.statement(&request)?;
            let connection = connect(&pool).await?;
            let mut asking = Asking { number: connection.id(), connection: Some(connection), pool };
            let Some(connection) = &mut asking.connection else {
                return Err(FetchError::failed("there is no connection"));
            };
            let rows = read(connection, &statement.text, &statement.names, &arguments, &request).await;
            if matches!(&rows, Err(error) if error.fault == FetchFault::Limit) {
                // The statement may go on: dropping this ends it.
                return rows;
            }
            if connection.query_drop("ROLLBACK").await.is_ok() {
                // It goes back to the others.
                asking.number = 0;
                drop(asking.connection.take());
            }
            rows
        })
    }

    fn probe(&self) -> BoxFuture<'static, Result<String, FetchError>> {
        let server = self.server.clone();
        Box::pin(async move {
            let pool = server.map_err(|reason| unready(&reason))?.pool();
            let mut connection = connect(&pool).await?;
            let version: Option<String> = connection
                .query_first("select version()")
                .await
                .map_err(|error| translated(&error, CONNECT_TIMEOUT))?;
            Ok(version.unwrap_or_default())
        })
    }
}

async fn connect(pool: &Pool) -> Result<Conn, FetchError> {
    let made = tokio::time::timeout(CONNECT_TIMEOUT, pool.get_conn()).await;
    made.map_err(|_| FetchError::failed("the database cannot be reached"))?.map_err(|error| match error {
        mysql_async::Error::Server(said) => {
            FetchError::failed(format!("the database refuses the connection: {}", said.message))
        }
        _ => FetchError::failed("the database cannot be reached"),
    })
}

/// Guard of a running statement. Dropping it has the server stop the statement, and closes the connection.
struct Asking {
    connection: Option<Conn>,
    /// Connection id at the server; 0 when there is nothing to stop.
    number: u32,
    pool: Pool,
}

impl Drop for Asking {
    fn drop(&mut self) {
        let (connection, number, pool) = (self.connection.take(), self.number, self.pool.clone());
        if number == 0 {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let killed = async {
                let mut other = pool.get_conn().await?;
                other.query_drop(format!("KILL {number}")).await
            };
            if !matches!(tokio::time::timeout(CONNECT_TIMEOUT, killed).await, Ok(Ok(()))) {
                tracing::debug!("a statement of MySQL could not be ended");
            }
            // It never goes back to the others.
            if let Some(connection) = connection {
                let _ = tokio::time::timeout(CONNECT_TIMEOUT, connection.disconnect()).await;
            }
        });
    }
}

async fn read(
    connection: &mut Conn,
    text: &str,
    names: &[String],
    arguments: &Map<String, Json>,
    request: &Request,
) -> Result<Batches, FetchError> {
    let timeout = request.bounds.timeout;
    let fault = |error: mysql_async::Error| translated(&error, timeout);
    let left = request.deadline.saturating_duration_since(Instant::now());
    // MariaDB counts seconds, MySQL milliseconds of `SELECT`.
    let maria = format!("SET SESSION max_statement_time = {:.3}", left.as_secs_f64().max(0.001));
    if connection.query_drop(maria).await.is_err() {
        let mysql = format!("SET SESSION max_execution_time = {}", left.as_millis().max(1));
        connection.query_drop(mysql).await.map_err(fault)?;
    }
    connection.query_drop("START TRANSACTION READ ONLY").await.map_err(fault)?;
    let values =
        names.iter().map(|name| sent(sql::value_of(name, arguments).unwrap_or(&Json::Null))).collect::<Vec<_>>();
    let params = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
    let mut result = connection.exec_iter(text, params).await.map_err(fault)?;
    let columns: Vec<_> =
        result.columns_ref().iter().map(|column| (column.name_str().into_owned(), Form::of(column))).collect();
    let kinds = columns.iter().map(|(name, form)| (name.clone(), form.kind()));
    let mut gathered = Rows::new(kinds, &request.bounds, request.deadline)?;
    while let Some(row) = result.next().await.map_err(fault)? {
        let row: Row = row;
        let values = row.unwrap_raw().into_iter().zip(&columns);
        let values = values.map(|(value, (_, form))| form.value(value.unwrap_or(Sent::NULL)));
        gathered.push(values.collect::<Result<Vec<_>, _>>().map_err(FetchError::failed)?)?;
    }
    gathered.finish()
}

fn sent(value: &Json) -> Sent {
    match value {
        Json::Null => Sent::NULL,
        Json::Bool(value) => Sent::Int((*value).into()),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Sent::Int(value),
            (None, Some(value)) => Sent::UInt(value),
            _ => Sent::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        // A moment in UTC, which is what the connection counts in.
        Json::String(text) if chrono::DateTime::parse_from_rfc3339(text).is_ok() => {
            Sent::Bytes(text.replace('T', " ").trim_end_matches('Z').as_bytes().to_vec())
        }
        other => Sent::Bytes(as_text(other).into_bytes()),
    }
}

/// Type of the values of a column.
#[derive(Clone, Copy, Debug)]
enum Form {
    Boolean,
    Integer,
    Unsigned,
    Single,
    Double,
    Decimal,
    Text,
    Binary,
    Json,
    Date,
    Moment { has_zone: bool },
    Duration,
    Bits,
    Null,
}

impl Form {
    fn of(column: &mysql_async::Column) -> Form {
        let is_unsigned = column.flags().contains(ColumnFlags::UNSIGNED_FLAG);
        let is_binary = column.character_set() == BINARY;
        match column.column_type() {
            // What `bool` is declared as.
            ColumnType::MYSQL_TYPE_TINY if column.column_length() == 1 => Form::Boolean,
            ColumnType::MYSQL_TYPE_LONGLONG if is_unsigned => Form::Unsigned,
            ColumnType::MYSQL_TYPE_TINY
            | ColumnType::MYSQL_TYPE_SHORT
            | ColumnType::MYSQL_TYPE_LONG
            | ColumnType::MYSQL_TYPE_LONGLONG
            | ColumnType::MYSQL_TYPE_INT24
            | ColumnType::MYSQL_TYPE_YEAR => Form::Integer,
            ColumnType::MYSQL_TYPE_FLOAT => Form::Single,
            ColumnType::MYSQL_TYPE_DOUBLE => Form::Double,
            ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => Form::Decimal,
            ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE => Form::Date,
            ColumnType::MYSQL_TYPE_TIMESTAMP | ColumnType::MYSQL_TYPE_TIMESTAMP2 => Form::Moment { has_zone: true },
            ColumnType::MYSQL_TYPE_DATETIME | ColumnType::MYSQL_TYPE_DATETIME2 => Form::Moment { has_zone: false },
            ColumnType::MYSQL_TYPE_TIME | ColumnType::MYSQL_TYPE_TIME2 => Form::Duration,
            ColumnType::MYSQL_TYPE_JSON => Form::Json,
            ColumnType::MYSQL_TYPE_BIT => Form::Bits,
            ColumnType::MYSQL_TYPE_NULL => Form::Null,
            _ if is_binary => Form::Binary,
            _ => Form::Text,
        }
    }

    fn kind(self) -> ColumnKind {
        match self {
            Form::Boolean => ColumnKind::Boolean,
            Form::Integer => ColumnKind::Int64,
            Form::Unsigned | Form::Bits => ColumnKind::UInt64,
            Form::Single => ColumnKind::Float32,
            Form::Double => ColumnKind::Float64,
            Form::Decimal => ColumnKind::Decimal,
            Form::Text | Form::Duration => ColumnKind::Text,
            Form::Binary => ColumnKind::Binary,
            Form::Json => ColumnKind::Json,
            Form::Date => ColumnKind::Date,
            Form::Moment { has_zone } => ColumnKind::Timestamp(has_zone.then_some("UTC")),
            Form::Null => ColumnKind::ByValues(crate::rows::Hint::None),
        }
    }

    fn value(self, value: Sent) -> Result<Value, String> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(match (self, value) {
            (_, Sent::NULL) => Value::Null,
            (Form::Boolean, Sent::Int(value)) => Value::Boolean(value != 0),
            (Form::Boolean, Sent::UInt(value)) => Value::Boolean(value != 0),
            (Form::Integer, Sent::UInt(value)) => Value::Integer(i64::try_from(value).map_err(|_| value.to_string())?),
            (_, Sent::Int(value)) => Value::Integer(value),
            (_, Sent::UInt(value)) => Value::Unsigned(value),
            (_, Sent::Float(value)) => Value::Float(value.into()),
            (_, Sent::Double(value)) => Value::Float(value),
            (Form::Decimal, Sent::Bytes(bytes)) => {
                let text = text(bytes);
                decimal(&text).unwrap_or(Value::Text(text))
            }
            (Form::Bits, Sent::Bytes(bytes)) => {
                Value::Unsigned(bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
            }
            (Form::Json, Sent::Bytes(bytes)) => match crate::json::read("a value", &bytes) {
                Ok(value) => Value::Json(value),
                Err(error) if error.fault == FetchFault::Limit => return Err(error.message),
                Err(_) => Value::Json(text(bytes).into()),
            },
            (Form::Binary, Sent::Bytes(bytes)) => Value::Binary(bytes),
            (_, Sent::Bytes(bytes)) => Value::Text(text(bytes)),
            (Form::Date, Sent::Date(year, month, day, ..)) => {
                let text = || Value::Text(format!("{year:04}-{month:02}-{day:02}"));
                let day = chrono::NaiveDate::from_ymd_opt(year.into(), month.into(), day.into());
                let days = day.map(|day| day.signed_duration_since(chrono::NaiveDate::default()).num_days());
                // There are no such days as 0000-00-00.
                days.and_then(|days| i32::try_from(days).ok()).map_or_else(text, Value::Date)
            }
            (_, Sent::Date(year, month, day, hour, minute, second, micros)) => {
                let date = chrono::NaiveDate::from_ymd_opt(year.into(), month.into(), day.into());
                let moment =
                    date.and_then(|date| date.and_hms_micro_opt(hour.into(), minute.into(), second.into(), micros));
                let text = || {
                    let micros = if micros == 0 { String::new() } else { format!(".{micros:06}") };
                    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{micros}")
                };
                moment
                    .map_or_else(|| Value::Text(text()), |moment| Value::Timestamp(moment.and_utc().timestamp_micros()))
            }
            (_, Sent::Time(is_negative, days, hours, minutes, seconds, micros)) => {
                let sign = if is_negative { "-" } else { "" };
                let hours = u64::from(days).saturating_mul(24).saturating_add(hours.into());
                let micros = if micros == 0 { String::new() } else { format!(".{micros:06}") };
                Value::Text(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{micros}"))
            }
        })
    }
}

fn decimal(text: &str) -> Option<Value> {
    let (whole, behind) = text.split_once('.').unwrap_or((text, ""));
    let digits: i128 = format!("{whole}{behind}").parse().ok()?;
    (digits.unsigned_abs() < 10_u128.pow(38)).then_some(Value::Decimal(digits, u8::try_from(behind.len()).ok()?))
}

/// Converts an error of a statement, including the server's message, since the statement is the cell's own.
fn translated(error: &mysql_async::Error, timeout: Duration) -> FetchError {
    let mysql_async::Error::Server(said) = error else {
        let mut cause: Option<&dyn std::error::Error> = Some(error);
        while let Some(error) = cause {
            if error.to_string().contains("larger than max_allowed_packet") {
                let message = "a row of the database has more bytes than a fetch may have";
                return FetchError::new(FetchFault::Limit, message);
            }
            cause = error.source();
        }
        return FetchError::failed("the connection to the database was lost");
    };
    match said.code {
        // ER_QUERY_INTERRUPTED, ER_STATEMENT_TIMEOUT of MariaDB, ER_QUERY_TIMEOUT of MySQL, ER_LOCK_WAIT_TIMEOUT.
        1317 | 1969 | 3024 | 1205 => FetchError::timeout(timeout),
        // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, and the privileges that are missing.
        1792 | 1044 | 1045 | 1142 | 1143 | 1227 | 1370 => {
            FetchError::new(FetchFault::Denied, format!("{}: a fetch only reads", said.message))
        }
        _ => FetchError::failed(said.message.clone()),
    }
}
