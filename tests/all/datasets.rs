//! `cellar dataset`: what processes publish at once, and what is told of it.

use std::{fs, path::Path, sync::Arc};

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use cellar_tables::Batches;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::cellar;

/// A Parquet file with this number.
fn parquet(path: &Path, number: i64) {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let column = Arc::new(Int64Array::from(vec![number]));
    let batch = RecordBatch::try_new(schema.clone(), vec![column]).expect("a batch");
    let batches = Batches::new(schema, vec![batch]);
    batches.write_parquet(fs::File::create(path).expect("a file")).expect("written");
}

/// Returns the output and the errors of a command, which must end with this code.
fn told(store: &Path, arguments: &[&str], code: i32) -> (String, String) {
    let output = cellar(arguments).env("CELLAR_STORE", store).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn processes_that_publish_at_once_lose_no_version() {
    let folder = TempDir::new().expect("a folder");
    let store = folder.path().join("store");
    let publishers: Vec<_> = (0..8)
        .map(|number| {
            let file = folder.path().join(format!("{number}.parquet"));
            parquet(&file, number);
            let name = number.to_string();
            let arguments = ["dataset", "publish", "prices", file.to_str().expect("text"), "--publisher", &name];
            cellar(arguments).env("CELLAR_STORE", &store).spawn().expect("it runs")
        })
        .collect();
    for publisher in publishers {
        let output = publisher.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (shown, _) = told(&store, &["dataset", "show", "prices", "--json"], 0);
    let versions: Vec<Value> = serde_json::from_str(&shown).expect("JSON");
    let numbers: Vec<_> = versions.iter().map(|version| version["version"].as_u64()).collect();
    assert_eq!(numbers, (1..=8).map(Some).collect::<Vec<_>>());
    let mut publishers: Vec<_> = versions.iter().map(|version| version["publisher"].as_str()).collect();
    publishers.sort_unstable();
    assert_eq!(publishers, ["0", "1", "2", "3", "4", "5", "6", "7"].map(Some));
}

#[test]
fn datasets_are_listed_read_and_removed() {
    let folder = TempDir::new().expect("a folder");
    let (store, file, out) = (folder.path().join("store"), folder.path().join("a"), folder.path().join("out"));
    let (file, out) = (file.to_str().expect("text"), out.to_str().expect("text"));
    for number in 1..=3 {
        parquet(Path::new(file), number);
        told(&store, &["dataset", "publish", "prices", file, "--keep", "2"], 0);
    }
    let (list, _) = told(&store, &["dataset", "list"], 0);
    assert!(
        list.starts_with("NAME ") && list.contains("\nprices  3 ") && list.ends_with("  1 rows, 1 columns  cli\n"),
        "{list}"
    );
    told(&store, &["dataset", "get", "prices", out], 0);
    assert_eq!(fs::read(out).expect("the rows"), fs::read(file).expect("the file"));
    let (_, error) = told(&store, &["dataset", "get", "prices", out, "--version-number", "1"], 2);
    assert!(error.contains("dataset `prices` has no version 1; its latest is 3"), "{error}");
    let (_, error) = told(&store, &["dataset", "show", "price"], 2);
    assert!(error.contains("no dataset `price` is published; did you mean `prices`?"), "{error}");
    let (_, error) = told(&store, &["dataset", "publish", "prices", "Cargo.toml"], 2);
    assert!(error.contains("a Parquet file"), "{error}");
    told(&store, &["dataset", "rm", "prices"], 0);
    assert!(told(&store, &["dataset", "list"], 0).0.starts_with("no datasets; "));
}

#[test]
fn shells_complete_the_names_of_datasets() {
    let folder = TempDir::new().expect("a folder");
    let (store, file) = (folder.path().join("store"), folder.path().join("a"));
    parquet(&file, 1);
    told(&store, &["dataset", "publish", "prices", file.to_str().expect("text")], 0);
    for (line, expected) in [
        ("cellar dataset show pr", "prices"),
        ("cellar dataset rm pr", "prices"),
        ("cellar dataset get pr", "prices"),
        ("cellar run --seen dataset:p", "dataset:prices"),
    ] {
        let mut asked = cellar(["--"].into_iter().chain(line.split(' ')));
        asked.env("CELLAR_STORE", &store).env("CELLAR_COMPLETE", "bash").env("_CLAP_IFS", "\n");
        let output = asked.env("_CLAP_COMPLETE_INDEX", "3").env("_CLAP_COMPLETE_COMP_TYPE", "9").output();
        assert_eq!(String::from_utf8(output.expect("it runs").stdout).expect("text"), expected, "{line}");
    }
}
