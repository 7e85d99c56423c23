//! Clients of the registries: pip and npm in the configuration of this machine. They resolve and fetch; they install
//! nothing, and run no code of a package.

use std::{io, path::Path, time::Duration};

use cellar_worker::{Input, Recipe};
use tokio::io::AsyncReadExt;

use crate::PackageError;

/// Timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum number of bytes read of each output stream.
const OUTPUT_MAX: u64 = 64 << 20;
/// Maximum number of characters of its standard error that a message repeats.
const SAID_MAX: usize = 600;

/// Flag of npm, where it resolves packages: none comes from an address. Fetching from the registry is one to `npm pack`.
pub(crate) const ONLY_OF_REGISTRY: &str = "--allow-remote=none";

/// Environment variables of this process that configure access to registries.
const INHERITED: [&str; 34] = [
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "VIRTUAL_ENV",
    "PYENV_ROOT",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "PIP_CONFIG_FILE",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_NO_INDEX",
    "PIP_TRUSTED_HOST",
    "PIP_DEFAULT_TIMEOUT",
    "NPM_CONFIG_REGISTRY",
    "npm_config_registry",
    "NPM_CONFIG_USERCONFIG",
    "npm_config_userconfig",
    "NPM_CONFIG_CACHE",
    "npm_config_cache",
];

/// A client of a registry.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// Name of the client.
    pub(crate) name: &'static str,
    argv: Vec<String>,
}

/// Result of running a client.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) succeeded: bool,
    pub(crate) out: String,
    pub(crate) complaint: String,
}

impl Said {
    /// The end of its complaint, on one line.
    pub(crate) fn end(&self) -> String {
        let lines =
            self.complaint.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("WARNING"));
        let text = lines.collect::<Vec<_>>().join("; ");
        let skipped = text.chars().count().saturating_sub(SAID_MAX);
        text.chars().skip(skipped).collect()
    }
}

impl Client {
    /// Returns pip: that of `python3`, else that of a virtual environment in `store`, which is created once. `folder` is an
    /// empty working directory.
    ///
    /// # Errors
    /// `Client`: there is none, and none can be created.
    pub(crate) async fn pip(store: &Path, folder: &Path) -> Result<Client, PackageError> {
        let client = |argv: &[&str]| Client { name: "pip", argv: argv.iter().map(|&word| word.to_owned()).collect() };
        let of_machine = client(&["python3", "-m", "pip"]);
        if of_machine.run(folder, &["--version"]).await?.succeeded {
            return Ok(of_machine);
        }
        let environment = store.join("pip");
        let program = environment.join("bin/python3");
        let of_store = client(&[&program.to_string_lossy(), "-m", "pip"]);
        if !program.exists() {
            let made = client(&["python3", "-m", "venv"]).run(folder, &[&environment.to_string_lossy()]).await?;
            if !made.succeeded {
                let source = io::Error::other(made.end());
                return Err(PackageError::Client { client: "python3 -m venv", source });
            }
        }
        Ok(of_store)
    }

    /// Returns npm, with scripts of packages disabled.
    pub(crate) fn npm() -> Client {
        let argv = ["npm", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
        // THREAT: T20: what packages name besides packages of the registry is not asked for. Git is asked by a name that
        // no program has, where npm is too old to know the others.
        let registry = ["--allow-git=none", "--allow-file=none", "--allow-directory=none", "--git=cellar-uses-no-git"];
        Client { name: "npm", argv: argv.iter().chain(&registry).map(|&word| word.to_owned()).collect() }
    }

    /// Runs it in a folder with further arguments.
    ///
    /// # Errors
    /// `Client`.
    ///
    /// # Cancel safety
    /// Dropping the future ends the process.
    pub(crate) async fn run(&self, folder: &Path, arguments: &[&str]) -> Result<Said, PackageError> {
        let failed = |source| PackageError::Client { client: self.name, source };
        let recipe = Recipe {
            argv: self.argv.clone(),
            folder: Some(folder.to_owned()),
            environment: vec![("PIP_DISABLE_PIP_VERSION_CHECK".to_owned(), "1".to_owned())],
            inherit: INHERITED.iter().map(|&name| name.to_owned()).collect(),
            is_open: true,
            is_quiet: false,
            memory_bytes: None,
        };
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        let mut process = cellar_worker::start(&recipe, &arguments, &[], Input::Pipe).await.map_err(failed)?;
        drop(process.stdin.take());
        let (out, complaint) = (process.stdout.take(), process.stderr.take());
        let all = async {
            let (out, complaint) = tokio::join!(read(out), read(complaint));
            Ok((process.wait().await?, out?, complaint?))
        };
        let ended = tokio::time::timeout(TIMEOUT, all).await;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it took more than ten minutes");
        let (status, out, complaint) = ended.map_err(late).and_then(|ended| ended).map_err(failed)?;
        Ok(Said { succeeded: status.success(), out, complaint })
    }
}

async fn read(from: Option<impl tokio::io::AsyncRead + Unpin>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        (&mut from).take(OUTPUT_MAX).read_to_end(&mut bytes).await?;
        // What is past the bound is let go, so that the process is not held up.
        tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn npm_asks_for_packages_of_the_registry_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let asked = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        asked.set_nonblocking(true).expect("set");
        let address = asked.local_addr().expect("an address");
        for named in [
            format!("git+http://{address}/a.git"),
            format!("http://{address}/a.tgz"),
            format!("git+ssh://a@{address}/a"),
        ] {
            let package = serde_json::json!({"name": "p", "version": "1.0.0", "dependencies": {"a": named}});
            std::fs::write(folder.path().join("package.json"), package.to_string()).expect("written");
            let said = Client::npm()
                .run(folder.path(), &["install", ONLY_OF_REGISTRY, "--package-lock-only"])
                .await
                .expect("npm starts");
            assert!(!said.succeeded, "{named}");
            assert!(asked.accept().is_err(), "{named} was asked for");
        }
    }
}
