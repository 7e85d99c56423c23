//! Analysis of SQL before it is sent: positions of parameters, and the kind of statement.

use serde_json::{Map, Value};

use crate::parameters::LIST_MAX;

/// SQL dialect, which determines the notation of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Postgres,
    Mysql,
    Sqlite,
}

/// A statement whose parameters have the places that its database knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) text: String,
    /// The names of the parameters: of each place for MySQL, of each number for the others. That of a value of a list has `#`
    /// and its position behind it.
    pub(crate) names: Vec<String>,
    /// Lists that have no value, and so no place.
    empty: Vec<String>,
}

/// The parameter that a name in a statement is of.
pub(crate) fn name_of(name: &str) -> &str {
    name.split_once('#').map_or(name, |(name, _)| name)
}

/// The value of a name in a statement.
pub(crate) fn value_of<'a>(name: &str, arguments: &'a Map<String, Value>) -> Option<&'a Value> {
    match name.split_once('#') {
        None => arguments.get(name),
        Some((list, position)) => arguments.get(list)?.as_array()?.get(position.parse::<usize>().ok()?),
    }
}

/// Functions and words that reach files, programs and other servers, or that steer the server or the session. A role that
/// only reads may call none of them; a role that may is refused here. `*` stands for whatever follows.
const MYSQL_DENIED: [&str; 6] = ["load_file", "outfile", "dumpfile", "sys_exec", "sys_eval", "sys_get"];
const POSTGRES_DENIED: [&str; 36] = [
    "pg_read_file*",
    "pg_read_binary_file*",
    "pg_ls_*",
    "pg_stat_file*",
    "pg_file_*",
    "pg_logdir_ls*",
    "lo_*",
    "lowrite",
    "loread",
    "dblink*",
    "postgres_fdw_*",
    "set_config",
    "query_to_xml*",
    "cursor_to_xml*",
    "database_to_xml*",
    "schema_to_xml*",
    "ts_stat",
    "crosstab*",
    "connectby*",
    "xslt_process",
    "xpath_table",
    "pg_reload_conf",
    "pg_rotate_logfile*",
    "pg_terminate_backend",
    "pg_cancel_backend",
    "pg_switch_wal",
    "pg_create_*",
    "pg_drop_*",
    "pg_promote",
    "pg_logical_*",
    "pg_replication_*",
    "pg_backup_*",
    "pg_start_backup",
    "pg_stop_backup",
    "pg_wal_replay_*",
    "pg_import_system_collations",
];
const SQLITE_DENIED: [&str; 5] = ["load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"];

/// Parses a statement with `:name` for parameters, which is to be given these arguments: a list behind `in` stands for its
/// values. Only reading statements are accepted. The database itself prevents
/// writes; this check prevents what the database does not, such as `INTO OUTFILE`.
///
/// The statement is sent without its comments, so that nothing depends on what the server takes for one.
///
/// # Errors
/// The statement is not accepted: the reason in words.
pub(crate) fn read(text: &str, dialect: Dialect, arguments: &Map<String, Value>) -> Result<Statement, String> {
    let mut statement = Statement { text: String::with_capacity(text.len()), names: Vec::new(), empty: Vec::new() };
    let mut words: Vec<String> = Vec::new();
    let mut is_ended = false;
    let mut at = 0_usize;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let skipped = skipped(rest, dialect)?;
        if skipped > 0 {
            // THREAT: T15
            let piece = &rest[..skipped];
            if is_blank(piece) {
                statement.text.push_str(if is_hint(piece) { piece } else { " " });
            } else if is_ended {
                return Err("one statement at a time".to_owned());
            } else {
                words.extend(name_in(piece, dialect));
                statement.text.push_str(piece);
            }
            at = at.saturating_add(skipped);
            continue;
        }
        let first = rest.chars().next().unwrap_or(' ');
        if is_ended && !first.is_whitespace() && first != ';' {
            return Err("one statement at a time".to_owned());
        }
        if rest.starts_with("--") {
            // Two signs, which no server shall take for the beginning of a comment.
            statement.text.push_str("- ");
            at = at.saturating_add(1);
            continue;
        }
        let length = word_length(rest);
        if length > 0 {
            let behind = rest.get(length..).unwrap_or_default();
            if dialect == Dialect::Postgres && rest[..length].eq_ignore_ascii_case("u") && behind.starts_with("&\"") {
                return Err("names are not written by code points".to_owned());
            }
            words.push(rest[..length].to_ascii_lowercase());
            statement.text.push_str(&rest[..length]);
            at = at.saturating_add(length);
            continue;
        }
        if first == ';' {
            is_ended = true;
            at = at.saturating_add(1);
            continue;
        }
        if rest.starts_with("::") || rest.starts_with(":=") {
            statement.text.push_str(&rest[..2]);
            at = at.saturating_add(2);
            continue;
        }
        let name = if first == ':' { word_length(&rest[1..]) } else { 0 };
        if name > 0 {
            let name = rest.get(1..name.saturating_add(1)).unwrap_or_default();
            let behind = rest.get(name.len().saturating_add(1)..).unwrap_or_default();
            match arguments.get(name) {
                Some(Value::Array(items)) => statement.place_list(name, (items.len(), behind), dialect)?,
                _ => statement.place(name, dialect),
            }
            at = at.saturating_add(name.len()).saturating_add(1);
            continue;
        }
        if (first == '?' && dialect != Dialect::Postgres) || (first == '$' && dialect == Dialect::Postgres) {
            return Err("parameters are written `:name`".to_owned());
        }
        statement.text.push(first);
        at = at.saturating_add(first.len_utf8());
    }
    check_words(&words, dialect)?;
    Ok(statement)
}

