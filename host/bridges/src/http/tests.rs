use std::{
    collections::HashMap,
    ffi::OsStr,
    io,
    net::SocketAddr,
    path::PathBuf,
    process::Command,
    sync::{Mutex, PoisonError},
};

use super::*;
use crate::service::Service;

/// A variable that every test has, in the place of a secret.
const SECRET: &str = "CARGO_MANIFEST_DIR";

/// Answers look-ups from lists: each name's next answer, the last one again and again.
#[derive(Default)]
struct Names(Mutex<HashMap<String, Vec<Vec<SocketAddr>>>>);

impl Names {
    fn of(names: &[(&str, &[&[&str]])]) -> Arc<Names> {
        let address = |text: &&str| SocketAddr::new(text.parse().expect("an address"), 0);
        let answers = |answers: &[&[&str]]| answers.iter().map(|list| list.iter().map(address).collect()).collect();
        Arc::new(Names(Mutex::new(names.iter().map(|(name, list)| ((*name).to_owned(), answers(list))).collect())))
    }
}

impl Lookup for Names {
    fn lookup(&self, name: &str) -> LookupFuture {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = names.get_mut(name).map(|list| if list.len() > 1 { list.remove(0) } else { list[0].clone() });
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "no such name");
        Box::pin(std::future::ready(answer.ok_or_else(unknown)))
    }
}

/// A server, and what is granted of it: `local.test` with private addresses, all other names without.
struct Setting {
    server: Service,
    options: Http,
    names: Arc<Names>,
}

impl Setting {
    fn new() -> Setting {
        let server = Service::start("http_server.py", &[]);
        let ports = vec![server.port];
        let rule = |host: &str| HttpRule { host: host.to_owned(), ports: ports.clone(), ..HttpRule::default() };
        let allow = vec![HttpRule { private: true, ..rule("local.test") }, rule("*")];
        let names = Names::of(&[("local.test", &[&["127.0.0.1"]])]);
        Setting { server, options: Http { allow, ..Http::default() }, names }
    }

    fn network(&self) -> Arc<Network> {
        Arc::new(Network::new(self.options.clone()).with_lookup(self.names.clone()))
    }

    /// A request for a path of `host`.
    fn call(&self, method: &str, host: &str, path: &str) -> HttpCall {
        let url = format!("http://{host}:{}{path}", self.server.port);
        HttpCall { method: method.to_owned(), url, ..HttpCall::default() }
    }

    async fn get(&self, host: &str, path: &str) -> Result<HttpResponse, CallError> {
        ask(&self.network(), self.call("GET", host, path)).await
    }

    async fn refused(&self, host: &str, path: &str) -> CallError {
        self.get(host, path).await.expect_err(path)
    }
}

async fn ask(network: &Arc<Network>, call: HttpCall) -> Result<HttpResponse, CallError> {
    match crate::clean::clean(network.clone().ask(call, Arc::default()).await)? {
        Response::Http(response) => Ok(response),
        other => panic!("{other:?}"),
    }
}

fn text(response: &HttpResponse) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

fn header<'a>(response: &'a HttpResponse, wanted: &str) -> Vec<&'a str> {
    let of = response.headers.iter().filter(|(name, _)| name == wanted);
    of.map(|(_, value)| value.as_str()).collect()
}

#[tokio::test]
async fn an_answer_comes_back_whole() {
    let setting = Setting::new();
    let answer = setting.get("local.test", "/text/hello").await.expect("granted");
    assert_eq!((answer.status, text(&answer).as_str()), (200, "hello"));
    assert_eq!(header(&answer, "x-twice"), ["a", "b"]);
    let url = format!("http://local.test:{}/text/hello", setting.server.port);
    assert_eq!(answer.url, url);
}

