//! A large table on its way from a file of the host to a cell.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow_schema::{Field, Schema};
use cellar_connectors::{
    Bounds, ConnectorOptions, Connectors, CsvOptions, FetchOptions, FilesFetch, FilesPlace, Kind, Sheet,
};
use cellar_engine::{
    Bridges, GuestName, SessionConfig,
    bridges::{
        Call, CallError, CallErrorKind, CallFuture, Caller, ConnectorSpec, FetchFuture, FetchName, FetchSpec, denied,
    },
};
use cellar_tables::Batches;
use serde_json::{Map, Value};

use crate::{
    Offer,
    lab::{Lab, Plan},
    table::{Line, Samples},
};

pub(crate) const MEASUREMENTS: &[Offer] = &[("frames", frames)];

const ROWS: i64 = 1_000_000;

/// The fetches: what they are called, and what their columns of text are like.
const FETCHES: [(&str, &str); 2] = [("few", "200 texts at most"), ("unique", "each text once")];

fn frames(plan: &Plan) -> Vec<Line> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut fetches = std::collections::BTreeMap::new();
    for (name, _) in FETCHES {
        let file = std::fs::File::create(folder.path().join(format!("{name}.parquet"))).expect("a file");
        table(name == "few").write_parquet(file).expect("a table can be written");
        let asks = FilesFetch {
            path: format!("{name}.parquet"),
            format: None,
            select: None,
            filters: Vec::new(),
            csv: CsvOptions::default(),
            sheet: Sheet::default(),
        };
        let (description, parameters, columns) = (String::new(), Vec::new(), Vec::new());
        fetches.insert(name.to_owned(), FetchOptions { description, parameters, columns, asks });
    }
    let kind = Kind::Files { place: FilesPlace::Folder(folder.path().to_owned()), fetches };
    let options = ConnectorOptions { description: String::new(), bounds: Bounds::default(), kind };
    let connectors = Connectors::new([("lake".to_owned(), options)].into()).expect("a connector");
    let lab = Lab::open_guest(plan, GuestName::PythonData);
    let mut lines = Vec::new();
    for (name, texts) in FETCHES {
        let (mut first, mut again, mut look) = (Samples::default(), Samples::default(), Samples::default());
        for _ in 0..plan.pick(12, 3) {
            let bridges = Arc::new(Lake(connectors.clone()));
            let session = lab.session_of(SessionConfig { bridges, ..SessionConfig::default() });
            lab.run(&session, "1");
            first.push(lab.time(&session, &format!("frame = lake.{name}()")));
            again.push(lab.time(&session, &format!("frame = lake.{name}()")));
            // Texts are made when somebody looks at them.
            look.push(lab.time(&session, "frame['city'].iloc[0]"));
        }
        let what = format!("Data: 1,000,000 rows, 10 columns, {texts}");
        lines.push(Line::time(format!("{what}: fetched"), &first, None));
        lines.push(Line::time(format!("{what}: fetched again"), &again, None));
        lines.push(Line::time(format!("{what}: first look at a column of text"), &look, None));
    }
    lines
}

/// Ten columns, two of them of text.
fn table(is_repeating: bool) -> Batches {
    let numbers = |seed: u64| (0..ROWS as u64).map(move |row| (row ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20);
    let floats = |seed| -> ArrayRef { Arc::new(Float64Array::from_iter_values(numbers(seed).map(|n| n as f64 / 3.0))) };
    let integers = |seed, most: u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(numbers(seed).map(|n| (n % most) as i64)))
    };
    let texts = |seed, few: u64| -> ArrayRef {
        let text = |n: u64| if is_repeating { format!("kind {}", n % few) } else { format!("user {n:012}") };
        Arc::new(StringArray::from_iter_values(numbers(seed).map(text)))
    };
    let columns: [(&str, ArrayRef); 10] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS))),
        ("value", floats(1)),
        ("other", floats(2)),
        ("price", floats(3)),
        ("count", integers(4, 1_000)),
        ("small", integers(5, 100)),
        ("flag", Arc::new(BooleanArray::from_iter(numbers(6).map(|n| Some(n % 2 == 0))))),
        ("when", Arc::new(TimestampMicrosecondArray::from_iter_values(numbers(7).map(|n| n as i64)))),
        ("city", texts(8, 10)),
        ("kind", texts(9, 200)),
    ];
    let fields = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).expect("columns of one length");
    Batches::new(schema, vec![batch])
}

/// A connector as the command line has it.
struct Lake(Connectors);

impl Bridges for Lake {
    fn call(&self, call: Call, _caller: Caller) -> CallFuture {
        let error = denied(&call);
        Box::pin(async { Err(error) })
    }

    fn connectors(&self) -> Vec<ConnectorSpec> {
        let fetch = |(name, _): &(&str, &str)| FetchSpec {
            name: (*name).to_owned(),
            description: String::new(),
            schema: "{}".to_owned(),
            columns: Vec::new(),
        };
        let fetches = FETCHES.iter().map(fetch).collect();
        vec![ConnectorSpec { name: "lake".to_owned(), description: String::new(), fetches }]
    }

    fn fetch_arguments(
        &self,
        _name: &FetchName,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, CallError> {
        Ok(arguments)
    }

    fn fetch(&self, name: &FetchName, arguments: Map<String, Value>, _caller: Caller) -> FetchFuture {
        let (connectors, fetch) = (self.0.clone(), name.fetch.clone());
        Box::pin(async move {
            let rows = connectors.fetch("lake", &fetch, arguments).await;
            rows.map_err(|error| CallError::new(CallErrorKind::Failed, error.to_string()))
        })
    }
}
