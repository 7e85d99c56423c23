//! Tests of datasets: which versions are retained, and in which order.

use std::thread;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use tempfile::TempDir;

use super::{
    super::{ArtifactQuota, Collection},
    *,
};

/// A Parquet file of one column with the number.
fn parquet(number: i64) -> Vec<u8> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(Int64Array::from(vec![number]))]).expect("a batch");
    let mut bytes = Vec::new();
    cellar_tables::Batches::new(schema, vec![batch]).write_parquet(&mut bytes).expect("a file");
    bytes
}

fn open(quota: ArtifactQuota) -> (TempDir, ArtifactStore) {
    let folder = TempDir::new().expect("a folder");
    let store = ArtifactStore::open(folder.path().join("store"), quota).expect("a store");
    (folder, store)
}

fn publish(store: &ArtifactStore, name: &str, number: i64, keep: Option<usize>) -> DatasetVersion {
    let mut writer = store.datasets().writer(name).expect("a writer");
    writer.write(&parquet(number)).expect("written");
    writer.publish(Publication { publisher: "tests".to_owned(), origin: None, keep }).expect("published")
}

#[test]
fn versions_have_numbers_and_never_change() {
    let (_folder, store) = open(ArtifactQuota::default());
    let first = publish(&store, "prices", 1, None);
    let second = publish(&store, "prices", 2, None);
    assert_eq!((first.version, second.version, first.rows), (1, 2, 1));
    assert_eq!(first.columns, [("n".to_owned(), "int64".to_owned())]);
    let datasets = store.datasets();
    assert_eq!(datasets.get("prices", None).expect("the latest"), second);
    assert_eq!(datasets.get("prices", Some(1)).expect("the first"), first);
    let (_, mut file) = datasets.open("prices", Some(1)).expect("its rows");
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).expect("read");
    assert_eq!(bytes, parquet(1));
    assert_eq!(datasets.list().expect("a list"), [second]);
    let error = datasets.get("prices", Some(9)).expect_err("no such version");
    assert_eq!(error.to_string(), "dataset `prices` has no version 9; its latest is 2");
}

#[test]
fn what_is_no_table_is_not_published() {
    let (_folder, store) = open(ArtifactQuota::default());
    let mut writer = store.datasets().writer("prices").expect("a writer");
    writer.write(b"a,b\n1,2\n").expect("written");
    let error = writer.publish(Publication::default()).expect_err("no Parquet file");
    assert_eq!(error.code(), "dataset-table");
    assert!(store.datasets().list().expect("a list").is_empty() && store.list().expect("artifacts").is_empty());
    for name in ["", "Prices", "../x", "a b", "_a", &"a".repeat(101)] {
        assert_eq!(store.datasets().writer(name).expect_err(name).code(), "dataset-name");
    }
}

#[test]
fn who_publishes_at_once_gets_a_number_of_their_own() {
    let (folder, _) = open(ArtifactQuota::default());
    let path = folder.path().join("store");
    thread::scope(|scope| {
        for publisher in 0..8 {
            let path = &path;
            scope.spawn(move || {
                let store = ArtifactStore::open(path, ArtifactQuota::default()).expect("a store");
                (0..10).for_each(|number| drop(publish(&store, "prices", publisher * 100 + number, None)));
            });
        }
    });
    let store = ArtifactStore::open(&path, ArtifactQuota::default()).expect("a store");
    let versions = store.datasets().versions("prices").expect("versions");
    assert_eq!(versions.iter().map(|each| each.version).collect::<Vec<_>>(), (1..=80).collect::<Vec<_>>());
    let artifacts: std::collections::BTreeSet<_> = versions.iter().map(|each| &each.artifact).collect();
    assert_eq!(artifacts.len(), 80);
}

#[test]
fn old_versions_go_and_what_others_refer_to_stays() {
    let (_folder, store) = open(ArtifactQuota::default());
    let first = publish(&store, "prices", 1, None);
    publish(&store, "prices", 2, None);
    let third = publish(&store, "prices", 1, Some(2));
    assert_eq!((third.version, &third.artifact), (3, &first.artifact));
    let numbers =
        |name: &str| store.datasets().versions(name).expect("versions").iter().map(|v| v.version).collect::<Vec<_>>();
    assert_eq!(numbers("prices"), [2, 3]);
    store.datasets().open("prices", Some(3)).expect("the rows of the first version, which the third has too");
    let fourth = publish(&store, "prices", 4, Some(1));
    assert_eq!((fourth.version, numbers("prices")), (4, vec![4]));
    store
        .collect(&Collection { unreferenced: true, total_bytes: Some(0), ..Collection::default() })
        .expect("collected");
    assert_eq!(store.list().expect("artifacts").len(), 1);
    assert_eq!(store.delete(&fourth.artifact).expect_err("held").code(), "artifact-held");
    store.datasets().remove("prices").expect("removed");
    assert_eq!(store.datasets().versions("prices").expect_err("gone").code(), "dataset-unknown");
    store.collect(&Collection { unreferenced: true, ..Collection::default() }).expect("collected");
    assert!(store.list().expect("artifacts").is_empty());
}

#[test]
fn a_dataset_makes_no_room_for_others() {
    let quota = ArtifactQuota { total_count: 4, ..ArtifactQuota::default() };
    let (_folder, store) = open(quota);
    let output = Description { mime_type: "text/plain", title: None };
    publish(&store, "prices", 1, None);
    for number in 0..20_u8 {
        store.put("s", &[number], output).expect("stored");
    }
    store.datasets().open("prices", None).expect("its rows");
    for number in 2..=4 {
        publish(&store, "prices", number, None);
    }
    assert_eq!(store.put("s", b"more", output).expect_err("full").code(), "artifacts-full");
    assert_eq!(store.datasets().versions("prices").expect("versions").len(), 4);
}

#[test]
fn near_names_are_named() {
    let (_folder, store) = open(ArtifactQuota::default());
    for name in ["inflation_monthly", "inflation_yearly", "gdp"] {
        publish(&store, name, 1, None);
    }
    let error = |name: &str| store.datasets().get(name, None).expect_err(name).to_string();
    assert_eq!(
        error("Inflation-Monthly"),
        "no dataset `Inflation-Monthly` is published; did you mean `inflation_monthly`?"
    );
    assert_eq!(error("gpd"), "no dataset `gpd` is published; did you mean `gdp`?");
    assert_eq!(
        error("inflation"),
        "no dataset is called `inflation`, which may stand for any of `inflation_monthly`, `inflation_yearly`"
    );
    assert_eq!(error("weather"), "no dataset `weather` is published");
}
