use std::{
    fs::File,
    io::{Seek, Write},
    sync::Arc,
};

use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int64Array, ListArray, RecordBatch, StringArray,
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

mod lengths;
mod parts;

/// A table as a guest would hand it over.
fn frame(head: &Value, buffers: &[&[u8]]) -> Vec<u8> {
    let head = head.to_string().into_bytes();
    let mut frame = u32::try_from(head.len()).expect("short").to_le_bytes().to_vec();
    frame.extend(head);
    frame.extend(buffers.concat());
    frame
}

fn le<const N: usize, T: Copy>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

fn integers(values: &[i64]) -> Vec<u8> {
    le(values, i64::to_le_bytes)
}

fn offsets(values: &[i32]) -> Vec<u8> {
    le(values, i32::to_le_bytes)
}

fn column(name: &str, dtype: &str, kind: Value) -> Value {
    json!({"name": name, "dtype": dtype, "type": kind})
}

/// A column of every kind, three rows each.
fn all_kinds() -> Vec<u8> {
    let head = json!({
        "rows": 3,
        "index": {"kind": "columns", "names": [null]},
        "columns": [
            column("__index_level_0__", "int64", json!({"kind": "integer", "bits": 64, "signed": true})),
            {"name": "whole", "dtype": "Int64", "nullable": true, "type": {"kind": "integer", "bits": 64, "signed": true}},
            column("small", "uint8", json!({"kind": "integer", "bits": 8, "signed": false})),
            column("half", "float16", json!({"kind": "float", "bits": 16})),
            column("real", "float64", json!({"kind": "float", "bits": 64})),
            column("flag", "bool", json!({"kind": "boolean"})),
            column("when", "datetime64[us, Europe/Oslo]", json!({"kind": "timestamp", "unit": "us", "zone": "Europe/Oslo"})),
            column("long", "timedelta64[ns]", json!({"kind": "duration", "unit": "ns"})),
            {"name": "day", "dtype": "object", "nullable": true, "type": {"kind": "date"}},
            {"name": "text", "dtype": "str", "nullable": true, "type": {"kind": "text", "bytes": 9}},
            column("bytes", "object", json!({"kind": "binary", "bytes": 2})),
            column("group", "category", json!({"kind": "category", "count": 2, "bytes": 2, "ordered": true})),
            column("mixed", "object", json!({"kind": "json", "bytes": 8})),
        ],
    });
    frame(
        &head,
        &[
            &integers(&[10, 20, 30]),
            &[1, 0, 1],
            &integers(&[1, 0, i64::MAX]),
            &[1, 2, 255],
            &[0, 0x3c, 0, 0x40, 0, 0x7e],
            &le(&[0.1, f64::NAN, f64::INFINITY], f64::to_le_bytes),
            &[0, 1, 2],
            &integers(&[1_700_000_000_000_000, i64::MIN, 0]),
            &integers(&[1, i64::MIN, -1]),
            &[1, 0, 1],
            &offsets(&[19_000, 0, -1]),
            &[1, 0, 1],
            &offsets(&[0, 6, 6, 9]),
            "a,\"bø☃".as_bytes(),
            &offsets(&[0, 2, 2, 2]),
            &[0, 255],
            &offsets(&[1, -1, 0]),
            &offsets(&[0, 1, 2]),
            b"xy",
            &offsets(&[0, 1, 4, 8]),
            b"1\"b\"null",
        ],
    )
}

fn parquet(table: &Table) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    let mut bytes = Vec::new();
    table.write_parquet(&mut bytes).expect("written");
    let mut again = Vec::new();
    table.write_parquet(&mut again).expect("written");
    assert_eq!(bytes, again, "one table makes one file");
    file.write_all(&bytes).expect("written");
    file.rewind().expect("rewound");
    file
}

