//! `[connectors.NAME]` of a `cellar.toml`.

use std::{collections::BTreeMap, num::NonZeroUsize, time::Duration};

use cellar_bridges::{Confirm, Connector};
use cellar_connectors::{
    Bounds, Comparison, ConnectorOptions, Connectors, CsvOptions, Database, FetchOptions, FileFormat, FilesFetch,
    FilesPlace, Filter, HttpFetch, Kind, ObjectsOptions, Pages, Parameter, ParameterKind, Secret, Sheet, TableColumn,
};
use cellar_wire::{
    check::{At, Fields, Problems},
    json::Node,
};
use serde_json::Value;

use super::{Parser, TIMEOUT_SECONDS_MAX};

/// Keys of every connector.
const COMMON: [&str; 7] = ["kind", "description", "max_rows", "max_mib", "timeout", "concurrency", "confirm"];
const KINDS: [&str; 7] = ["postgres", "mysql", "sqlite", "files", "http", "command", "mcp"];
/// Keys of every fetch.
const FETCH: [&str; 3] = ["description", "parameters", "columns"];
/// Rows, MiB and fetches that a connector may be given.
const ROWS_MAX: u64 = 100_000_000;
const MIB_MAX: u64 = 256;
const CONCURRENCY_MAX: u64 = 256;
/// Names of cells that no connector may have.
const TAKEN: [&str; 26] = [
    "print",
    "input",
    "display",
    "read",
    "write",
    "append",
    "sort",
    "uniq",
    "counter",
    "diff",
    "tree",
    "env",
    "output",
    "tool",
    "llm",
    "agent",
    "parallel",
    "pipeline",
    "runtime",
    "connectors",
    "console",
    "process",
    "globalThis",
    "pd",
    "np",
    "alt",
];

