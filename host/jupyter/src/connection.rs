//! The connection file that a client of Jupyter hands to a kernel, and the addresses in it.

use std::{
    io,
    net::IpAddr,
    os::unix::fs::FileTypeExt as _,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
};

use cellar_wire::{
    check::{At, Invalid, Problems},
    json::{self, Node},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
};

/// Address that a socket is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// IP address and port.
    Tcp(IpAddr, u16),
    /// Path of a Unix socket.
    Ipc(PathBuf),
}

/// Addresses of a kernel, and the key and scheme of its messages' signatures.
#[derive(Clone, PartialEq, Eq)]
pub struct Connection {
    pub(crate) shell: Address,
    pub(crate) control: Address,
    pub(crate) stdin: Address,
    pub(crate) iopub: Address,
    pub(crate) heartbeat: Address,
    pub(crate) key: String,
    pub(crate) scheme: String,
    /// Ports, in the order of `PORTS`, for clients that ask for them.
    pub(crate) ports: [u16; 5],
}

impl std::fmt::Debug for Connection {
    /// Leaves out the key, because the output may be printed where others can read it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("shell", &self.shell).finish_non_exhaustive()
    }
}

/// The members that hold ports, in the order of [`Connection::ports`].
pub(crate) const PORTS: [&str; 5] = ["shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"];

impl Connection {
    /// Reads a connection file.
    ///
    /// # Errors
    /// It is no JSON, or lacks something.
    pub fn parse(bytes: &[u8]) -> Result<Connection, Invalid> {
        let mut problems = Problems::default();
        let node = match json::parse(bytes) {
            Ok(node) => node,
            Err(fault) => {
                problems.add("$", fault);
                Node::Null
            }
        };
        let value = if matches!(node, Node::Object(_)) { read(&node, &mut problems) } else { None };
        if value.is_none() && matches!(node, Node::Array(_) | Node::Text(_) | Node::Number(_) | Node::Boolean(_)) {
            At::root(&node, "$").expected("an object", &mut problems);
        }
        problems.finish("the connection file", value)
    }
}

fn read(node: &Node, problems: &mut Problems) -> Option<Connection> {
    let root = At::root(node, "$");
    // Clients add members of their own (`kernel_name`, `jupyter_session`), so unknown ones are left alone.
    let entries = root.entries(problems)?;
    let member = |name: &str, what: &str, problems: &mut Problems| {
        let found = entries.iter().find(|(key, _)| *key == name).map(|(_, at)| at.clone());
        if found.is_none() {
            problems.add(&format!("$.{name}"), format_args!("expected {what}, found nothing"));
        }
        found
    };
    let text = |name: &str, problems: &mut Problems| {
        member(name, "a string", problems).and_then(|at| at.text(problems).map(str::to_owned))
    };
    let transport = text("transport", problems);
    let ip = text("ip", problems);
    let key = text("key", problems);
    let scheme = match entries.iter().find(|(name, _)| *name == "signature_scheme") {
        Some((_, at)) => at.text(problems).map(str::to_owned),
        None => Some("hmac-sha256".to_owned()),
    };
    let ports = PORTS.map(|name| {
        let at = member(name, "a port", problems)?;
        at.integer(1..=u64::from(u16::MAX), problems).and_then(|port| u16::try_from(port).ok())
    });
    let (transport, ip) = (transport?, ip?);
    let base = match transport.as_str() {
        "tcp" if ip == "localhost" => Some(Base::Tcp(IpAddr::from([127, 0, 0, 1]))),
        "tcp" if ip == "*" => Some(Base::Tcp(IpAddr::from([0, 0, 0, 0]))),
        "tcp" => {
            let parsed = ip.parse().ok();
            if parsed.is_none() {
                member("ip", "", problems)?.expected("an address of this machine", problems);
            }
            parsed.map(Base::Tcp)
        }
        "ipc" => Some(Base::Ipc(ip)),
        _ => {
            member("transport", "", problems)?.expected("\"tcp\" or \"ipc\"", problems);
            None
        }
    }?;
    let [shell, iopub, stdin, control, heartbeat] = ports;
    let ports = [shell?, iopub?, stdin?, control?, heartbeat?];
    Some(Connection {
        shell: base.with(ports[0]),
        iopub: base.with(ports[1]),
        stdin: base.with(ports[2]),
        control: base.with(ports[3]),
        heartbeat: base.with(ports[4]),
        key: key?,
        scheme: scheme?,
        ports,
    })
}

/// Common part of a kernel's addresses.
enum Base {
    Tcp(IpAddr),
    Ipc(String),
}

impl Base {
    fn with(&self, port: u16) -> Address {
        match self {
            Base::Tcp(ip) => Address::Tcp(*ip, port),
            Base::Ipc(prefix) => Address::Ipc(format!("{prefix}-{port}").into()),
        }
    }
}

/// Listener for connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Ipc(UnixListener),
}

impl Listener {
    pub(crate) async fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp(ip, port) => Ok(Listener::Tcp(TcpListener::bind((*ip, *port)).await?)),
            Address::Ipc(path) => {
                // What an earlier kernel of the same connection file has left.
                if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
                    std::fs::remove_file(path)?;
                }
                Ok(Listener::Ipc(UnixListener::bind(path)?))
            }
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Listener::Ipc(listener) => Ok(Stream::Ipc(listener.accept().await?.0)),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Ipc(UnixStream),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Ipc(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Ipc(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Ipc(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Ipc(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5,
        "ip": "127.0.0.1", "key": "k", "transport": "tcp", "signature_scheme": "hmac-sha256", "kernel_name": "x"}"#;

    #[test]
    fn connection_files_of_both_transports_are_read() {
        let tcp = Connection::parse(WHOLE.as_bytes()).expect("valid");
        assert_eq!((tcp.stdin, tcp.key.as_str()), (Address::Tcp([127, 0, 0, 1].into(), 3), "k"));
        let ipc = WHOLE.replace("tcp", "ipc").replace("127.0.0.1", "/run/kernel");
        assert_eq!(Connection::parse(ipc.as_bytes()).expect("valid").heartbeat, Address::Ipc("/run/kernel-5".into()));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        let check = |from: &str, to: &str, words: &str| {
            let refused = Connection::parse(WHOLE.replace(from, to).as_bytes()).expect_err(words).to_string();
            assert!(refused.contains(words), "{refused}");
        };
        check("\"hb_port\": 5,", "", "$.hb_port: expected a port, found nothing");
        check("\"hb_port\": 5", "\"hb_port\": 70000", "$.hb_port: expected an integer from 1 to 65535, found 70000");
        check("tcp", "udp", "$.transport: expected \"tcp\" or \"ipc\", found \"udp\"");
        check("127.0.0.1", "nowhere", "$.ip: expected an address of this machine");
        check("\"k\"", "5", "$.key: expected a string, found 5");
        check("{", "[{", "expected a JSON text");
        for text in ["", "[]", "null", "7", "\"x\"", "{}"] {
            assert!(Connection::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
