//! Configuration of connectors, as plain data.

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use encoding_rs::Encoding;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{ObjectsOptions, Parameter, Source};

/// A secret, and its location: a password, an address that contains one, a header.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The secret itself.
    Plain(String),
    /// A text with `${NAME}` for variables of Cellar's own environment.
    Template(String),
    /// A file that contains the secret, and nothing else.
    File(PathBuf),
    /// An address without its password, and the password.
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

    /// Returns the secret itself, whose parts are treated as credentials from then on.
    ///
    /// # Errors
    /// The name of what is missing, without any secret.
    pub(crate) fn resolve(&self) -> Result<String, String> {
        self.resolved(&cellar_secrets::learn)
    }

    /// Returns the value of an option that is not necessarily a credential.
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

/// Substrings that mark a part of an address as a credential by its name.
const CREDENTIALS: [&str; 6] = ["key", "token", "secret", "pass", "sig", "auth"];

/// Registers the credentials of an address: its password, as written and decoded, and query parameters with the name of a
/// credential.
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

/// Options of one connector.
#[derive(Clone, Debug)]
pub struct ConnectorOptions {
    /// Description for people and models.
    pub description: String,
    /// Limits of a fetch.
    pub bounds: Bounds,
    /// Source of the rows.
    pub kind: Kind,
}

/// Limits of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of rows.
    pub rows: usize,
    /// Maximum size of the values in bytes.
    pub bytes: usize,
    /// Timeout, from the call until all rows have arrived.
    pub timeout: Duration,
    /// Maximum number of concurrent fetches of the connector; more wait.
    pub concurrency: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { rows: 5_000_000, bytes: 192 << 20, timeout: Duration::from_secs(30), concurrency: 4 }
    }
}

/// Source of rows.
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

/// Location of files.
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
    /// Address, with the user and the password: `postgres://user:password@host/database`.
    pub url: Secret,
    /// True if cells may send their own SQL, with the fetch `sql`.
    pub sql: bool,
    /// Fetches by name; each is a query with `:name` where a parameter stands.
    pub fetches: BTreeMap<String, FetchOptions<String>>,
}

/// Options of one fetch, including those of its kind.
#[derive(Clone, Debug)]
pub struct FetchOptions<T> {
    /// Description of the rows, for people and models.
    pub description: String,
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// Columns, where they are declared.
    pub columns: Vec<TableColumn>,
    /// Query of the fetch, in the form of its kind.
    pub asks: T,
}

/// A column as a configuration tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableColumn {
    /// Name of the column.
    pub name: String,
    /// Type in words.
    pub kind: String,
}

/// Files as one table.
#[derive(Clone, Debug)]
pub struct FilesFetch {
    /// Pattern of the files below the folder or the prefix: `orders/*.parquet`.
    pub path: String,
    /// Format of the files; by default, it is derived from their extensions.
    pub format: Option<FileFormat>,
    /// Columns to read; all by default.
    pub select: Option<Vec<String>>,
    /// Tests that a row must pass, all of them.
    pub filters: Vec<Filter>,
    /// Form of files of CSV.
    pub csv: CsvOptions,
    /// Sheet of workbooks of Excel.
    pub sheet: Sheet,
}

/// A sheet of a workbook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sheet {
    /// The sheet of this name.
    Name(String),
    /// The sheet of this number, from 1, hidden ones included.
    Number(NonZeroUsize),
}

impl Default for Sheet {
    /// Returns the first sheet.
    fn default() -> Sheet {
        Sheet::Number(NonZeroUsize::MIN)
    }
}

/// Form of files of CSV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CsvOptions {
    /// Character between the values of a row, in ASCII; by default, a tab in `.tsv`, otherwise a comma.
    pub separator: Option<u8>,
    /// True if numbers have a decimal comma, and may have points between thousands.
    pub has_decimal_comma: bool,
    /// Encoding of the text; UTF-8 by default.
    pub encoding: Option<&'static Encoding>,
}

impl CsvOptions {
    /// Returns an encoding by its name, such as `latin-1` or `windows-1252`.
    pub fn encoding(name: &str) -> Option<&'static Encoding> {
        let name = match name.to_ascii_lowercase().as_str() {
            "latin-1" | "latin_1" => "latin1".to_owned(),
            "utf-16" | "utf_16" => "utf-16le".to_owned(),
            "cp1252" | "cp-1252" | "ansi" => "windows-1252".to_owned(),
            name => name.replace('_', "-"),
        };
        Encoding::for_label(name.as_bytes())
    }
}

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are named for what they are")]
pub enum FileFormat {
    Parquet,
    Csv,
    JsonLines,
    Excel,
}

/// A test of a column against a parameter. It holds where the parameter is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named for what they hold")]
pub struct Filter {
    pub column: String,
    pub comparison: Comparison,
    pub parameter: String,
}

/// Comparison of a column with a parameter.
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
    /// JSON pointer to the rows in the response: `/data/items`; empty for the whole response.
    pub rows: String,
    /// Pagination.
    pub pages: Pages,
}

/// Pagination of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are explained with the variants")]
pub enum Pages {
    /// The first response has all rows.
    One,
    /// The header `Link` has the address of the next page (RFC 8288), or the field of the response at this JSON pointer has
    /// it.
    Link { field: Option<String> },
    /// The field at this JSON pointer has a cursor, which is sent as this query parameter in the next request.
    Cursor { field: String, parameter: String },
    /// The number of rows so far is sent as this query parameter; a page without rows is the end. `limit`, if given, is
    /// another query parameter, and the number of rows to request.
    Offset { parameter: String, limit: Option<(String, usize)> },
    /// Pages are numbered, starting with this number.
    Number { parameter: String, first: u64 },
}