#[tokio::test]
async fn the_request_is_what_the_cell_wrote() {
    let setting = Setting::new();
    let headers = vec![("X-Name".to_owned(), "ü".to_owned())];
    let call = HttpCall { headers, body: Some(b"body".to_vec()), ..setting.call("PUT", "local.test", "/echo?a=b") };
    let answer = ask(&setting.network(), call).await.expect("granted");
    let told: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!((&told["method"], &told["path"], &told["body"]), (&"PUT".into(), &"/echo?a=b".into(), &"body".into()));
    assert_eq!(told["headers"]["x-name"], "ü");
    assert_eq!(told["headers"]["host"], format!("local.test:{}", setting.server.port));
}

#[tokio::test]
async fn a_private_address_must_be_granted() {
    let private = ["127.0.0.1", "10.0.0.1", "::1", "fd00::1", "100.64.0.1"];
    for address in private {
        let setting = Setting { names: Names::of(&[("a.test", &[&[address]])]), ..Setting::new() };
        let error = setting.refused("a.test", "/text/x").await;
        assert_eq!(error.kind, CallErrorKind::Denied, "{error}");
        assert!(error.message.contains("set private = true for that host under [http] allow"), "{error}");
        assert!(!error.message.contains(address), "{error}");
    }
    let message = Setting::new().refused("127.0.0.1", "/text/x").await.message;
    assert!(message.starts_with("`127.0.0.1` has a loopback address, which is not granted"), "{message}");
}

#[tokio::test]
async fn some_addresses_are_never_granted() {
    let names: [&[&[&str]]; 5] =
        [&[&["169.254.169.254"]], &[&["0.0.0.0"]], &[&["::ffff:127.0.0.1"]], &[&["fe80::1"]], &[&["64:ff9b::7f00:1"]]];
    for addresses in names {
        let setting = Setting { names: Names::of(&[("local.test", addresses)]), ..Setting::new() };
        let error = setting.refused("local.test", "/text/x").await;
        assert_eq!(error.kind, CallErrorKind::Denied, "{error}");
        assert!(error.message.contains("has an address that is never granted: "), "{error}");
    }
    let mut setting = Setting::new();
    setting.options.allow[1].private = true;
    for host in ["169.254.169.254", "[::ffff:127.0.0.1]", "0.0.0.0", "0", "[::]", "224.0.0.1"] {
        let error = setting.refused(host, "/").await;
        assert!(error.message.contains("has an address that is never granted: "), "{host}: {error}");
    }
}

#[tokio::test]
async fn every_spelling_of_this_machine_is_refused() {
    let setting = Setting::new();
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "127.0.0.1.",
        "１２７.0.0.1",
        "[::1]",
    ] {
        let error = setting.refused(host, "/text/x").await;
        assert!(error.message.contains("has a loopback address"), "{host}: {error}");
    }
}