/// Checks the words of a statement: the first reads, and none reaches beyond tables.
fn check_words(words: &[String], dialect: Dialect) -> Result<(), String> {
    let first = words.first().map_or("", String::as_str);
    let is_read = match dialect {
        Dialect::Mysql => ["select", "with", "show", "describe", "desc", "explain", "values", "table"].contains(&first),
        Dialect::Postgres => ["select", "with", "show", "values", "table"].contains(&first),
        Dialect::Sqlite => ["select", "with", "values", "explain", "pragma"].contains(&first),
    };
    if !is_read {
        return Err(format!("only statements that read are taken, such as `SELECT`, not `{}`", first.to_uppercase()));
    }
    let denied: &[&str] = match dialect {
        Dialect::Mysql => &MYSQL_DENIED,
        Dialect::Postgres => &POSTGRES_DENIED,
        Dialect::Sqlite => &SQLITE_DENIED,
    };
    let is_denied = |word: &&String| {
        denied.iter().any(|name| match name.strip_suffix('*') {
            Some(start) => word.starts_with(start),
            None => *word == name,
        })
    };
    // THREAT: T16
    if let Some(word) = words.iter().find(is_denied) {
        return Err(format!("only statements that read tables are taken: `{word}` does more"));
    }
    Ok(())
}