#[test]
fn every_kind_of_column_comes_back_as_it_was() {
    let table = Table::parse(&all_kinds()).expect("a table");
    assert_eq!((table.rows(), table.columns()), (3, 13));
    let builder = ParquetRecordBatchReaderBuilder::try_new(parquet(&table)).expect("a Parquet file");
    let keys = builder.metadata().file_metadata().key_value_metadata().expect("keys").clone();
    let pandas = keys.iter().find(|key| key.key == "pandas").and_then(|key| key.value.as_deref()).expect("pandas");
    let pandas: Value = serde_json::from_str(pandas).expect("JSON");
    assert_eq!(pandas["index_columns"], json!(["__index_level_0__"]));
    assert_eq!(pandas["columns"][6]["metadata"], json!({"timezone": "Europe/Oslo"}));
    assert_eq!(pandas["columns"][11]["pandas_type"], "categorical");
    let types = pandas["columns"].as_array().expect("a list").iter().map(|column| column["numpy_type"].as_str());
    let types: Vec<&str> = types.map(|name| name.expect("a name")).collect();
    let expected =
        "int64 Int64 uint8 float16 float64 bool datetime64[ns] timedelta64[ns] object str object int32 object";
    assert_eq!(types.join(" "), expected);
    let batches: Vec<_> = builder.build().expect("a reader").collect::<Result<_, _>>().expect("rows");
    let [batch] = batches.as_slice() else { panic!("{} batches", batches.len()) };
    assert_eq!(batch.schema().fields(), table.batch().schema().fields());
    assert!(batch.schema().field(11).dict_is_ordered().expect("a category"));
    // What is kept with the schema, which is where pyarrow looks, is not given back here.
    assert_eq!(table.batch().schema().metadata().get("pandas"), Some(&pandas.to_string()));
    for (name, (read, made)) in batch.schema().fields().iter().zip(batch.columns().iter().zip(table.batch().columns()))
    {
        assert_eq!(read.to_data(), made.to_data(), "{name}");
    }
    let whole = batch.column(1).as_primitive::<Int64Type>();
    assert_eq!((whole.value(0), whole.is_null(1), whole.value(2)), (1, true, i64::MAX));
    let nulls: Vec<usize> = batch.columns().iter().map(|array| array.null_count()).collect();
    assert_eq!(nulls, [0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0]);
}

#[test]
fn rows_are_read_a_page_at_a_time() {
    let table = Table::parse(&all_kinds()).expect("a table");
    let file = parquet(&table);
    let read = |skip, rows, bytes| {
        let mut file = file.try_clone().expect("a file");
        file.rewind().expect("rewound");
        Page::read(file, PageRequest { skip, rows, bytes, value_chars: None }).expect("a page")
    };
    let all = read(0, 100, 10_000);
    assert!(all.header.starts_with("__index_level_0__,whole,small,half,real,flag,when,"), "{}", all.header);
    let lines: Vec<&str> = all.text.lines().collect();
    assert_eq!((all.rows, all.total, lines.len()), (3, 3, 3));
    assert!(lines[0].starts_with("10,1,1,1,0.1,false,2023-11-14T23:13:20+01:00,"), "{}", lines[0]);
    assert!(lines[0].contains(",\"a,\"\"bø\","), "{}", lines[0]);
    assert_eq!(read(1, 1, 10_000).text.trim_end(), lines[1]);
    assert_eq!((read(2, 9, 10_000).rows, read(3, 9, 10_000).rows, read(u64::MAX, 9, 10_000).rows), (1, 0, 0));
    let first = read(0, 100, lines[0].len() + lines[1].len());
    assert_eq!((first.rows, first.text.trim_end(), first.total), (1, lines[0], 3));
    let narrow = read(0, 100, 5);
    assert_eq!((narrow.rows, narrow.is_squeezed, narrow.text.as_str()), (1, true, "10\n"));
    assert_eq!(
        (narrow.header.as_str(), narrow.columns_left_out),
        ("__index_level_0__\n", all.header.split(',').count() - 1)
    );
    let short = PageRequest { skip: 0, rows: 1, bytes: 10_000, value_chars: Some(3) };
    let short = Page::read(parquet(&table), short).expect("a page").text;
    assert!(short.starts_with("10,1,1,1,0.1,fal… 2 more characters,202… "), "{short}");
}

