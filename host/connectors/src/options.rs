//! What a configuration says of connectors, as plain data.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use url::Url;

use crate::{ObjectsOptions, Parameter, Source};

/// What is not to be shown, and where it stands: a password, an address with one, a header.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// It is here.
    Plain(String),
    /// A text with `${NAME}` where variables of Cellar's own environment stand.
    Template(String),
    /// A file has it, and nothing else.
    File(PathBuf),
    /// An address without its password, and that.
    Address(String, Box<Secret>),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Secret {
    /// The file that has it.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Secret::File(path) => Some(path),
            Secret::Address(_, password) => password.file(),
            Secret::Plain(_) | Secret::Template(_) => None,
        }
    }

    /// The secret itself, whose parts are known as credentials from now on.
    ///
    /// # Errors
    /// The name of what is missing, without any secret.
    pub(crate) fn resolve(&self) -> Result<String, String> {
        self.resolved(&cellar_secrets::learn)
    }

    /// The value of an option that may be no credential.
    ///
    /// # Errors
    /// The name of what is missing, without any secret.
    pub(crate) fn value(&self) -> Result<String, String> {
        self.resolved(&|_| ())
    }

    fn resolved(&self, learn: &dyn Fn(&str)) -> Result<String, String> {
        match self {
            Secret::Plain(text) => {
                learn_address(text, learn);
                Ok(text.clone())
            }
            Secret::Template(template) => {
                let (mut text, mut rest) = (String::new(), template.as_str());
                while let Some((before, behind)) = rest.split_once("${") {
                    let (name, after) = behind.split_once('}').ok_or("a `${` has no `}`")?;
                    let value = std::env::var(name).map_err(|_| format!("the variable `{name}` is not set"))?;
                    let value = value.trim();
                    learn(value);
                    text.push_str(before);
                    text.push_str(value);
                    rest = after;
                }
                text.push_str(rest);
                learn_address(&text, learn);
                Ok(text)
            }
            Secret::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|_| "the file with the credential cannot be read")?;
                let text = text.trim().to_owned();
                learn(&text);
                learn_address(&text, learn);
                Ok(text)
            }
            Secret::Address(address, password) => {
                let password = password.resolved(learn)?;
                learn(&password);
                let mut url = Url::parse(address).map_err(|_| "`url` is no address")?;
                url.set_password(Some(&password)).map_err(|()| "`url` has no place for a password")?;
                Ok(url.into())
            }
        }
    }
}

/// What the name of a part of an address has in it that is a credential.
const CREDENTIALS: [&str; 6] = ["key", "token", "secret", "pass", "sig", "auth"];

/// Makes the credentials of an address known, as they are written there and as they are: its password, and what behind it is called
/// like one.
fn learn_address(text: &str, learn: &dyn Fn(&str)) {
    let Ok(url) = Url::parse(text) else { return };
    if let Some(password) = url.password() {
        learn(password);
        let plain: String = url::form_urlencoded::parse(format!("p={}", password.replace('+', "%2B")).as_bytes())
            .map(|(_, value)| value.into_owned())
            .collect();
        learn(&plain);
    }
    for (name, value) in url.query_pairs() {
        let name = name.to_ascii_lowercase();
        if CREDENTIALS.iter().any(|word| name.contains(word)) {
            learn(&value);
        }
    }
}

/// One connector.
#[derive(Clone, Debug)]
pub struct ConnectorOptions {
    /// What it is, for people and models.
    pub description: String,
    /// How much may come of it at once.
    pub bounds: Bounds,
    /// Where the rows come from.
    pub kind: Kind,
}

/// How much a fetch may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Rows.
    pub rows: usize,
    /// Bytes of their values.
    pub bytes: usize,
    /// Time, from the call until all rows are there.
    pub timeout: Duration,
    /// Fetches of the connector that run at a time; more wait.
    pub concurrency: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { rows: 5_000_000, bytes: 192 << 20, timeout: Duration::from_secs(30), concurrency: 4 }
    }
}