impl Parser<'_> {
    pub(super) fn connectors(&mut self, fields: &Fields<'_>) -> BTreeMap<String, Connector> {
        let connectors = self.named(fields, "connectors", Parser::connector);
        for name in connectors.keys() {
            let path = format!("connectors.{name}");
            if name.contains('-') || TAKEN.contains(&name.as_str()) {
                self.problems.add(&path, "cells have it by this name, which must be one of their own: choose another");
            }
        }
        // What the sources themselves have to say of their options.
        for (name, connector) in &connectors {
            if let Connector::Source(options) = connector {
                let one = BTreeMap::from([(name.clone(), options.clone())]);
                for problem in Connectors::new(one).err().unwrap_or_default() {
                    let (path, what) = problem.split_once(": ").unwrap_or((&problem, ""));
                    self.problems.add(path, what);
                }
            }
        }
        connectors
    }

    /// `confirm` of each connector that has it.
    pub(super) fn confirmed_connectors(&mut self, fields: &Fields<'_>) -> BTreeMap<String, Confirm> {
        let entries = fields.get("connectors").and_then(|at| at.entries(&mut Problems::default()));
        let mut confirmed = BTreeMap::new();
        for (name, at) in entries.unwrap_or_default() {
            // Its own problems were told when the connector was read.
            let Some(fields) = at.fields(&COMMON, &mut Problems::default()) else { continue };
            confirmed.extend(self.confirm(&fields).map(|confirm| (name.to_owned(), confirm)));
        }
        confirmed
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each kind of connector")]
    fn connector(&mut self, at: &At<'_>) -> Option<Connector> {
        // The kind says what else is known.
        let mut quiet = cellar_wire::check::Problems::default();
        let all = at.fields(&[], &mut quiet);
        let Some(all) = all else {
            at.expected("a table with `kind`", &mut self.problems);
            return None;
        };
        let kind = all.required("kind", "what it is", &mut self.problems)?;
        let word = kind.text(&mut self.problems)?;
        let own: &[&str] = match word {
            "postgres" | "mysql" => &["url", "url_env", "url_file", "password_env", "password_file", "sql", "fetches"],
            "sqlite" => &["file", "sql", "fetches"],
            "files" => &["folder", "url", "options", "fetches"],
            "http" => &["url", "url_env", "headers_env", "rate", "fetches"],
            "command" => &["command", "environment", "inherit", "fetches"],
            "mcp" => &["fetches"],
            _ => {
                kind.expected(
                    format_args!("one of {}", KINDS.map(|kind| format!("`{kind}`")).join(", ")),
                    &mut self.problems,
                );
                return None;
            }
        };
        let known: Vec<&str> = COMMON.iter().chain(own).copied().collect();
        let fields = at.fields(&known, &mut self.problems)?;
        let description = self.text(&fields, "description").unwrap_or_default();
        let bounds = self.bounds(&fields);
        let sql = fields.get("sql").and_then(|at| at.boolean(&mut self.problems)).unwrap_or_default();
        let source = |kind| {
            Some(Connector::Source(ConnectorOptions { description: description.clone(), bounds: bounds.clone(), kind }))
        };
        match word {
            "postgres" | "mysql" => {
                let fetches = self.fetches(&fields, &["query"], Parser::query);
                let database = Database { url: self.address(at, &fields)?, sql, fetches };
                source(if word == "mysql" { Kind::Mysql(database) } else { Kind::Postgres(database) })
            }
            "sqlite" => {
                let fetches = self.fetches(&fields, &["query"], Parser::query);
                let file = fields.required("file", "the file of the database", &mut self.problems);
                let file = file?.filled_text(&mut self.problems)?;
                let file = self.path(file);
                source(Kind::Sqlite { file, sql, fetches })
            }
            "files" => {
                let own = ["path", "format", "select", "filters", "separator", "decimal", "encoding", "sheet"];
                let fetches = self.fetches(&fields, &own, Parser::files);
                let objects = self.objects(&fields, ["url", "options"]).map(FilesPlace::Objects);
                let folder = fields.get("folder").and_then(|at| at.filled_text(&mut self.problems));
                let place = match (objects, folder) {
                    (Some(objects), None) => objects,
                    (None, Some(folder)) if fields.get("url").is_none() => FilesPlace::Folder(self.path(folder)),
                    // What is wrong with it was said.
                    (None, None) if fields.get("url").is_some() => return None,
                    _ => {
                        let expected = "expected either `folder` or `url`, the address of an object store";
                        self.problems.add(&at.path, expected);
                        return None;
                    }
                };
                source(Kind::Files { place, fetches })
            }
            "http" => {
                let fetches = self.fetches(&fields, &["path", "query", "rows", "pages"], Parser::http_fetch);
                let headers = self.headers(&fields).into_iter();
                let headers = headers.map(|(name, value)| (name, Secret::Template(value.to_string()))).collect();
                let rate = fields.get("rate").and_then(|at| at.integer(1..=10_000, &mut self.problems));
                let rate = rate.map(|rate| u32::try_from(rate).map_or(f64::MAX, f64::from));
                source(Kind::Http { url: self.address(at, &fields)?, headers, rate, fetches })
            }
            "command" => {
                let fetches = self.fetches(&fields, &[], |_, _| Some(()));
                let command = self.command(&fields, bounds.timeout.as_secs())?;
                Some(Connector::Command { description, bounds, command, fetches })
            }
            _ => {
                let fetches = self.fetches(&fields, &["tool"], |parser, fields| {
                    let tool = fields.required("tool", "the name of a tool that gives rows", &mut parser.problems);
                    tool?.filled_text(&mut parser.problems).map(str::to_owned)
                });
                Some(Connector::Mcp { description, bounds, fetches })
            }
        }
    }

    fn bounds(&mut self, fields: &Fields<'_>) -> Bounds {
        let usual = Bounds::default();
        let mut number = |key, max| {
            let found = fields.get(key).and_then(|at| at.integer(1..=max, &mut self.problems));
            found.and_then(|number| usize::try_from(number).ok())
        };
        Bounds {
            rows: number("max_rows", ROWS_MAX).unwrap_or(usual.rows),
            bytes: number("max_mib", MIB_MAX).map_or(usual.bytes, |mib| mib << 20),
            concurrency: number("concurrency", CONCURRENCY_MAX).unwrap_or(usual.concurrency),
            timeout: number("timeout", TIMEOUT_SECONDS_MAX)
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map_or(usual.timeout, Duration::from_secs),
        }
    }

    /// Parses an object store: its address and its options. `NAME_env` and `NAME_file` name the variable or file with
    /// the value of a secret option.
    pub(super) fn objects(&mut self, fields: &Fields<'_>, [url, options]: [&str; 2]) -> Option<ObjectsOptions> {
        let Some(at) = fields.get(url) else {
            if let Some(at) = fields.get(options) {
                self.problems.add(&at.path, format_args!("is said of `{url}`, which is not there"));
            }
            return None;
        };
        let address = at.filled_text(&mut self.problems)?.to_owned();
        let mut said = BTreeMap::new();
        for (name, at) in fields.get(options).and_then(|at| at.entries(&mut self.problems)).unwrap_or_default() {
            let Some(text) = at.filled_text(&mut self.problems) else { continue };
            let (name, value) = match (name.strip_suffix("_env"), name.strip_suffix("_file")) {
                (Some(name), _) => (name, Secret::Template(format!("${{{text}}}"))),
                (_, Some(name)) => (name, Secret::File(self.path(text))),
                _ => (name, Secret::Plain(text.to_owned())),
            };
            said.insert(name.to_owned(), value);
        }
        let found = ObjectsOptions { url: address, options: said };
        match found.check() {
            Ok(()) => Some(found),
            Err(problem) => {
                self.problems.add(&at.path, problem);
                None
            }
        }
    }

    /// Reads the address of a server, with the credential that it requires.
    fn address(&mut self, at: &At<'_>, fields: &Fields<'_>) -> Option<Secret> {
        let variable = |at: At<'_>, problems: &mut _| {
            at.filled_text(problems).map(|name| Secret::Template(format!("${{{name}}}")))
        };
        let file = |parser: &mut Self, key| {
            let path = fields.get(key)?.filled_text(&mut parser.problems)?;
            Some(Secret::File(parser.path(path)))
        };
        let password = fields.get("password_env").and_then(|at| variable(at, &mut self.problems));
        let password = password.or_else(|| file(self, "password_file"));
        match (fields.get("url"), fields.get("url_env"), file(self, "url_file")) {
            (Some(url), None, None) => {
                let url = url.filled_text(&mut self.problems)?.to_owned();
                Some(match password {
                    Some(password) => Secret::Address(url, Box::new(password)),
                    None => Secret::Plain(url),
                })
            }
            (None, Some(name), None) => variable(name, &mut self.problems),
            (None, None, Some(file)) => Some(file),
            _ => {
                let expected = "expected one of `url`, `url_env`, the variable that has it, and `url_file`";
                self.problems.add(&at.path, expected);
                None
            }
        }
    }

    fn fetches<T>(
        &mut self,
        fields: &Fields<'_>,
        own: &[&str],
        read: impl Fn(&mut Self, &Fields<'_>) -> Option<T>,
    ) -> BTreeMap<String, FetchOptions<T>> {
        let known: Vec<&str> = FETCH.iter().chain(own).copied().collect();
        self.named(fields, "fetches", |parser, at| {
            let fields = at.fields(&known, &mut parser.problems)?;
            let description = parser.text(&fields, "description").unwrap_or_default();
            let parameters = parser.parameters(&fields);
            let columns = fields.get("columns").and_then(|at| at.entries(&mut parser.problems)).unwrap_or_default();
            let column = |(name, at): (&str, At<'_>)| {
                let kind = at.text(&mut parser.problems)?.to_owned();
                Some(TableColumn { name: name.to_owned(), kind })
            };
            let columns = columns.into_iter().filter_map(column).collect();
            let asks = read(parser, &fields);
            Some(FetchOptions { description, parameters, columns, asks: asks? })
        })
    }

    fn parameters(&mut self, fields: &Fields<'_>) -> Vec<Parameter> {
        let entries = fields.get("parameters").and_then(|at| at.entries(&mut self.problems)).unwrap_or_default();
        let mut parameters = Vec::new();
        for (name, at) in entries {
            if name == "refresh" || !super::is_name(name) || name.contains('-') {
                self.problems.add(&at.path, "is no name that a parameter may have");
            }
            let known = ["type", "list", "description", "default", "required", "choices", "min", "max"];
            let Some(fields) = at.fields(&known, &mut self.problems) else { continue };
            let Some(kind) = fields.required("type", "the type of the parameter", &mut self.problems) else { continue };
            let word = kind.text(&mut self.problems).unwrap_or_default();
            let Some(found) = ParameterKind::ALL.into_iter().find(|kind| kind.as_str() == word) else {
                let words = ParameterKind::ALL.map(|kind| format!("`{}`", kind.as_str()));
                kind.expected(format_args!("one of {}", words.join(", ")), &mut self.problems);
                continue;
            };
            let value = |key| fields.get(key).map(|at| Value::from(at.node));
            let default = value("default").unwrap_or_default();
            let is_list = fields.get("list").and_then(|at| at.boolean(&mut self.problems)).unwrap_or_default();
            let required = fields.get("required").and_then(|at| at.boolean(&mut self.problems));
            let choices = match value("choices") {
                Some(Value::Array(choices)) => choices,
                Some(_) => {
                    self.problems.add(&at.path, "expected `choices` to be an array");
                    continue;
                }
                None => Vec::new(),
            };
            parameters.push(Parameter {
                name: name.to_owned(),
                kind: found,
                description: self.text(&fields, "description").unwrap_or_default(),
                is_list,
                is_required: required.unwrap_or(default.is_null()),
                default,
                choices,
                min: value("min"),
                max: value("max"),
            });
        }
        parameters
    }

    fn query(&mut self, fields: &Fields<'_>) -> Option<String> {
        let query = fields.required("query", "a statement that reads", &mut self.problems);
        query?.filled_text(&mut self.problems).map(str::to_owned)
    }

    fn files(&mut self, fields: &Fields<'_>) -> Option<FilesFetch> {
        let path = fields.required("path", "which files, such as `orders/*.parquet`", &mut self.problems);
        let path = path.and_then(|at| at.filled_text(&mut self.problems)).map(str::to_owned);
        let format = fields.get("format").and_then(|at| {
            let format = match at.text(&mut self.problems)? {
                "parquet" => Some(FileFormat::Parquet),
                "csv" => Some(FileFormat::Csv),
                "jsonl" => Some(FileFormat::JsonLines),
                "xlsx" => Some(FileFormat::Excel),
                _ => None,
            };
            if format.is_none() {
                at.expected("`parquet`, `csv`, `jsonl` or `xlsx`", &mut self.problems);
            }
            format
        });
        let select = fields.get("select").and_then(|at| at.texts("column", &mut self.problems));
        let texts = fields.get("filters").and_then(|at| at.texts("filter", &mut self.problems)).unwrap_or_default();
        let filters = texts.iter().filter_map(|text| {
            let filter = filter(text);
            if filter.is_none()
                && let Some(at) = fields.get("filters")
            {
                at.expected("filters such as `day >= :since`", &mut self.problems);
            }
            filter
        });
        let filters = filters.collect();
        let csv = self.csv(fields);
        let sheet = self.sheet(fields);
        Some(FilesFetch { path: path?, format, select, filters, csv, sheet })
    }

    fn sheet(&mut self, fields: &Fields<'_>) -> Sheet {
        let Some(at) = fields.get("sheet") else { return Sheet::default() };
        let sheet = match at.node {
            Node::Number(number) => {
                number.as_u64().and_then(|number| NonZeroUsize::new(usize::try_from(number).ok()?)).map(Sheet::Number)
            }
            Node::Text(name) if !name.is_empty() => Some(Sheet::Name(name.clone())),
            _ => None,
        };
        sheet.unwrap_or_else(|| {
            at.expected("the name of a sheet, or its number, from 1", &mut self.problems);
            Sheet::default()
        })
    }

    fn csv(&mut self, fields: &Fields<'_>) -> CsvOptions {
        let separator = fields.get("separator").and_then(|at| {
            let text = at.text(&mut self.problems)?;
            let separator = <[u8; 1]>::try_from(text.as_bytes()).ok();
            let separator = separator.map(|[byte]| byte).filter(|byte| byte.is_ascii() && !b"\"\r\n".contains(byte));
            if separator.is_none() {
                at.expected("one character, such as `;`", &mut self.problems);
            }
            separator
        });
        let has_decimal_comma = fields.get("decimal").and_then(|at| match at.text(&mut self.problems)? {
            "," => Some(true),
            "." => Some(false),
            _ => {
                at.expected("`.` or `,`", &mut self.problems);
                None
            }
        });
        let encoding = fields.get("encoding").and_then(|at| {
            let found = CsvOptions::encoding(at.text(&mut self.problems)?);
            if found.is_none() {
                at.expected("an encoding, such as `latin-1`, `windows-1252` or `utf-16`", &mut self.problems);
            }
            found
        });
        CsvOptions { separator, has_decimal_comma: has_decimal_comma.unwrap_or_default(), encoding }
    }

    fn http_fetch(&mut self, fields: &Fields<'_>) -> Option<HttpFetch> {
        let entries = fields.get("query").and_then(|at| at.entries(&mut self.problems)).unwrap_or_default();
        let query = entries.into_iter().filter_map(|(name, at)| {
            let value = at.text(&mut self.problems)?;
            Some((name.to_owned(), value.to_owned()))
        });
        let query = query.collect();
        let pages = match fields.get("pages") {
            Some(at) => self.pages(&at)?,
            None => Pages::One,
        };
        Some(HttpFetch {
            path: self.text(fields, "path").unwrap_or_default(),
            query,
            rows: self.text(fields, "rows").unwrap_or_default(),
            pages,
        })
    }

    fn pages(&mut self, at: &At<'_>) -> Option<Pages> {
        let known = ["by", "field", "parameter", "limit_parameter", "limit", "first"];
        let fields = at.fields(&known, &mut self.problems)?;
        let by = fields.required("by", "`link`, `cursor`, `offset` or `number`", &mut self.problems)?;
        let field = self.text(&fields, "field");
        let parameter = self.text(&fields, "parameter");
        let limit = fields.get("limit").and_then(|at| at.integer(1..=1_000_000, &mut self.problems));
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = self.text(&fields, "limit_parameter").zip(limit);
        let first = fields.get("first").and_then(|at| at.integer(0..=u64::MAX, &mut self.problems));
        let pages = match by.text(&mut self.problems)? {
            "link" => Some(Pages::Link { field }),
            "cursor" => field.zip(parameter).map(|(field, parameter)| Pages::Cursor { field, parameter }),
            "offset" => parameter.map(|parameter| Pages::Offset { parameter, limit }),
            "number" => parameter.map(|parameter| Pages::Number { parameter, first: first.unwrap_or(1) }),
            _ => None,
        };
        if pages.is_none() {
            let expected = "`link`, `cursor` with `field` and `parameter`, `offset` with `parameter`, or `number` with `parameter`";
            by.expected(expected, &mut self.problems);
        }
        pages
    }
}

/// `column >= :parameter`
fn filter(text: &str) -> Option<Filter> {
    let comparisons = [
        (">=", Comparison::GreaterOrEqual),
        ("<=", Comparison::LessOrEqual),
        ("!=", Comparison::NotEqual),
        ("=", Comparison::Equal),
        (">", Comparison::Greater),
        ("<", Comparison::Less),
    ];
    comparisons.into_iter().find_map(|(word, comparison)| {
        let (column, parameter) = text.split_once(word)?;
        let parameter = parameter.trim().strip_prefix(':')?;
        Some(Filter { column: column.trim().to_owned(), comparison, parameter: parameter.to_owned() })
    })
}
