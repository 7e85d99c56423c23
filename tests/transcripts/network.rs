//! Servers for transcripts with `http: yes` or `llm: …`: one real server under several names, each granted otherwise; a
//! real service with models.

use std::{
    io::{self, BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use cellar_bridges::{HostBridges, Http, HttpRule, Llm, Lookup, LookupFuture, Options};
use cellar_engine::{
    Bridges,
    bridges::{Call, CallFuture, Caller},
};
use libtest_mimic::Failed;

/// A running server, and the bridges that lead to it.
pub(crate) struct Network {
    server: Child,
    bridges: HostBridges,
}

impl Bridges for Network {
    fn call(&self, call: Call, caller: Caller) -> CallFuture {
        self.bridges.call(call, caller)
    }
}

impl Network {
    pub(crate) fn start() -> Result<Network, Failed> {
        let (server, port) = serve("http_server.py")?;
        let bridges = HostBridges::new(Options { http: grants(), ..Options::default() });
        Ok(Network { server, bridges: bridges.with_lookup(Arc::new(Names { port, rebound: AtomicBool::new(false) })) })
    }

    /// Models behind the tiers `smol` and `default`. `bounds` are words such as `calls=3`, `tokens=100`, `timeout=1` and
    /// `key=VARIABLE`.
    pub(crate) fn with_models(bounds: &str) -> Result<Network, Failed> {
        let (server, port) = serve("llm_server.py")?;
        let tiers = [("smol", "small"), ("default", "medium")];
        let mut llm = Llm {
            endpoint: format!("http://127.0.0.1:{port}/v1"),
            api_key_env: None,
            timeout: Duration::from_secs(60),
            tiers: tiers.map(|(tier, model)| (tier.to_owned(), model.to_owned())).into(),
            reasoning_effort: Default::default(),
            calls: None,
            tokens: None,
        };
        for bound in bounds.split(' ').filter(|bound| *bound != "yes") {
            match bound.split_once('=').ok_or("expected NAME=VALUE")? {
                ("calls", count) => llm.calls = Some(count.parse()?),
                ("tokens", count) => llm.tokens = Some(count.parse()?),
                ("timeout", seconds) => llm.timeout = Duration::from_secs(seconds.parse()?),
                ("key", variable) => llm.api_key_env = Some(variable.to_owned()),
                _ => return Err(format!("unknown bound `{bound}`").into()),
            }
        }
        Ok(Network { server, bridges: HostBridges::new(Options { llm: Some(llm), ..Options::default() }) })
    }
}

/// Starts a script of `fixtures/bridges`, which prints its port.
fn serve(script: &str) -> Result<(Child, u16), Failed> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/bridges").join(script);
    let mut server = Command::new("python3").arg(script).stdout(Stdio::piped()).spawn()?;
    let mut port = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut port)?;
    Ok((server, port.trim().parse()?))
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Returns the grants: all of `api.test` and `other.test`, reads of `reads.test`, paths below `/text` of `docs.test`,
/// and the rest, addresses too, as long as it is on the internet.
fn grants() -> Http {
    let rule = |host: &str| HttpRule { host: host.to_owned(), ports: vec![80], private: true, ..HttpRule::default() };
    let allow = vec![
        rule("api.test"),
        rule("other.test"),
        HttpRule { methods: vec!["GET".to_owned()], ..rule("reads.test") },
        HttpRule { paths: vec!["/text".to_owned()], ..rule("docs.test") },
        rule("metadata.test"),
        rule("rebound.test"),
        HttpRule { private: false, ..rule("*.internet.test") },
    ];
    let addresses = ADDRESSES.map(|address| HttpRule { private: false, ..rule(address) });
    let allow = allow.into_iter().chain(addresses).collect();
    let timeout = Duration::from_secs(5);
    Http { allow, timeout, response_bytes: 1 << 20, request_bytes: 1 << 10, ..Http::default() }
}

/// Granted by their spelling, which does not help them.
const ADDRESSES: [&str; 8] =
    ["127.0.0.1", "0.0.0.0", "10.0.0.1", "192.168.1.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "[fd00::1]"];

/// Each name is this server, but for two: that of a cloud's secrets, and one that becomes it when it is looked up again.
struct Names {
    port: u16,
    rebound: AtomicBool,
}

impl Lookup for Names {
    fn lookup(&self, name: &str) -> LookupFuture {
        let is_metadata = match name {
            "metadata.test" => true,
            "rebound.test" => self.rebound.swap(true, Ordering::Relaxed),
            _ => false,
        };
        let address: IpAddr = if is_metadata { [169, 254, 169, 254].into() } else { [127, 0, 0, 1].into() };
        let found = match name {
            "api.test" | "other.test" | "reads.test" | "docs.test" | "metadata.test" | "rebound.test"
            | "www.internet.test" => Ok(vec![SocketAddr::new(address, self.port)]),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
        };
        Box::pin(std::future::ready(found))
    }
}