impl Statement {
    /// Returns true if a parameter stands in it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| name_of(known) == name) || self.empty.iter().any(|known| known == name)
    }

    /// Puts the places of a list in, of so many values, before the rest of the text. Behind `in` these are its values; elsewhere
    /// it is one array, which databases without arrays get as JSON.
    ///
    /// # Errors
    /// The list cannot stand there: the reason in words.
    fn place_list(&mut self, name: &str, (count, behind): (usize, &str), dialect: Dialect) -> Result<(), String> {
        if count > LIST_MAX {
            return Err(format!("a list has at most {LIST_MAX} values, and `:{name}` has {count}"));
        }
        let before = self.text.trim_end();
        let (before, is_enclosed) = match before.strip_suffix('(') {
            Some(before) => (before.trim_end(), true),
            None => (before, false),
        };
        let word = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        let head = before.len().saturating_sub(word.len());
        let is_alone = !is_enclosed || behind.trim_start().starts_with(')');
        match (word.to_ascii_lowercase().as_str(), dialect) {
            ("in", _) if !is_alone => Err(format!("`:{name}` is a list, which stands alone in its parentheses")),
            ("in", Dialect::Postgres) => {
                // An array has the type of what it is compared with, and may be empty.
                let before = self.text.get(..head).unwrap_or_default().trim_end();
                let rest = before.len().saturating_sub(3);
                let is_not = before.get(rest..).is_some_and(|word| word.eq_ignore_ascii_case("not"));
                let kept = if is_not { rest } else { head };
                self.text.truncate(kept);
                self.text.push_str(if is_not { "<> all(" } else { "= any(" });
                self.place(name, dialect);
                if !is_enclosed {
                    self.text.push(')');
                }
                Ok(())
            }
            (_, Dialect::Postgres) => {
                self.place(name, dialect);
                Ok(())
            }
            ("in" | "any" | "some", _) => {
                if word.eq_ignore_ascii_case("in") {
                    self.text.truncate(before.len());
                } else {
                    let kept = self.text.get(..head).unwrap_or_default().trim_end();
                    let Some(kept) = kept.strip_suffix('=').map(str::len) else {
                        return Err(format!("`:{name}` is a list: write `in (:{name})`"));
                    };
                    self.text.truncate(kept);
                    self.text.push_str(" in");
                }
                self.text.push_str(" (");
                for position in 0..count {
                    if position > 0 {
                        self.text.push_str(", ");
                    }
                    self.place(&format!("{name}#{position}"), dialect);
                }
                if count == 0 {
                    let from = if dialect == Dialect::Mysql { " from dual" } else { "" };
                    self.text.push_str(&format!("select null{from} where 1 = 0"));
                    self.empty.push(name.to_owned());
                }
                if !is_enclosed {
                    self.text.push(')');
                }
                Ok(())
            }
            _ => {
                self.place(name, dialect);
                Ok(())
            }
        }
    }

    /// Puts a parameter's place in.
    fn place(&mut self, name: &str, dialect: Dialect) {
        if dialect == Dialect::Mysql {
            self.names.push(name.to_owned());
            self.text.push('?');
            return;
        }
        let known = self.names.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len().saturating_sub(1)
        });
        let mark = if dialect == Dialect::Postgres { '$' } else { '?' };
        self.text.push_str(&format!("{mark}{}", number.saturating_add(1)));
    }
}

/// Returns true for a comment that gives an optimizer hints, and has nothing else that a server might read.
fn is_hint(piece: &str) -> bool {
    let inner = piece.strip_prefix("/*+").and_then(|rest| rest.strip_suffix("*/"));
    inner.is_some_and(|inner| inner.chars().all(|c| c.is_ascii_alphanumeric() || " _(),.@".contains(c)))
}

/// Returns the name in a quoted piece, without its quotes, where that is a name and not a text.
fn name_in(piece: &str, dialect: Dialect) -> Option<String> {
    let quote = piece.chars().next()?;
    let is_name = quote == '`' || (quote == '"' && dialect != Dialect::Mysql);
    let inner = piece.strip_prefix(quote)?.strip_suffix(quote)?;
    is_name.then(|| inner.to_ascii_lowercase())
}

fn is_blank(piece: &str) -> bool {
    piece.starts_with("--") || piece.starts_with("/*") || piece.starts_with('#')
}

fn word_length(text: &str) -> usize {
    let is_start = |c: char| c.is_alphabetic() || c == '_';
    if !text.starts_with(is_start) {
        // Digits with what follows them are no names.
        return text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    }
    text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len())
}