#[tokio::test]
async fn one_bad_address_among_good_ones_is_refused() {
    let names = Names::of(&[("a.test", &[&["93.184.216.34", "127.0.0.1"]])]);
    let error = Setting { names, ..Setting::new() }.refused("a.test", "/text/x").await;
    assert!(error.message.contains("has a loopback address"), "{error}");
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_caught_each_time() {
    // What was looked up is what is connected to: were the name looked up again for that, these would be let through.
    let first: &[&str] = &["127.0.0.1"];
    let names =
        Names::of(&[("local.test", &[first, &["169.254.169.254"]]), ("a.test", &[&["127.0.0.1"], &["10.0.0.1"]])]);
    let mut setting = Setting { names, ..Setting::new() };
    setting.options.allow[1].private = false;
    let network = setting.network();
    assert!(ask(&network, setting.call("GET", "local.test", "/text/x")).await.is_ok(), "looked up once, and connected");
    for _ in 0..2 {
        let error = ask(&network, setting.call("GET", "a.test", "/text/x")).await.expect_err("refused");
        assert_eq!(error.kind, CallErrorKind::Denied);
    }
    // A new connection is a new look-up.
    let error = ask(&setting.network(), setting.call("GET", "local.test", "/text/x")).await.expect_err("refused");
    assert!(error.message.contains("has an address that is never granted: link-local"), "{error}");
}

#[tokio::test]
async fn a_connection_for_one_rule_serves_no_other() {
    let setting = Setting::new();
    let mut rule = setting.options.allow[0].clone();
    rule.methods = vec!["GET".to_owned()];
    let strict = HttpRule { private: false, methods: Vec::new(), ..rule.clone() };
    let setting = Setting { options: Http { allow: vec![rule, strict], ..Http::default() }, ..setting };
    let network = setting.network();
    assert!(ask(&network, setting.call("GET", "local.test", "/text/x")).await.is_ok());
    let error = ask(&network, setting.call("POST", "local.test", "/text/x")).await.expect_err("refused");
    assert!(error.message.contains("has a loopback address"), "{error}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let setting = Setting::new();
    let answer = setting.get("local.test", "/redirect/302/http:%2F%2F169.254.169.254%2F").await.expect("granted");
    assert_eq!((answer.status, header(&answer, "location")), (302, vec!["http://169.254.169.254/"]));
}

#[tokio::test]
async fn credentials_are_added_and_never_told() {
    let secret = env!("CARGO_MANIFEST_DIR");
    let mut setting = Setting::new();
    let template = HeaderTemplate::parse(&format!("Bearer ${{{SECRET}}}")).expect("a template");
    setting.options.allow[0].headers = vec![("authorization".to_owned(), template)];
    let headers = vec![("Authorization".to_owned(), "mine".to_owned())];
    let call = HttpCall { headers, ..setting.call("GET", "local.test", "/echo") };
    let answer = ask(&setting.network(), call).await.expect("granted");
    assert!(text(&answer).contains("Bearer ***") && !text(&answer).contains(secret), "{}", text(&answer));
    let length = secret.len();
    let escaped: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let told = setting.get("local.test", &format!("/redirect/302/{escaped}")).await.expect("granted");
    assert_eq!(header(&told, "location"), ["***"], "{length}");
    let missing = HeaderTemplate::parse("CELLAR_NO_SUCH_TOKEN").expect("a template");
    setting.options.allow[0].headers = vec![("x-key".to_owned(), missing)];
    let error = setting.refused("local.test", "/echo").await;
    assert!(
        error.message.contains("the environment variable `CELLAR_NO_SUCH_TOKEN` (headers_env) is not set"),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_too_large_is_not_read_to_its_end() {
    let mut setting = Setting::new();
    setting.options.response_bytes = 1 << 20;
    setting.options.request_bytes = 10;
    assert_eq!(setting.get("local.test", "/bytes/1048576").await.expect("just small enough").body.len(), 1 << 20);
    let error = setting.refused("local.test", "/bytes/1000000000000").await;
    assert_eq!(error.kind, CallErrorKind::Limit);
    assert!(
        error.message.contains("has more than 1048576 bytes (response_mib under [http] in cellar.toml)"),
        "{error}"
    );
    let call = HttpCall { body: Some(vec![0; 11]), ..setting.call("POST", "local.test", "/echo") };
    let error = ask(&setting.network(), call).await.expect_err("refused");
    assert!(error.message.contains("at most 10 are granted (request_mib"), "{error}");
    let error = setting.refused("local.test", "/long/70000").await;
    assert!(error.message.contains("headers"), "{error}");
    assert_eq!(setting.refused("local.test", "/headers/200").await.kind, CallErrorKind::Failed);
}

#[tokio::test]
async fn packed_answers_are_passed_on_as_they_are() {
    let setting = Setting::new();
    let answer = setting.get("local.test", "/gzip/10000000").await.expect("granted");
    assert!(answer.body.len() < 20_000, "nothing is unpacked on this side");
    assert_eq!(header(&answer, "content-encoding"), ["gzip"]);
}

#[tokio::test]
async fn a_slow_answer_is_given_up() {
    let mut setting = Setting::new();
    let timeout = Some(Duration::from_millis(200));
    let call = HttpCall { timeout, ..setting.call("GET", "local.test", "/slow/20") };
    let error = ask(&setting.network(), call).await.expect_err("given up");
    assert_eq!(
        (error.kind, error.message.as_str()),
        (CallErrorKind::Limit, "`local.test` did not answer within 0.2 s")
    );
    setting.options.timeout = Duration::from_millis(100);
    let call = HttpCall { timeout: Some(Duration::from_secs(50)), ..setting.call("GET", "local.test", "/hang") };
    let error = ask(&setting.network(), call).await.expect_err("given up");
    assert_eq!(error.message, "`local.test` did not answer within 0.1 s", "the host's own limit");
}

#[tokio::test]
async fn a_request_that_is_given_up_is_dropped_at_the_server() {
    let setting = Setting::new();
    let call = HttpCall { timeout: Some(Duration::from_millis(300)), ..setting.call("GET", "local.test", "/hang") };
    assert!(ask(&setting.network(), call).await.is_err());
    assert_eq!(text(&setting.get("local.test", "/dropped").await.expect("granted")), "dropped");
}

#[tokio::test]
async fn what_goes_wrong_on_the_way_has_its_message() {
    let setting = Setting::new();
    let check = async |host: &str, path: &str, expected: &str| {
        let error = setting.refused(host, path).await;
        assert_eq!(error.kind, CallErrorKind::Failed);
        assert!(error.message.contains(expected), "{error}");
    };
    check("unknown.test", "/", "the host `unknown.test` was not found: no such name").await;
    check("local.test", "/cut", "end of file before message length reached").await;
    check("local.test", "/nonsense", "the request to `local.test` failed: ").await;
    drop(setting);
    let setting = Setting::new();
    let call = setting.call("GET", "local.test", "/");
    let network = setting.network();
    drop(setting);
    let error = ask(&network, call).await.expect_err("nobody listens");
    assert!(error.message.contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn a_session_makes_as_many_requests_as_were_granted() {
    let mut setting = Setting::new();
    setting.options.calls = 2;
    let network = setting.network();
    let spent = Arc::new(Spent::default());
    let ask = |host: &str| network.clone().ask(setting.call("GET", host, "/text/x"), spent.clone());
    assert!(ask("127.0.0.1").await.is_err(), "what is refused is not counted");
    assert!(ask("local.test").await.is_ok() && ask("local.test").await.is_ok());
    let error = ask("local.test").await.expect_err("refused");
    assert_eq!(error.message, "this session has made its 2 requests (calls under [http] in cellar.toml)");
}

#[tokio::test]
async fn certificates_are_checked() {
    let folder = std::env::temp_dir().join(format!("cellar-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (certificate, key) = self_made_certificate(&folder);
    let server = Service::start("http_server.py", &[certificate.as_ref() as &OsStr, key.as_ref()]);
    let rule = HttpRule {
        host: "*".to_owned(),
        ports: vec![server.port],
        schemes: vec!["https".to_owned()],
        private: true,
        ..HttpRule::default()
    };
    let names = Names::of(&[("local.test", &[&["127.0.0.1"]]), ("other.test", &[&["127.0.0.1"]])]);
    let get = async |host: &str, certificates: Vec<u8>| {
        let options = Http { allow: vec![rule.clone()], certificates, ..Http::default() };
        let network = Arc::new(Network::new(options).with_lookup(names.clone()));
        let url = format!("https://{host}:{}/text/secret", server.port);
        ask(&network, HttpCall { method: "GET".to_owned(), url, ..HttpCall::default() }).await
    };
    let trusted = std::fs::read(&certificate).expect("a certificate");
    assert_eq!(text(&get("local.test", trusted.clone()).await.expect("trusted")), "secret");
    let unknown = get("local.test", Vec::new()).await.expect_err("nobody vouches for it").message;
    assert!(unknown.contains("certificate"), "{unknown}");
    let other = get("other.test", trusted).await.expect_err("made out to another name").message;
    assert!(other.contains("certificate") && other.contains("other.test"), "{other}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// A certificate for `local.test` that vouches for itself, and its key.
fn self_made_certificate(folder: &std::path::Path) -> (PathBuf, PathBuf) {
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    openssl.args(["-subj", "/CN=local.test", "-addext", "subjectAltName=DNS:local.test"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    let made = openssl.arg("-out").arg(&certificate).arg("-keyout").arg(&key).output().expect("openssl starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (certificate, key)
}
