//! A build with a hole: this program is a server whose workers run native code of an attacker, as a guest would that has broken out of
//! WebAssembly, beside the sessions of their tenant. Each attempt meets the denial that is named for it, lies to the process in front
//! cost nobody else anything, and cells run afterwards.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]
#![cfg(target_arch = "x86_64")]

mod attempts;
mod lies;
mod system_calls;

use std::{
    fs, io,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use cellar_bridges::NoDoors;
use cellar_config::{Folders, Overrides};
use cellar_engine::HostFolders;
use cellar_server::{NewToken, Scope, Server, ServerConfig, serve_worker};
use libtest_mimic::{Arguments, Trial};

use crate::{attempts::attempts, lies::LIES};

/// Arguments of the program in front; its workers have two more.
const FRONT: &str = "front-with-a-hole";
/// Has the attacker end its worker.
const END: &str = "end";
/// Part of the answer of a cell that ran.
const COUNTED: &str = "counted";
/// Time for anything to happen.
const PATIENCE: Duration = Duration::from_secs(120);

const TEXT: &str = r#"
secrets = ["./secret"]
[server]
isolate = "tenant"
[tenants.red]
[tenants.blue]
"#;

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().collect();
    if given.iter().any(|word| word == cellar_worker::HELP) {
        return if cellar_worker::help().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if let Some(at) = given.iter().position(|word| word == FRONT) {
        let folder = PathBuf::from(&given[at + 1]);
        match given.get(at + 3) {
            Some(tenant) => worker(&folder, tenant),
            None => front(&folder),
        }
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("native_code_in_a_worker_meets_a_named_denial_each_time", || {
            native_code_in_a_worker_meets_a_named_denial_each_time();
            Ok(())
        }),
        Trial::test("a_worker_that_lies_to_the_process_in_front_harms_its_tenant_alone", || {
            a_worker_that_lies_to_the_process_in_front_harms_its_tenant_alone();
            Ok(())
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn configuration(folder: &Path) -> ServerConfig {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cache = std::env::var_os("CELLAR_CACHE").map(PathBuf::from).or_else(HostFolders::user_cache);
    let folders = Folders { guests: Some(root.join("target/guests")), cache, store: Some(folder.join("store")) };
    let overrides = Overrides { config: Some(folder.join("cellar.toml")), ..Overrides::default() };
    ServerConfig::new(&folders, &overrides, |_| {}).expect("valid").0
}

fn offer() {
    cellar_worker::offer(std::env::current_exe().expect("this program"), Vec::new());
}

/// Serves, as `cellar serve` does, and prints its address.
fn front(folder: &Path) {
    offer();
    let mut config = configuration(folder);
    config.listen = ([127, 0, 0, 1], 0).into();
    let own = ["/proc/self/exe", FRONT, folder.to_str().expect("text")];
    config.worker.as_mut().expect("workers").argv = own.map(str::to_owned).to_vec();
    let listener = config.listen().expect("a port");
    let confined = config.confine().expect("confined");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let server = Server::open(config, confined.isolation.clone(), Arc::new(NoDoors)).expect("opened");
        writeln!(io::stdout(), "{address}").expect("told");
        server.serve(listener, std::future::pending()).await;
    });
}

/// Becomes the worker of a tenant with an attacker in it, and serves.
fn worker(folder: &Path, tenant: &str) {
    offer();
    let mut config = configuration(folder);
    let confined = config.confine_worker(tenant).expect("confined");
    if tenant == "red" {
        let folder = folder.to_owned();
        std::thread::spawn(move || attack(&folder));
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(serve_worker(config, confined.isolation.clone(), Arc::new(NoDoors))).expect("served");
}

/// Does what the file `attack` of its tenant's store says, which is removed when it begins.
fn attack(folder: &Path) {
    let own = folder.join("store/.tenants/red");
    loop {
        let file = own.join("attack");
        let Ok(what) = fs::read_to_string(&file) else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let _ = fs::remove_file(&file);
        if what == END {
            std::process::exit(1);
        }
        match LIES.iter().find(|(name, _)| *name == what) {
            Some((_, lie)) => lie(),
            None => {
                let told: String = attempts(folder)
                    .into_iter()
                    .map(|(what, expected, found)| format!("{what}\t{expected}\t{found}\n"))
                    .collect();
                fs::write(own.join("told.part"), told).expect("its own store");
                fs::rename(own.join("told.part"), own.join("told")).expect("its own store");
            }
        }
    }
}

/// The server, and what lies beside it.
struct Front {
    folder: tempfile::TempDir,
    process: Child,
    address: String,
    tokens: [String; 2],
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Front {
    fn start() -> Front {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for tenant in ["red", "blue"] {
            let store = path("store/.tenants").join(tenant);
            fs::create_dir_all(&store).expect("a folder");
            fs::write(store.join("file"), "text").expect("written");
        }
        fs::write(path("secret"), "a-credential-of-some-length").expect("written");
        fs::write(path("cellar.toml"), TEXT).expect("written");
        let config = configuration(folder.path());
        let file = config.tokens.as_ref().expect("a file of tokens");
        let tokens = ["red", "blue"].map(|tenant| {
            let (tenant, name) = (tenant.to_owned(), "test".to_owned());
            let scopes = vec![Scope::Run, Scope::Read];
            file.add(NewToken { tenant, name, scopes, lifetime: None }).expect("a token")
        });
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let mut process =
            command.arg(FRONT).arg(folder.path()).stdout(Stdio::piped()).spawn().expect("this program starts");
        let mut address = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut address).expect("a line");
        Front { folder, process, address: address.trim().to_owned(), tokens }
    }

    /// Sends a request, and returns the answer.
    fn post(&self, tenant: usize, path: &str, body: &str) -> String {
        let token = &self.tokens[tenant];
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("sent");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// A new session of a tenant.
    fn session(&self, tenant: usize) -> String {
        let answer = self.post(tenant, "/v1/sessions", "{}");
        let at = answer.find("ses-").unwrap_or_else(|| panic!("{answer}"));
        answer[at..].chars().take_while(|letter| letter.is_alphanumeric() || *letter == '-').collect()
    }

    /// Runs a cell that counts in a session of a tenant, and returns the answer.
    fn eval(&self, tenant: usize, session: &str) -> String {
        let cell = r#"{"cells":[{"language":"js","code":"globalThis.n = (globalThis.n ?? 41) + 1; n >= 42 ? `counted` : n"}]}"#;
        self.post(tenant, &format!("/v1/sessions/{session}/runs"), cell)
    }

    /// Asserts that a cell of a tenant runs.
    fn check(&self, tenant: usize, session: &str, when: &str) {
        let answer = self.eval(tenant, session);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(COUNTED), "{when}: {answer}");
    }

    /// Has the attacker in the worker of red do something, and waits until it has begun.
    fn attack(&self, session: &str, what: &str) {
        let own = self.folder.path().join("store/.tenants/red");
        fs::write(own.join("attack.part"), what).expect("written");
        fs::rename(own.join("attack.part"), own.join("attack")).expect("written");
        eventually(what, || {
            // There is a worker while cells run.
            self.eval(0, session);
            !own.join("attack").exists()
        });
    }
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn native_code_in_a_worker_meets_a_named_denial_each_time() {
    let front = Front::start();
    let [red, blue] = [0, 1].map(|tenant| front.session(tenant));
    front.check(0, &red, "before");
    front.attack(&red, "everything");
    let told = front.folder.path().join("store/.tenants/red/told");
    eventually("all attempts", || told.exists());
    let told = fs::read_to_string(told).expect("told");
    let wrong: Vec<&str> = told
        .lines()
        .filter(|line| {
            let [_, expected, found] = line.split('\t').collect::<Vec<_>>()[..] else { return true };
            expected != found
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "what was tried, the denial that is named for it, and what it met:\n{}",
        wrong.join("\n")
    );
    assert!(told.lines().count() >= 150, "{}", told.lines().count());
    front.check(0, &red, "after all attempts, in the same worker");
    front.check(1, &blue, "another tenant's");
}

fn a_worker_that_lies_to_the_process_in_front_harms_its_tenant_alone() {
    let front = Front::start();
    let [red, blue] = [0, 1].map(|tenant| front.session(tenant));
    for (name, _) in LIES {
        let runs = || front.eval(0, &red).contains(COUNTED);
        eventually(name, runs);
        front.attack(&red, name);
        front.check(1, &blue, name);
        // The worker may be lost, or may not be answered any more: cells run in it or in the next one.
        eventually(name, runs);
        front.attack(&red, END);
        front.check(1, &blue, name);
    }
}