/// Returns the length in bytes of a string, a quoted name or a comment at the start of `text`; 0 if there is none.
fn skipped(text: &str, dialect: Dialect) -> Result<usize, String> {
    let bytes = text.as_bytes();
    let unended = |what: &str| format!("{what} does not end");
    match bytes.first() {
        Some(b'\'') => quoted(bytes, b'\'', dialect == Dialect::Mysql).ok_or_else(|| unended("a string")),
        Some(b'"') => quoted(bytes, b'"', dialect == Dialect::Mysql).ok_or_else(|| unended("a quoted name")),
        Some(b'`') if dialect != Dialect::Postgres => {
            quoted(bytes, b'`', false).ok_or_else(|| unended("a quoted name"))
        }
        Some(b'e' | b'E') if dialect == Dialect::Postgres && bytes.get(1) == Some(&b'\'') => {
            let inner = bytes.get(1..).unwrap_or_default();
            quoted(inner, b'\'', true).map(|length| length.saturating_add(1)).ok_or_else(|| unended("a string"))
        }
        Some(b'#') if dialect == Dialect::Mysql => Ok(line(text)),
        // MySQL takes two signs for a comment only before a blank: `5--6` is a difference.
        Some(b'-') if text.starts_with("--") && dialect == Dialect::Mysql => {
            let is_comment = bytes.get(2).is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
            Ok(if is_comment { line(text) } else { 0 })
        }
        Some(b'-') if text.starts_with("--") => Ok(line(text)),
        Some(b'/') if text.starts_with("/*!") && dialect == Dialect::Mysql => {
            Err("comments that MySQL runs are not taken".to_owned())
        }
        Some(b'/') if text.starts_with("/*M!") && dialect == Dialect::Mysql => {
            Err("comments that MariaDB runs are not taken".to_owned())
        }
        Some(b'/') if text.starts_with("/*") => {
            comment(bytes, dialect == Dialect::Postgres).ok_or_else(|| unended("a comment"))
        }
        Some(b'$') if dialect == Dialect::Postgres => {
            let end = text[1..].find('$').map(|end| end.saturating_add(2));
            let tag = end.and_then(|end| text.get(..end));
            let is_tag = |tag: &&str| {
                let name = tag.trim_matches('$');
                name.is_empty() || (word_length(name) == name.len() && !name.starts_with(|c: char| c.is_ascii_digit()))
            };
            let Some(tag) = tag.filter(is_tag) else { return Ok(0) };
            let rest = &text[tag.len()..];
            let length = rest.find(tag).ok_or_else(|| unended("a string"))?;
            Ok(length.saturating_add(tag.len()).saturating_add(tag.len()))
        }
        _ => Ok(0),
    }
}

fn line(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |end| end.saturating_add(1))
}

fn quoted(bytes: &[u8], quote: u8, has_escapes: bool) -> Option<usize> {
    let mut at = 1_usize;
    while let Some(byte) = bytes.get(at) {
        if *byte == b'\\' && has_escapes {
            at = at.saturating_add(2);
        } else if *byte != quote {
            at = at.saturating_add(1);
        } else if bytes.get(at.saturating_add(1)) == Some(&quote) {
            at = at.saturating_add(2);
        } else {
            return Some(at.saturating_add(1));
        }
    }
    None
}