/// A column of so many categories in so many rows, every seventh without one.
fn groups(rows: i32, count: i32) -> Table {
    let names: Vec<String> = (0..count).map(|number| format!("ø{}", count - number)).collect();
    let ends = names.iter().scan(0, |end, name| {
        *end += i32::try_from(name.len()).expect("short");
        Some(*end)
    });
    let ends: Vec<i32> = std::iter::once(0).chain(ends).collect();
    let codes: Vec<i32> = (0..rows).map(|row| if row % 7 == 3 { -1 } else { (row * 31 + count - 1) % count }).collect();
    let mut head = one(json!({"kind": "category", "count": count, "bytes": ends[names.len()], "ordered": false}));
    head["rows"] = rows.into();
    Table::parse(&frame(&head, &[&offsets(&codes), &offsets(&ends), names.concat().as_bytes()])).expect("a table")
}

#[test]
fn categories_keep_their_order_and_all_of_them() {
    // One page and several, one bit and several, one category, and those of which there is no row.
    for (rows, count) in [(3, 40), (2, 1), (1, 2), (9, 2), (200_000, 300), (70_000, 3), (16, 70_000)] {
        let table = groups(rows, count);
        let builder = ParquetRecordBatchReaderBuilder::try_new(parquet(&table)).expect("a Parquet file");
        let batches: Vec<_> =
            builder.with_batch_size(1 << 20).build().expect("a reader").collect::<Result<_, _>>().expect("rows");
        let [batch] = batches.as_slice() else { panic!("{} batches", batches.len()) };
        assert_eq!(batch.column(0).to_data(), table.batch().column(0).to_data(), "{rows} of {count}");
    }
}

#[test]
fn a_large_table_is_several_groups_of_rows() {
    let table = groups((1 << 20) + 5, 9);
    let page = Page::read(parquet(&table), PageRequest { skip: 1 << 20, rows: 9, bytes: 1 << 10, value_chars: None });
    let page = page.expect("a page");
    assert_eq!((page.rows, page.total), (5, (1 << 20) + 5));
    assert_eq!(page.text, "ø3\nø8\nø4\nø9\nø5\n");
}

/// A table of texts with names of one letter.
fn texts(columns: Vec<ArrayRef>) -> Batches {
    let name = |place| ["a", "b", "c"][place];
    let field = |place| Field::new(name(place), DataType::Utf8, true);
    let schema = Arc::new(Schema::new((0..columns.len()).map(field).collect::<Vec<_>>()));
    let rows = columns[0].len();
    let batch = repeating::batch(schema.fields(), columns, rows).expect("a batch");
    Batches::new(schema, vec![batch])
}

/// The bytes of a table as a file.
fn file_of(rows: &Batches) -> Vec<u8> {
    let mut bytes = Vec::new();
    rows.write_parquet(&mut bytes).expect("written");
    bytes
}

fn read_again(bytes: &[u8]) -> Result<Batches, TableError> {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("written");
    Batches::read_parquet(file)
}

/// Columns as a guest is handed them: the head of each, and its buffers.
fn handed_over(rows: &Batches) -> Vec<(Value, Vec<Vec<u8>>)> {
    taken(rows.to_columns().expect("columns"))
}

/// The columns that a guest takes, all that there is.
fn taken(mut columns: Columns) -> Vec<(Value, Vec<Vec<u8>>)> {
    let head = |columns: &mut Columns| {
        let length = u32::from_le_bytes(columns.take(4).try_into().expect("a length"));
        serde_json::from_slice::<Value>(&columns.take(length as usize)).expect("JSON")
    };
    let count = head(&mut columns)["columns"].as_u64().expect("a count");
    let column = |_| {
        let said = head(&mut columns);
        let sizes = said["buffers"].as_array().expect("a list").iter().map(|size| size.as_u64().expect("a size"));
        let buffers = sizes.map(|size| columns.take(usize::try_from(size).expect("small"))).collect();
        (said, buffers)
    };
    let all = (0..count).map(column).collect();
    assert!(columns.is_empty(), "{} bytes are left", columns.len());
    all
}

