//! PostgreSQL.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::{BufMut, BytesMut};
use cellar_core::budget::Budget;
use cellar_tables::Batches;
use futures::{StreamExt, future::BoxFuture};
use rustls_platform_verifier::ConfigVerifierExt;
use serde_json::{Map, Value as Json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_postgres::{
    CancelToken, Client, Column, Config, NoTls, RowStream,
    config::{Host, SslMode},
    types::{FromSql, IsNull, ToSql, Type, to_sql_checked},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    FetchSpec, Request, Source,
    error::{FetchError, FetchFault},
    rows::Rows,
    tool::Queries,
    unready,
};

mod binary;
mod sized;

use binary::{kind, value};
use sized::{Fault, Sized, SizedTls};

/// Maximum number of idle connections.
const IDLE_MAX: usize = 8;
/// Port of a server that names none.
const PORT: u16 = 5_432;
/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server.
pub(crate) struct Postgres {
    /// Server, or the reason why it cannot be used.
    server: Result<Arc<Server>, String>,
    queries: Arc<Queries>,
}

pub(crate) struct Server {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    idle: Mutex<Vec<Open>>,
    /// Bytes of a message of the server: no row may have more.
    message_bytes_max: usize,
    /// Budget of the messages that are being read.
    budget: Budget,
}

/// An open connection.
struct Open {
    client: Client,
    /// Bound that it was closed for.
    fault: Fault,
}

/// Connection without TLS.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

impl Postgres {
    pub(crate) fn new(server: Result<Server, String>, queries: Queries) -> Postgres {
        Postgres { server: server.map(Arc::new), queries: Arc::new(queries) }
    }
}

impl Source for Postgres {
    fn fetches(&self) -> Vec<FetchSpec> {
        self.queries.specs()
    }

    fn fetch(&self, request: Request) -> BoxFuture<'static, Result<Batches, FetchError>> {
        let (server, queries) = (self.server.clone(), Arc::clone(&self.queries));
        Box::pin(async move {
            let server = server.map_err(|reason| unready(&reason))?;
            let (statement, arguments) = queries.statement(&request)?;
            let open = server.client().await?;
            let client = &open.client;
            let asking = Asking::new(&server, client);
            let rows = read(client, &statement.text, &statement.names, &arguments, &request).await;
            let rows = match rows.map_err(|error| match open.fault.get() {
                Some(fault) => FetchError::new(FetchFault::Limit, *fault),
                None => error,
            }) {
                // The server may have been told to stop, or still be busy with the statement.
                Err(error) if error.fault != FetchFault::Failed => return Err(error),
                rows => rows,
            };
            // Locks that a statement took for itself outlive its transaction.
            let is_ended = client.batch_execute("ROLLBACK; SELECT pg_advisory_unlock_all()").await.is_ok();
            asking.done();
            if is_ended {
                server.put_back(open);
            }
            rows
        })
    }

    fn probe(&self) -> BoxFuture<'static, Result<String, FetchError>> {
        let server = self.server.clone();
        Box::pin(async move {
            let server = server.map_err(|reason| unready(&reason))?;
            let open = server.client().await?;
            let row = open.client.query_one("select current_setting('server_version')", &[]).await;
            let row = row.map_err(|error| translated(&error, CONNECT_TIMEOUT))?;
            let version: &str = row.try_get(0).unwrap_or_default();
            let version = format!("PostgreSQL {version}");
            server.put_back(open);
            Ok(version)
        })
    }
}

