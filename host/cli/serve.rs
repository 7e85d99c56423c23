//! `cellar serve`: sessions and runs over HTTP. The server is `cellar_server`; here it is told when to stop.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use cellar_config::{Config, Logs, Overrides};
use cellar_server::{Isolation, ServeError, Server, ServerConfig, StoreClaim, serve_worker};
use serde_json::json;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{
    args::{Folders, ServeArguments},
    on_runtime, output,
    report::{CliError, EXIT_COMPLETE, EXIT_FAILURE, print_progress},
    socket::SessionDoors,
};

/// Target of the lines of the log that tell of the start and the end.
const LOG: &str = "cellar_server::lifecycle";

/// Returns true if the configuration of a server asks for logs as JSON objects. Errors of the configuration are reported when
/// the server starts.
pub(crate) fn logs_json(arguments: &ServeArguments) -> bool {
    let path = arguments.granted.config.as_ref();
    path.and_then(|path| Config::load(path).ok()).is_some_and(|config| config.server.logs == Some(Logs::Json))
}

/// Time for each step of a question to another server.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Confines this process, and serves until it is told to stop. Nothing else may run in it yet.
///
/// # Errors
/// The configuration is not valid, the address is in use, or the process cannot be confined as it is asked to be.
pub(crate) fn serve(folders: &Folders, arguments: ServeArguments) -> Result<u8, CliError> {
    if arguments.health {
        let address = arguments.listen.unwrap_or(cellar_server::LISTEN);
        return Ok(ask_health(address).map_or_else(
            |error| {
                print_progress(&format!("the server at {address} is not in order: {error}"));
                EXIT_FAILURE
            },
            |()| EXIT_COMPLETE,
        ));
    }
    let (folders, overrides) = (folders.into(), Overrides::from(&arguments.granted));
    let (mut config, token) = ServerConfig::new(&folders, &overrides, print_progress)?;
    config.listen = arguments.listen.unwrap_or(config.listen);
    if let Some(tenant) = &arguments.worker {
        let confined = config.confine_worker(tenant).map_err(ServeError::from)?;
        let doors = Arc::new(SessionDoors);
        let served = serve_worker(config, confined.isolation.clone(), doors);
        return on_runtime(async { Ok(served.await.map(|()| EXIT_COMPLETE)?) });
    }
    if let Some(worker) = &mut config.worker {
        worker.argv = own_command()?;
    }
    let store = folders.store()?;
    config.check()?;
    if arguments.check {
        return check(config);
    }
    let claim = config.claim_stores()?;
    let listener = config.listen()?;
    let confined = config.confine().map_err(ServeError::from)?;
    let is_json = logs_json(&arguments);
    let served = Served { config, isolation: confined.isolation.clone(), listener, store, token, is_json };
    let code = on_runtime(serve_on(served));
    drop::<StoreClaim>(claim);
    code
}

/// Goes as far as a server goes that starts, and stops there. One that runs already on the same address keeps its store to itself:
/// then the store is not opened.
fn check(config: ServerConfig) -> Result<u8, CliError> {
    let is_taken = match config.listen() {
        Ok(_) => false,
        Err(ServeError::Listen { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => true,
        Err(error) => return Err(error.into()),
    };
    if let Some(tokens) = &config.tokens {
        tokens.list()?;
    }
    let tenants: Vec<String> = config.tenants.iter().map(|tenant| tenant.name.clone()).collect();
    let address = config.listen;
    let confined = config.confine().map_err(ServeError::from)?;
    let isolation = confined.isolation.clone();
    if !is_taken {
        on_runtime(async { Ok(Server::open(config, isolation, Arc::new(SessionDoors)).map(|_| EXIT_COMPLETE)?) })?;
    }
    let taken = if is_taken { ", where a server listens now" } else { "" };
    output::print(&format!("a server would start on http://{address}{taken}, for {}\n", tenants.join(", ")))?;
    Ok(EXIT_COMPLETE)
}

/// Asks a server whether it is in order.
fn ask_health(mut address: SocketAddr) -> io::Result<()> {
    // One that listens everywhere is reached by the loopback address.
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let mut stream = TcpStream::connect_timeout(&address, HEALTH_TIMEOUT)?;
    stream.set_read_timeout(Some(HEALTH_TIMEOUT))?;
    stream.set_write_timeout(Some(HEALTH_TIMEOUT))?;
    stream.write_all(format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    match head.ends_with(b" 200") {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&head).into_owned())),
    }
}

/// Returns the command line of this process.
fn own_command() -> Result<Vec<String>, CliError> {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.into_string());
    let arguments: Result<Vec<String>, _> = arguments.collect();
    let arguments = arguments.map_err(|_| CliError::Start(std::io::ErrorKind::InvalidFilename.into()))?;
    // As it was when it was started, whatever was put in its place since.
    Ok(std::iter::once("/proc/self/exe".to_owned()).chain(arguments).collect())
}

/// Server to run: its configuration, isolation, listener and store.
struct Served {
    config: ServerConfig,
    isolation: Isolation,
    listener: std::net::TcpListener,
    store: PathBuf,
    token: Option<String>,
    /// True if what it says is said as JSON.
    is_json: bool,
}

async fn serve_on(served: Served) -> Result<u8, CliError> {
    let Served { config, isolation, listener, store, token, is_json } = served;
    let tenants: Vec<String> = config.tenants.iter().map(|tenant| tenant.name.clone()).collect();
    let mut reload = signal(SignalKind::hangup()).map_err(CliError::Start)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::Start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Start)?;
    let listener = TcpListener::from_std(listener).map_err(CliError::Start)?;
    let server = Server::open(config, isolation, Arc::new(SessionDoors))?;
    let address = listener.local_addr().map_err(CliError::Start)?;
    let reach =
        if address.ip().is_loopback() { "from this machine alone" } else { "from wherever this address is reached" };
    let whom = match &token {
        Some(token) => format!("token: {token}"),
        None => format!("tenants: {}; `cellar token new` makes their tokens", tenants.join(", ")),
    };
    let told = format!("serving on http://{address}, {reach}\n{whom}\nsessions are kept in {}\n", store.display());
    match is_json {
        true => {
            let told = json!({
                "message": "serving", "address": address.to_string(), "token": token, "tenants": tenants, "store": store,
            });
            output::print(&format!("{told}\n"))?;
        }
        false => output::print(&told)?,
    }
    tracing::info!(target: LOG, %address, store = %store.display(), tenants = tenants.join(","), "serving");
    let reloaded = server.clone();
    let reloading = async move {
        while reload.recv().await.is_some() {
            match reloaded.reload() {
                Ok(()) => {
                    reloaded.tell_workers().await;
                    print_progress("the tokens were read again");
                }
                Err(error) => tracing::error!(%error, "the tokens stay as they were"),
            }
        }
    };
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!(target: LOG, "stopping: no new work is taken, and runs are given time to end");
    };
    tokio::select! {
        () = server.serve(listener, stop) => {}
        () = reloading => {}
    }
    tracing::info!(target: LOG, "stopped");
    Ok(EXIT_COMPLETE)
}