#[test]
fn texts_that_a_file_repeats_are_handed_over_once_each() {
    let cities = (0..40_000).map(|row| (row % 7 != 3).then_some(["Oslo", "Rīga", ""][row % 3]));
    let told_apart = (0..40_000).map(|row| Some(format!("row {row}")));
    let same = (0..40_000).map(|_| Some("x"));
    let rows = texts(vec![
        Arc::new(cities.collect::<StringArray>()),
        Arc::new(told_apart.collect::<StringArray>()),
        Arc::new(same.collect::<StringArray>()),
    ]);
    let read = read_again(&file_of(&rows)).expect("a file");
    let kinds: Vec<_> = read.batches[0].columns().iter().map(|column| column.data_type().clone()).collect();
    assert_eq!(kinds, [repeating::kind(), DataType::Utf8, repeating::kind()]);
    // Nobody else is told, and the file that is made of them is the same.
    assert_eq!((read.schema.clone(), read.columns()), (rows.schema.clone(), rows.columns()));
    assert_eq!(read.sample(3).expect("a sample"), rows.sample(3).expect("a sample"));
    let types = |bytes| read_again(bytes).expect("a file").schema;
    assert_eq!(types(&file_of(&read)), rows.schema);
    let pieces = read.clone().into_pieces().collect::<Result<Vec<_>, _>>().expect("pieces");
    let sent = Batches::from_pieces(pieces).expect("rows");
    assert_eq!(sent.batches[0].column(0).data_type(), &DataType::Utf8);
    assert_eq!(sent.sample(9).expect("a sample"), rows.sample(9).expect("a sample"));
    let [(cities, buffers), (plain, _), (same, _)] = &handed_over(&read)[..] else { panic!("three columns") };
    assert_eq!(cities["type"], json!({"kind": "repeated", "count": 3, "bytes": 9}));
    assert_eq!((cities["nullable"].as_bool(), same["type"]["count"].as_u64()), (Some(false), Some(1)));
    assert_eq!(plain["type"]["kind"], "text");
    let [codes, ends, names] = &buffers[..] else { panic!("three buffers") };
    assert_eq!(codes[..32], offsets(&[0, 1, 2, -1, 1, 2, 0, 1]));
    assert_eq!((ends, names), (&offsets(&[0, 4, 9, 9]), &"OsloRīga".as_bytes().to_vec()));
}