impl Server {
    /// # Errors
    /// What is wrong with the address, which is not told.
    pub(crate) fn new(url: &str, message_bytes_max: usize, budget: Budget) -> Result<Server, String> {
        // What the parser says may quote the address.
        let expected = "the address is not one of PostgreSQL: postgres://user:password@host:5432/database";
        let mut config: Config = url.parse().map_err(|_| expected.to_owned())?;
        config.application_name("cellar").connect_timeout(CONNECT_TIMEOUT);
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => None,
            _ => {
                // It fails when there is a provider already, which is as good.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let verified = rustls::ClientConfig::with_platform_verifier();
                let verified = verified.map_err(|error| format!("the certificates of the system: {error}"))?;
                Some(MakeRustlsConnect::new(verified))
            }
        };
        Ok(Server { config, tls, idle: Mutex::default(), message_bytes_max, budget })
    }

    /// Registers the password as a credential, whatever the form of the address.
    pub(crate) fn learn(&self) {
        if let Some(password) = self.config.get_password().and_then(|password| std::str::from_utf8(password).ok()) {
            cellar_secrets::learn(password);
        }
    }

    async fn client(&self) -> Result<Open, FetchError> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(open) = idle else { break };
            if !open.client.is_closed() {
                return Ok(open);
            }
        }
        let unreachable = |error: tokio_postgres::Error| match error.as_db_error() {
            // It may name the user and the database, which are no secrets, and never the password.
            Some(error) => FetchError::failed(format!("the database refuses the connection: {}", error.message())),
            None => FetchError::failed("the database cannot be reached"),
        };
        let (most, budget, fault) = (self.message_bytes_max, self.budget.clone(), Fault::default());
        match &self.tls {
            Some(tls) => {
                let tls = SizedTls { tls: tls.clone(), most, budget, fault: fault.clone() };
                let (client, connection) = self.config.connect(tls).await.map_err(unreachable)?;
                tokio::spawn(connection);
                Ok(Open { client, fault })
            }
            None => {
                let failed = |_| FetchError::failed("the database cannot be reached");
                let socket = socket(&self.config).await.map_err(failed)?;
                let socket = Sized::new(socket, most, &budget, fault.clone())
                    .map_err(|error| FetchError::failed(error.to_string()))?;
                let (client, connection) = self.config.connect_raw(socket, NoTls).await.map_err(unreachable)?;
                tokio::spawn(connection);
                Ok(Open { client, fault })
            }
        }
    }

    fn put_back(&self, open: Open) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !open.client.is_closed() {
            idle.push(open);
        }
    }
}

