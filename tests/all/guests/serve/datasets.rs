//! Datasets over HTTP: listed, read, published and removed.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use cellar_tables::Batches;

use super::{tenants::Tenants, *};

/// A Parquet file of so many rows.
pub(super) fn parquet(count: i64) -> Vec<u8> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
    let rows = RecordBatch::try_new(schema.clone(), vec![column]).expect("rows");
    let mut file = Vec::new();
    Batches::new(schema, vec![rows]).write_parquet(&mut file).expect("Parquet");
    file
}

#[test]
fn datasets_are_published_listed_read_and_removed() {
    let tenants = Tenants::new("[tenants.red]\n[tenants.blue]\n");
    let red = tenants.token(&["new", "--tenant", "red"]);
    let blue = tenants.token(&["new", "--tenant", "blue"]);
    let looks = tenants.token(&["new", "--tenant", "red", "--scope", "read"]);
    let mut served = tenants.serve();
    served.token = red;
    let publish = |count: i64, key: &str| {
        served.ask("POST", "/v1/datasets/prices?publisher=nightly", &[("Idempotency-Key", key)], &parquet(count))
    };
    let first = publish(3, "a");
    assert_eq!((first.status, &first.json()["version"], &first.json()["rowCount"]), (201, &json!(1), &json!(3)));
    assert_eq!(first.header("location"), Some("/v1/datasets/prices/rows?version=1"));
    assert_eq!(first.json()["publisher"], "nightly");
    // The same request is carried out once.
    assert_eq!(publish(3, "a").json()["version"], 1);
    assert_eq!(publish(5, "b").json()["version"], 2);
    let listed = served.get("/v1/datasets").json();
    assert_eq!((&listed["datasets"][0]["name"], &listed["datasets"][0]["version"]), (&json!("prices"), &json!(2)));
    let versions = served.get("/v1/datasets/prices").json()["versions"].clone();
    assert_eq!(versions.as_array().map(Vec::len), Some(2));
    assert_eq!(served.get("/v1/datasets/prices/rows?version=1").body, parquet(3));
    let latest = served.get("/v1/datasets/prices/rows");
    assert_eq!((latest.header("cellar-dataset-version"), latest.body == parquet(5)), (Some("2"), true));
    // Cells have the same datasets.
    let session = served.session(json!({}));
    assert_eq!(served.run(&session, "py", "len(load_dataset('prices')), len(load_dataset('prices', 1))"), "(5, 3)");
    assert_eq!(served.run(&session, "js", "(await loadDataset('prices')).length"), "5");
    let gated = json!({"cells": [{"language": "py", "code": "load_dataset('prices')"}], "seen": []});
    let gated = served.post(&format!("/v1/sessions/{session}/runs"), gated);
    assert!(gated.text().contains("has not seen it"), "{}", gated.text());
    // Whoever may read may not publish or remove, and another tenant has none of them.
    let as_reader = |method: &str, place: &str| served.ask_as(&looks, method, place, &[], &parquet(1)).status;
    assert_eq!([as_reader("GET", "/v1/datasets"), as_reader("GET", "/v1/datasets/prices/rows")], [200, 200]);
    assert_eq!([as_reader("POST", "/v1/datasets/prices"), as_reader("DELETE", "/v1/datasets/prices")], [403, 403]);
    assert_eq!(served.ask_as(&blue, "GET", "/v1/datasets", &[], b"").json()["datasets"], json!([]));
    assert_eq!(served.ask_as(&blue, "GET", "/v1/datasets/prices", &[], b"").status, 404);
    for (method, place, body, status, code) in [
        ("POST", "/v1/datasets/prices", &b"a,b\n"[..], 400, "dataset-table"),
        ("POST", "/v1/datasets/Prices!", b"", 400, "dataset-name"),
        ("GET", "/v1/datasets/prizes", b"", 404, "dataset-unknown"),
        ("GET", "/v1/datasets/prices/rows?version=7", b"", 404, "dataset-version"),
        ("GET", "/v1/datasets/prices/rows?version=x", b"", 400, "request"),
    ] {
        let answer = served.ask(method, place, &[], body);
        assert_eq!((answer.status, answer.problem().as_str()), (status, code), "{method} {place}: {}", answer.text());
    }
    assert_eq!(served.ask("DELETE", "/v1/datasets/prices", &[], b"").status, 204);
    assert_eq!(served.get("/v1/datasets/prices").status, 404);
    assert_eq!(served.get("/v1/datasets").json()["datasets"], json!([]));
}