/// Where rows come from.
#[derive(Clone)]
#[allow(missing_docs, reason = "the fields are named for what they hold")]
pub enum Kind {
    /// PostgreSQL.
    Postgres(Database),
    /// MySQL and MariaDB.
    Mysql(Database),
    /// A file of SQLite, opened read-only.
    Sqlite { file: PathBuf, sql: bool, fetches: BTreeMap<String, FetchOptions<String>> },
    /// Parquet, CSV and JSON lines in a folder or an object store.
    Files { place: FilesPlace, fetches: BTreeMap<String, FetchOptions<FilesFetch>> },
    /// An interface over HTTP whose answers are JSON.
    Http {
        url: Secret,
        headers: Vec<(String, Secret)>,
        /// Requests a second.
        rate: Option<f64>,
        fetches: BTreeMap<String, FetchOptions<HttpFetch>>,
    },
    /// An embedder's own.
    Source(Arc<dyn Source>),
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Postgres(_) => "Postgres",
            Kind::Mysql(_) => "Mysql",
            Kind::Sqlite { .. } => "Sqlite",
            Kind::Files { .. } => "Files",
            Kind::Http { .. } => "Http",
            Kind::Source(_) => "Source",
        })
    }
}

impl Kind {
    /// The files that have its credentials.
    pub fn credential_files(&self) -> Vec<PathBuf> {
        let secrets: Vec<&Secret> = match self {
            Kind::Postgres(database) | Kind::Mysql(database) => vec![&database.url],
            Kind::Http { url, headers, .. } => headers.iter().map(|(_, value)| value).chain([url]).collect(),
            Kind::Files { place: FilesPlace::Objects(objects), .. } => return objects.credential_files(),
            Kind::Files { .. } | Kind::Sqlite { .. } | Kind::Source(_) => Vec::new(),
        };
        secrets.into_iter().filter_map(Secret::file).map(Path::to_owned).collect()
    }
}

/// Where files are.
#[derive(Clone, Debug)]
pub enum FilesPlace {
    /// Below a folder.
    Folder(PathBuf),
    /// In an object store.
    Objects(ObjectsOptions),
}

/// A server of databases.
#[derive(Clone, Debug)]
pub struct Database {
    /// Its address, with the user and the password: `postgres://user:password@host/database`.
    pub url: Secret,
    /// Whether cells may ask in their own SQL, as the fetch `sql`.
    pub sql: bool,
    /// Fetches by name; each is a query with `:name` where a parameter stands.
    pub fetches: BTreeMap<String, FetchOptions<String>>,
}

/// One fetch, with what its kind says of it.
#[derive(Clone, Debug)]
pub struct FetchOptions<T> {
    /// What it gives, for people and models.
    pub description: String,
    /// What it takes.
    pub parameters: Vec<Parameter>,
    /// Its columns, where they are told.
    pub columns: Vec<TableColumn>,
    /// What is asked.
    pub asks: T,
}

/// A column as a configuration tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Its type, in words.
    pub kind: String,
}

/// Files as one table.
#[derive(Clone, Debug)]
pub struct FilesFetch {
    /// Which files, below the folder or the prefix: `orders/*.parquet`.
    pub path: String,
    /// What they are; by the end of their names unless it is said.
    pub format: Option<FileFormat>,
    /// The columns that are read; all unless it is said.
    pub select: Option<Vec<String>>,
    /// What rows are kept: those for which all of this holds.
    pub filters: Vec<Filter>,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are named for what they are")]
pub enum FileFormat {
    Parquet,
    Csv,
    JsonLines,
}

/// A test of a column against a parameter. It holds where the parameter is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named for what they hold")]
pub struct Filter {
    pub column: String,
    pub comparison: Comparison,
    pub parameter: String,
}

/// How a column is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are named for what they are")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A request over HTTP, and where its rows are.
#[derive(Clone, Debug)]
pub struct HttpFetch {
    /// Behind the connector's address; `{name}` stands for a parameter.
    pub path: String,
    /// Behind that; a value may be `{name}`, and is left out where the parameter is not given.
    pub query: Vec<(String, String)>,
    /// Where the rows are in the answer: a JSON pointer, `/data/items`; empty for the whole answer.
    pub rows: String,
    /// How there is more.
    pub pages: Pages,
}

/// How an interface gives its rows page by page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are explained with the variants")]
pub enum Pages {
    /// One answer is all.
    One,
    /// The header `Link` names the next one, as RFC 8288 has it, or a field of the answer does, at this JSON pointer.
    Link { field: Option<String> },
    /// The answer has a word at this JSON pointer, with which the next one is asked for, as this parameter of the address.
    Cursor { field: String, parameter: String },
    /// The next one is asked for by how many rows there were, as this parameter; none are the end. `limit`, if given, is
    /// another parameter, with so many rows as it asks for.
    Offset { parameter: String, limit: Option<(String, usize)> },
    /// Pages have numbers, from this one.
    Number { parameter: String, first: u64 },
}