/// Connects to the first host of an address that takes connections.
async fn socket(config: &Config) -> io::Result<Box<dyn Socket>> {
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (place, host) in config.get_hosts().iter().enumerate() {
        let ports = config.get_ports();
        let port = ports.get(place).or(ports.first()).copied().unwrap_or(PORT);
        let connected = async {
            Ok::<Box<dyn Socket>, io::Error>(match host {
                Host::Tcp(name) => {
                    let stream = TcpStream::connect((name.as_str(), port)).await?;
                    stream.set_nodelay(true)?;
                    Box::new(stream)
                }
                Host::Unix(folder) => Box::new(UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?),
            })
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, connected).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

/// Guard of a running statement. Dropping it has the server stop the statement.
struct Asking {
    token: Option<CancelToken>,
    server: Arc<Server>,
}

impl Asking {
    fn new(server: &Arc<Server>, client: &Client) -> Asking {
        Asking { token: Some(client.cancel_token()), server: server.clone() }
    }

    fn done(mut self) {
        self.token = None;
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let (Some(token), server) = (self.token.take(), self.server.clone()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let cancelled = async {
                match &server.tls {
                    Some(tls) => token.cancel_query(tls.clone()).await.is_ok(),
                    None => match socket(&server.config).await {
                        Ok(socket) => token.cancel_query_raw(socket, NoTls).await.is_ok(),
                        Err(_) => false,
                    },
                }
            };
            if !matches!(tokio::time::timeout(CONNECT_TIMEOUT, cancelled).await, Ok(true)) {
                tracing::debug!("a statement of PostgreSQL could not be cancelled");
            }
        });
    }
}

async fn read(
    client: &Client,
    text: &str,
    names: &[String],
    arguments: &Map<String, Json>,
    request: &Request,
) -> Result<Batches, FetchError> {
    let timeout = request.bounds.timeout;
    let left = request.deadline.saturating_duration_since(Instant::now()).as_millis().max(1);
    let begin = format!(
        "BEGIN READ ONLY; SET LOCAL statement_timeout = {left}; SET LOCAL lock_timeout = {left}; SET LOCAL TimeZone = 'UTC'; SET LOCAL standard_conforming_strings = on"
    );
    client.batch_execute(&begin).await.map_err(|error| translated(&error, timeout))?;
    let asked = client.prepare(text).await.map_err(|error| translated(&error, timeout))?;
    let prepared = match written(text, asked.columns()) {
        None => asked.clone(),
        Some(written) => client.prepare(&written).await.map_err(|error| translated(&error, timeout))?,
    };
    let mut columns = Vec::with_capacity(prepared.columns().len());
    for (column, asked) in prepared.columns().iter().zip(asked.columns()) {
        let kind = kind(column.type_()).ok_or_else(|| {
            let (name, kind) = (asked.name(), column.type_().name());
            FetchError::failed(format!(
                "column `{name}` is of the type `{kind}`, which no column of a table is: select `{name}::text`"
            ))
        })?;
        columns.push((asked.name().to_owned(), kind));
    }
    let kinds: Vec<Type> = prepared.columns().iter().map(|column| column.type_().clone()).collect();
    let mut gathered = Rows::new(columns, &request.bounds, request.deadline)?;
    let values: Vec<Argument> =
        names.iter().map(|name| Argument(arguments.get(name).cloned().unwrap_or_default())).collect();
    let rows: RowStream = client.query_raw(&prepared, &values).await.map_err(|error| translated(&error, timeout))?;
    let mut rows = std::pin::pin!(rows);
    while let Some(row) = rows.next().await {
        let row = row.map_err(|error| translated(&error, timeout))?;
        let mut values = Vec::with_capacity(kinds.len());
        for (place, kind) in kinds.iter().enumerate() {
            let raw: Raw<'_> = row.try_get(place).map_err(|error| translated(&error, timeout))?;
            values.push(value(kind, raw.0).map_err(FetchError::failed)?);
        }
        gathered.push(values)?;
    }
    gathered.finish()
}

/// Rewrites a statement so that columns of types without a column kind, such as ranges, are returned as text. Returns
/// `None` if there are no such columns.
fn written(text: &str, columns: &[Column]) -> Option<String> {
    if columns.iter().all(|column| kind(column.type_()).is_some()) {
        return None;
    }
    let names: Vec<String> = (1..=columns.len()).map(|number| format!("c{number}")).collect();
    let cast = |(name, column): (&String, &Column)| match kind(column.type_()) {
        Some(_) => name.clone(),
        None => format!("{name}::text"),
    };
    let casts: Vec<String> = names.iter().zip(columns).map(cast).collect();
    Some(format!("select {} from ({text}\n) as asked({})", casts.join(", "), names.join(", ")))
}

/// Converts an error of a statement, including PostgreSQL's message, since the statement is the cell's own.
fn translated(error: &tokio_postgres::Error, timeout: Duration) -> FetchError {
    let Some(said) = error.as_db_error() else {
        // What cannot be sent says what it was given.
        let source = std::error::Error::source(error).map(ToString::to_string);
        return match source.filter(|_| error.to_string().contains("parameter")) {
            Some(source) => FetchError::new(FetchFault::Invalid, format!("a parameter does not fit: {source}")),
            None => FetchError::failed("the connection to the database was lost"),
        };
    };
    let hint = said.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    match said.code().code() {
        // query_canceled and lock_not_available, after the time that the transaction was given.
        "57014" | "55P03" => FetchError::timeout(timeout),
        // active_sql_transaction (whoever would make it one that writes), read_only_sql_transaction, insufficient_privilege.
        "25001" | "25006" | "42501" => {
            FetchError::new(FetchFault::Denied, format!("{}: a fetch only reads", said.message()))
        }
        // A statement that failed leaves the connection as it was.
        _ => FetchError::failed(format!("{}{hint}", said.message())),
    }
}

/// The bytes of a value.
struct Raw<'a>(Option<&'a [u8]>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Raw<'a>, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Raw<'a>, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// An argument, as the parameter's own type takes it.
#[derive(Debug)]
struct Argument(Json);

impl ToSql for Argument {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        if self.0.is_null() {
            return Ok(IsNull::Yes);
        }
        binary::write(kind, &self.0, out)?;
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// Writes the bytes of a parameter.
fn put(out: &mut BytesMut, bytes: &[u8]) {
    out.put_slice(bytes);
}