#[test]
fn columns_that_are_written_at_the_same_time_stand_in_their_order() {
    let rows = (1 << 20) + 9;
    let lists = (0..rows).map(|n| (n % 3 != 0).then(|| vec![Some(n), None]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("l", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
        ("n", Arc::new(Int64Array::from_iter_values(0..rows))),
        ("t", Arc::new(StringArray::from_iter_values((0..rows).map(|n| format!("text {n}"))))),
    ];
    let whole = RecordBatch::try_from_iter(columns).expect("a batch");
    let (first, count) = (whole.slice(0, 700_000), whole.num_rows());
    let rows = Batches::new(whole.schema(), vec![first, whole.slice(700_000, count - 700_000)]);
    let bytes = file_of(&rows);
    assert_eq!(bytes, file_of(&rows), "the same bytes each time");
    let read = read_again(&bytes).expect("a file");
    assert_eq!((read.rows(), read.columns()), (count, rows.columns()));
    assert_eq!(read.sample(9).expect("a sample"), rows.sample(9).expect("a sample"));
    let (mut before, mut found) = (0, Vec::new());
    for batch in &read.batches {
        found.push(batch.columns() == whole.slice(before, batch.num_rows()).columns());
        before += batch.num_rows();
    }
    assert!(found.iter().all(|is_same| *is_same), "{found:?}");
}

#[test]
fn parts_that_repeat_other_texts_are_one_column() {
    let part = |codes: &[Option<i32>], names: &[&str]| -> ArrayRef {
        let names = Arc::new(StringArray::from(names.to_vec()));
        Arc::new(DictionaryArray::<Int32Type>::new(codes.iter().copied().collect(), names))
    };
    let mut rows = texts(vec![part(&[Some(1), Some(0), Some(1), Some(1)], &["a", "b"])]);
    let first = rows.batches[0].clone();
    rows.batches.push(first.slice(1, 3));
    rows.batches.push(texts(vec![part(&[None, Some(0), Some(0)], &["c"])]).batches[0].clone());
    let (said, buffers) = &handed_over(&rows)[0];
    assert_eq!((&said["rows"], &said["type"]["count"]), (&json!(10), &json!(3)));
    assert_eq!(buffers[0], offsets(&[1, 0, 1, 1, 0, 1, 1, -1, 2, 2]));
    assert_eq!(buffers[2], b"abc");
    // One part that does not repeat its texts, and as many texts as rows: all are written out.
    let plain: ArrayRef = Arc::new(StringArray::from(vec![Some("d"), None]));
    rows.batches.push(texts(vec![plain]).batches[0].clone());
    let (said, buffers) = &handed_over(&rows)[0];
    assert_eq!((&said["type"], &said["nullable"]), (&json!({"kind": "text", "bytes": 10}), &json!(true)));
    assert_eq!(buffers[2], b"babbabbccd");
    let (said, _) = &handed_over(&texts(vec![part(&[Some(1), Some(0)], &["a", "b"])]))[0];
    assert_eq!(said["type"]["kind"], "text");
}

#[test]
fn numbers_without_a_text_are_refused() {
    let names = (0..1_000).map(|row| Some(["a", "b", "c", "d"][row % 4]));
    let rows = texts(vec![Arc::new(names.collect::<StringArray>())]);
    let whole = file_of(&rows);
    assert_eq!(handed_over(&read_again(&whole).expect("a file"))[0].0["type"]["count"], 4);
    // The head of the dictionary says how many texts there are.
    let count = whole.windows(3).position(|bytes| bytes == [0x4c, 0x15, 8]).expect("a dictionary") + 2;
    for said in [6, 2, 0] {
        let mut less = whole.clone();
        less[count] = said;
        read_again(&less).expect_err("there are rows of four texts");
    }
}

#[test]
fn moments_in_seconds_are_kept_in_milliseconds() {
    let kind = json!({"kind": "timestamp", "unit": "s", "zone": null});
    let table = Table::parse(&frame(&one(kind.clone()), &[&integers(&[-1, i64::MIN])])).expect("a table");
    let page = Page::read(parquet(&table), PageRequest { skip: 0, rows: 9, bytes: 1 << 10, value_chars: None });
    assert_eq!(page.expect("a page").text, "1969-12-31T23:59:59\n\n");
    let far = refusal(&one(kind), &[&integers(&[0, i64::MAX / 1_000 + 1])]);
    assert_eq!(far, "column `a` has moments that are too far away");
}

fn refusal(head: &Value, buffers: &[&[u8]]) -> String {
    Table::parse(&frame(head, buffers)).expect_err("refused").to_string()
}

fn one(kind: Value) -> Value {
    of_two_rows(&[column("a", "?", kind)])
}

fn of_two_rows(columns: &[Value]) -> Value {
    json!({"rows": 2, "index": {"kind": "range", "name": null, "start": 0, "stop": 2, "step": 1}, "columns": columns})
}

const ALL: PageRequest = PageRequest { skip: 0, rows: 99, bytes: 1 << 16, value_chars: None };

/// A column of each kind that is none of Arrow's own or lies in others, two rows each.
fn own_kinds() -> Vec<u8> {
    let integer = json!({"kind": "integer", "bits": 64, "signed": true});
    let column = |name: &str, kind: &Value, more: Value| {
        let mut column = column(name, "?", kind.clone());
        column.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        column
    };
    let extension =
        |name: &str, metadata: Value| json!({"extension": {"name": name, "metadata": metadata.to_string()}});
    let ends =
        json!({"kind": "struct", "fields": [{"name": "left", "type": integer}, {"name": "right", "type": integer}]});
    let list = json!({"kind": "list", "count": 3, "item": {"type": {"kind": "float", "bits": 32}}});
    let columns = [
        column("none", &json!({"kind": "null"}), json!({})),
        column("time", &json!({"kind": "time"}), json!({})),
        column("money", &json!({"kind": "decimal", "precision": 38, "scale": 2}), json!({})),
        column("long", &json!({"kind": "decimal", "precision": 39, "scale": 0}), json!({"nullable": true})),
        column("id", &json!({"kind": "uuid"}), json!({})),
        column("month", &integer, extension("pandas.period", json!({"freq": "M"}))),
        column("hour", &integer, extension("pandas.period", json!({"freq": "h"}))),
        column("week", &integer, extension("pandas.period", json!({"freq": "W-SUN"}))),
        column("from", &ends, extension("pandas.interval", json!({"subtype": "int64", "closed": "left"}))),
        column("list", &list, json!({"container": "tuple"})),
    ];
    let long = [1_u8; 16].iter().chain(&[0; 16]).copied().chain([0; 32]).collect::<Vec<_>>();
    let id: Vec<u8> = (0..32).collect();
    let buffers: &[&[u8]] = &[
        &[0, 0],
        &integers(&[1, 86_399_999_999]),
        &le(&[110_i128, -5], i128::to_le_bytes),
        &[1, 0],
        &long,
        &id,
        &integers(&[0, -1]),
        &integers(&[5, -1]),
        &integers(&[1, 0]),
        &integers(&[0, -7]),
        &integers(&[1, 8]),
        &offsets(&[0, 3, 3]),
        &le(&[0.5_f32, 1.0, 2.0], f32::to_le_bytes),
    ];
    frame(&of_two_rows(&columns), buffers)
}

/// Values that are none of Arrow's own kinds for tables, and what people read of them.
#[test]
fn what_pandas_has_of_its_own_is_kept_and_shown() {
    let table = Table::parse(&own_kinds()).expect("a table");
    let page = Page::read(parquet(&table), ALL).expect("a page");
    let expected = ",00:00:00.000001,1.10,1334440654591915542993625911497130241,00010203-0405-0607-0809-0a0b0c0d0e0f,1970-01,\
                    1970-01-01 05:00,1969-12-29/1970-01-04,\"[0, 1)\",\"[0.5, 1.0, 2.0]\"
,23:59:59.999999,-0.05,,10111213-1415-1617-1819-1a1b1c1d1e1f,1969-12,1969-12-31 23:00,1969-12-22/1969-12-28,\"[-7, 8)\",[]
";
    assert_eq!(page.text, expected);
    let schema = table.batch().schema();
    assert_eq!(schema.field(4).extension_type_name(), Some("arrow.uuid"));
    assert_eq!(schema.field(5).extension_type_name(), Some("pandas.period"));
    let list = json!({"kind": "list", "count": 3, "item": {"type": {"kind": "float", "bits": 32}}});
    let refused = |kind: Value, buffers: &[&[u8]], expected: &str| {
        let found = refusal(&one(kind), buffers);
        assert!(found.contains(expected), "{found}");
    };
    refused(json!({"kind": "time"}), &[&integers(&[0, 86_400_000_000])], "times that no day has");
    refused(
        json!({"kind": "decimal", "precision": 1, "scale": 0}),
        &[&le(&[10_i128, 0], i128::to_le_bytes)],
        "not what it claims",
    );
    refused(json!({"kind": "decimal", "precision": 1, "scale": -1}), &[&[0; 32]], "whole powers of ten");
    refused(json!({"kind": "decimal", "precision": 77, "scale": 0}), &[&[0; 64]], "not what it claims");
    refused(json!({"kind": "struct", "fields": []}), &[], "structures without fields");
    refused(list.clone(), &[&offsets(&[0, 2, 2])], "offsets that do not rise");
    refused(list, &[&offsets(&[0, 2, 3]), &[0; 8]], "ends within column `a`");
}

#[test]
fn what_lies_is_refused_by_its_reason() {
    let integer = json!({"kind": "integer", "bits": 64, "signed": true});
    let text = json!({"kind": "text", "bytes": 2});
    let check = |kind: &Value, buffers: &[&[u8]], expected: &str| {
        let found = refusal(&one(kind.clone()), buffers);
        assert!(found.contains(expected), "{found}");
    };
    check(&integer, &[&[0; 15]], "ends within column `a`: 16 bytes are needed, 15 are left");
    check(&integer, &[&[0; 17]], "1 bytes behind its last column");
    check(&json!({"kind": "integer", "bits": 12, "signed": true}), &[&[0; 16]], "number of bits that there is not");
    check(&json!({"kind": "float", "bits": 0}), &[], "number of bits that there is not");
    check(&text, &[&offsets(&[0, 2, 1]), b"ab"], "offsets that do not rise");
    check(&text, &[&offsets(&[1, 1, 2]), b"ab"], "offsets that do not rise");
    check(&text, &[&offsets(&[0, 1, i32::MAX]), b"ab"], "offsets that do not rise");
    check(&text, &[&offsets(&[0, -1, 2]), b"ab"], "offsets that do not rise");
    check(&text, &[&offsets(&[0, 1, 2]), b"\xff\xfe"], "not what it claims to be");
    check(&text, &[&offsets(&[0, 1, 2]), "ø".as_bytes()], "not what it claims to be");
    let category = json!({"kind": "category", "count": 1, "bytes": 1, "ordered": false});
    check(&category, &[&offsets(&[0, 1]), &offsets(&[0, 1]), b"x"], "not what it claims to be");
    check(&category, &[&offsets(&[0, -2]), &offsets(&[0, 1]), b"x"], "not what it claims to be");
    check(&json!({"kind": "timestamp", "unit": "us", "zone": "Europe/Nowhere"}), &[&[0; 16]], "not what it claims");
    check(&json!({"kind": "text", "bytes": u32::MAX}), &[&offsets(&[0, 1, 2])], "ends within column `a`");
    check(&json!({"kind": "tower"}), &[], "head of the table cannot be read");
}

#[test]
fn heads_are_bounded() {
    let numbers = json!({"kind": "integer", "bits": 8, "signed": true});
    let head = |columns: Vec<Value>, names: usize| json!({"rows": 0, "index": {"kind": "columns", "names": vec![Value::Null; names]}, "columns": columns});
    let many = (0..=COLUMNS_MAX).map(|number| column(&number.to_string(), "int8", numbers.clone())).collect();
    assert!(refusal(&head(many, 0), &[]).contains("2001 columns, at most 2000"));
    // A table without columns has its names and its rows alone.
    let none = Table::parse(&frame(&of_two_rows(&[]), &[])).expect("a table");
    assert_eq!((none.rows(), none.columns()), (2, 0));
    assert_eq!(Page::read(parquet(&none), ALL).expect("a page").total, 0);
    let twice = vec![column("a", "int8", numbers.clone()), column("a", "int8", numbers.clone())];
    assert!(refusal(&head(twice, 0), &[]).contains("two columns named `a`"));
    let long = vec![column(&"a".repeat(1_025), "int8", numbers.clone())];
    assert!(refusal(&head(long, 0), &[]).contains("1025 bytes in a column's name"));
    assert!(refusal(&head(vec![column("a", "int8", numbers)], 2), &[]).contains("at most 1"));
    assert!(Table::parse(&[]).is_err() && Table::parse(&[255; 8]).is_err());
    let rows = json!({"rows": u64::MAX, "index": {"kind": "columns", "names": []}, "columns": []});
    assert!(refusal(&rows, &[]).contains("head of the table"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks that a hostile frame becomes a file or is refused.
    #[test]
    fn hostile_frames_are_refused_or_kept(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
        is_own in any::<bool>(),
    ) {
        let mut bytes = if is_own { own_kinds() } else { all_kinds() };
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(table) = Table::parse(&bytes) {
            let file = parquet(&table);
            let page = Page::read(file, PageRequest { skip: 0, rows: 10, bytes: 1 << 20, value_chars: Some(20) });
            prop_assert_eq!(page.map(|page| page.total).map_err(|error| error.to_string()), Ok(table.rows() as u64));
        }
    }

    /// A file that is damaged is read or refused.
    #[test]
    fn damaged_files_are_read_or_refused(place in any::<prop::sample::Index>(), value in any::<u8>()) {
        let mut file = parquet(&Table::parse(&all_kinds()).expect("a table"));
        let length = usize::try_from(file.metadata().expect("metadata").len()).expect("short");
        file.seek(std::io::SeekFrom::Start(place.index(length) as u64)).expect("sought");
        file.write_all(&[value]).expect("written");
        file.rewind().expect("rewound");
        let _ = Page::read(file, PageRequest { skip: 0, rows: 10, bytes: 1 << 20, value_chars: Some(20) });
    }
}