fn comment(bytes: &[u8], is_nested: bool) -> Option<usize> {
    let (mut at, mut depth) = (2_usize, 1_u32);
    loop {
        let next = at.checked_add(2)?;
        match bytes.get(at..next)? {
            b"*/" => {
                (at, depth) = (next, depth.saturating_sub(1));
                if depth == 0 {
                    return Some(at);
                }
            }
            b"/*" if is_nested => (at, depth) = (next, depth.checked_add(1)?),
            _ => at = at.saturating_add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn postgres(text: &str) -> Result<(String, Vec<String>), String> {
        read(text, Dialect::Postgres, &Map::new()).map(|statement| (statement.text, statement.names))
    }

    #[test]
    fn parameters_have_the_places_that_the_database_knows() {
        let text = "select ':a', \":b\", $$:c$$, $t$ :d $t$, E'\\':e', x::int -- :f\n/* :g /* :h */ */ from t where a = :a and b > :b or c = :a;";
        let (found, names) = postgres(text).expect("a statement");
        assert!(found.ends_with("from t where a = $1 and b > $2 or c = $1"), "{found}");
        assert_eq!(names, ["a", "b"]);
        let mysql = read("select `:x`, '\\':y' from t where a = :a and b = :a # :z", Dialect::Mysql, &Map::new())
            .expect("a statement");
        assert_eq!(
            (mysql.text.as_str(), mysql.names.len()),
            ("select `:x`, '\\':y' from t where a = ? and b = ?  ", 2)
        );
    }

    #[test]
    fn lists_stand_for_their_values() {
        let Value::Object(lists) = json!({"ids": [1, 2], "none": []}) else { panic!("an object") };
        let made = |text: &str, dialect| read(text, dialect, &lists).map(|made| (made.text, made.names));
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (given, postgres, sqlite) in [
            ("select 1 where a in (:ids)", "select 1 where a = any($1)", "select 1 where a in (?1, ?2)"),
            ("select 1 where a NOT IN :ids", "select 1 where a <> all($1)", "select 1 where a NOT IN (?1, ?2)"),
            ("select 1 where a = any (:ids)", "select 1 where a = any ($1)", "select 1 where a  in (?1, ?2)"),
            ("select unnest(:ids)", "select unnest($1)", "select unnest(?1)"),
            (
                "select 1 where a in (:none)",
                "select 1 where a = any($1)",
                "select 1 where a in (select null where 1 = 0)",
            ),
        ] {
            assert_eq!(made(given, Dialect::Postgres).expect(given).0, postgres);
            assert_eq!(made(given, Dialect::Sqlite).expect(given).0, sqlite);
        }
        let mysql = made("select 1 where a in (:ids) or b in (:ids)", Dialect::Mysql).expect("a statement");
        assert_eq!(mysql.0, "select 1 where a in (?, ?) or b in (?, ?)");
        assert_eq!(mysql.1, owned(&["ids#0", "ids#1", "ids#0", "ids#1"]));
        assert!(made("select 1 where a in (:ids, 3)", Dialect::Sqlite).is_err());
        assert!(made("select 1 where a > any (:ids)", Dialect::Mysql).is_err());
    }

    #[test]
    fn only_one_statement_that_reads_is_taken() {
        for text in [
            "insert into t values (1)",
            "copy t to program 'sh'",
            "do $$ begin end $$",
            "-- select\nset x = 1",
            "(delete from t)",
            "",
        ] {
            assert!(postgres(text).expect_err(text).starts_with("only statements that read"), "{text}");
        }
        for text in ["select 1; select 2", "select 1;drop table t", "select 'a'; 'b'"] {
            assert_eq!(postgres(text).expect_err(text), "one statement at a time");
        }
        assert!(postgres("select 1 ; -- all\n ;").is_ok());
        assert!(postgres("select 'a").is_err() && postgres("select $1").is_err());
        let hinted = postgres("select 1 /*+ SeqScan(t) */ /* ' */ -- '\n, 2").expect("it reads").0;
        assert_eq!(hinted, "select 1 /*+ SeqScan(t) */    , 2");
    }

    #[test]
    fn what_reaches_beyond_tables_is_refused_however_it_is_written() {
        let mysql = |text: &str| read(text, Dialect::Mysql, &Map::new());
        for text in [
            "select 1 into outfile '/tmp/x'",
            "select 1 /*!50000 into outfile '/tmp/x' */",
            "select 1 /*M!100000 into outfile '/tmp/x' */",
            "select 5--6 into outfile '/tmp/x'",
            "select 'x' --1 into outfile '/tmp/x'",
            "select 5--\u{1}6 into outfile '/tmp/x'",
            "select 1 INTO/**/DumpFile '/tmp/x'",
            "select 1 into -- x\n outfile '/tmp/x'",
            "select 1 into # x\n outfile '/tmp/x'",
            "table t into outfile '/tmp/x'",
            "values row(1) into outfile '/tmp/x'",
            "with a as (select 1) select * from a into outfile '/tmp/x'",
            "select load_file('/etc/passwd')",
            "select `load_file`('/etc/passwd')",
            "select LOAD_FILE /* */ ('/etc/passwd')",
        ] {
            mysql(text).expect_err(text);
        }
        // What is a text here is one there, since the two signs are parted.
        assert!(mysql("select 5--\u{a0}' \n into dumpfile x'").expect("a text").text.starts_with("select 5- -\u{a0}'"));
        assert_eq!(mysql("select 5--6, 5 -- 6\n").expect("a difference").text.trim(), "select 5- -6, 5");
        for text in [
            "select pg_read_file('/etc/passwd')",
            "select \"pg_read_file\"('/etc/passwd')",
            "select U&\"pg\\005fread_file\"('/etc/passwd')",
            "select u&\"pg!005fread_file\" uescape '!' ('/etc/passwd')",
            "select pg_catalog . PG_LS_DIR('/')",
            "select lo_export(1, '/tmp/x')",
            "select query_to_xml('select 1', true, true, '')",
            "select dblink_exec('', 'drop table t')",
            "copy (select 1) to program 'sh'",
            "select 1 /* /* */ */ ; copy t to '/tmp/x'",
        ] {
            postgres(text).expect_err(text);
        }
        for text in ["select lower(a), \"lo\", pg_size_pretty(1::bigint) from t", "select 'pg_read_file'"] {
            postgres(text).expect(text);
        }
    }
}
