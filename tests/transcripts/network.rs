//! The network of transcripts with `http: yes`: one real server under several names, each granted otherwise.

use std::{
    io::{self, BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use cellar_bridges::{HostBridges, Http, HttpRule, Lookup, LookupFuture, Options};
use libtest_mimic::Failed;

/// A running server, and the bridges that lead to it.
pub(crate) struct Network {
    server: Child,
    pub(crate) bridges: HostBridges,
}

impl Network {
    pub(crate) fn start() -> Result<Network, Failed> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/bridges/http_server.py");
        let mut server = Command::new("python3").arg(script).stdout(Stdio::piped()).spawn()?;
        let mut port = String::new();
        BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut port)?;
        let names = Names { port: port.trim().parse()? };
        let bridges = HostBridges::new(Options { http: grants(), ..Options::default() }).with_lookup(Arc::new(names));
        Ok(Network { server, bridges })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// What is granted: `api.test` and `other.test` whole, of `reads.test` what reads, of `docs.test` what is below `/text`, and
/// the rest as long as it is on the internet.
fn grants() -> Http {
    let rule = |host: &str| HttpRule { host: host.to_owned(), ports: vec![80], private: true, ..HttpRule::default() };
    let allow = vec![
        rule("api.test"),
        rule("other.test"),
        HttpRule { methods: vec!["GET".to_owned()], ..rule("reads.test") },
        HttpRule { paths: vec!["/text".to_owned()], ..rule("docs.test") },
        rule("metadata.test"),
        HttpRule { private: false, ..rule("*.internet.test") },
        HttpRule { private: false, ..rule("127.0.0.1") },
    ];
    Http { allow, response_bytes: 1 << 20, request_bytes: 1 << 10, ..Http::default() }
}

/// Each name is this server, but for one.
struct Names {
    port: u16,
}

impl Lookup for Names {
    fn lookup(&self, name: &str) -> LookupFuture {
        let address: IpAddr = if name == "metadata.test" { [169, 254, 169, 254].into() } else { [127, 0, 0, 1].into() };
        let found = match name {
            "api.test" | "other.test" | "reads.test" | "docs.test" | "metadata.test" | "www.internet.test" => {
                Ok(vec![SocketAddr::new(address, self.port)])
            }
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
        };
        Box::pin(std::future::ready(found))
    }
}
