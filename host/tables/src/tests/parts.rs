//! Columns in several parts: each row has the value that it had, wherever the parts begin and whichever of them have gaps.

use std::{fs::File, io::Write as _, sync::Arc};

use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    builder::{Int64Builder, MapBuilder, StringBuilder},
    types::Int64Type,
};
use arrow_buffer::OffsetBuffer;
use arrow_cast::cast;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use arrow_select::concat::concat;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{file_of, handed_over, read_again};
use crate::{
    Batches, Columns,
    convert::{Direction, Format, Request},
    encoded::Encoded,
    error::TableError,
    files, repeating,
};

/// A kind of column: how it is made of whole numbers from 0 to 99, and what a guest has of each.
struct Kind {
    name: &'static str,
    /// Type of the column in the table.
    said: DataType,
    made: Made,
    told: fn(i64) -> String,
}

/// Construction of an array from numbers.
#[derive(Clone)]
enum Made {
    Numbers(Vec<DataType>),
    Texts(Vec<DataType>),
    By(fn(&[Option<i64>]) -> ArrayRef),
}

fn plain(number: i64) -> String {
    number.to_string()
}

fn text(number: i64) -> String {
    // Some texts are empty, and bytes are not characters.
    if number % 9 == 0 { String::new() } else { format!("{number} ø") }
}

#[expect(clippy::too_many_lines, reason = "a table: each type with its values")]
fn kinds() -> Vec<Kind> {
    use DataType::*;
    let numbers = |name, said: DataType, told| Kind { name, made: Made::Numbers(vec![said.clone()]), said, told };
    let by_way = |name, way: DataType, said: DataType, told| Kind {
        name,
        made: Made::Numbers(vec![way, said.clone()]),
        said,
        told,
    };
    let texts = |name, said: DataType, told| Kind { name, made: Made::Texts(vec![said.clone()]), said, told };
    let by = |name, said, make, told| Kind { name, said, made: Made::By(make), told };
    let category = || Dictionary(Box::new(Int32), Box::new(Utf8));
    let item = |kind| Arc::new(Field::new("item", kind, true));
    let mut all = vec![
        numbers("Null", Null, |_| unreachable!("there is no value")),
        by(
            "Boolean",
            Boolean,
            |values| Arc::new(values.iter().map(|n| n.map(|n| n % 2 == 0)).collect::<arrow_array::BooleanArray>()),
            |n| (n % 2 == 0).to_string(),
        ),
        numbers("Float16", Float16, plain),
        numbers("Float32", Float32, plain),
        numbers("Float64", Float64, plain),
        texts("Utf8", Utf8, text),
        texts("LargeUtf8", LargeUtf8, text),
        texts("Utf8View", Utf8View, text),
        texts("Binary", Binary, text),
        texts("LargeBinary", LargeBinary, text),
        texts("BinaryView", BinaryView, text),
        by(
            "FixedSizeBinary",
            FixedSizeBinary(2),
            |values| {
                let pieces = values.iter().map(|n| n.map(|n| format!("{n:02}").into_bytes()));
                Arc::new(
                    arrow_array::FixedSizeBinaryArray::try_from_sparse_iter_with_size(pieces, 2).expect("two bytes"),
                )
            },
            |n| format!("{n:02}"),
        ),
        by_way("Date32", Int32, Date32, plain),
        numbers("Decimal128", Decimal128(38, 2), |n| format!("{n}.00")),
        numbers("Decimal256", Decimal256(60, 1), |n| format!("{n}.0")),
        by_way("Time32", Int32, Time32(TimeUnit::Second), |n| format!("00:{:02}:{:02}", n / 60, n % 60)),
        by_way("Time64", Int64, Time64(TimeUnit::Microsecond), |n| match n {
            0 => "00:00:00".to_owned(),
            n => format!("00:00:00.{n:06}"),
        }),
        texts("category", category(), text),
        Kind {
            name: "numbers as categories",
            said: Dictionary(Box::new(Int32), Box::new(Int64)),
            made: Made::Numbers(vec![Dictionary(Box::new(Int32), Box::new(Int64))]),
            told: plain,
        },
        Kind { name: "texts that repeat", said: Utf8, made: Made::Texts(vec![repeating::kind()]), told: text },
        by("List", List(item(Int64)), lists, |n| format!("[{n},null]")),
        by(
            "LargeList",
            LargeList(item(Int64)),
            |values| cast(&lists(values), &LargeList(Arc::new(Field::new("item", Int64, true)))).expect("lists"),
            |n| format!("[{n},null]"),
        ),
        by(
            "FixedSizeList",
            FixedSizeList(item(Int64), 2),
            |values| {
                let lists = values.iter().map(|n| n.map(|n| vec![Some(n), None]));
                Arc::new(FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(lists, 2))
            },
            |n| format!("[{n},null]"),
        ),
        by(
            "lists of lists",
            List(item(List(item(Int64)))),
            |values| {
                // Where there is no list, there are items all the same.
                let (inner, nulls) = (lists(values), values.iter().map(Option::is_some).collect::<Vec<_>>());
                let field = Arc::new(Field::new("item", inner.data_type().clone(), true));
                let offsets = OffsetBuffer::from_lengths(values.iter().map(|_| 1));
                Arc::new(ListArray::new(field, offsets, inner, Some(nulls.into())))
            },
            |n| format!("[[{n},null]]"),
        ),
        by("Struct", Struct(vec![Field::new("n", Int64, true), Field::new("t", Utf8, true)].into()), structures, |n| {
            format!("{{n: {n}, t: {}}}", text(n))
        }),
        by("Map", maps(&[]).data_type().clone(), maps, |n| format!("[{{key: {}, value: {n}}}]", text(n))),
    ];
    let whole = [
        ("Int8", Int8),
        ("Int16", Int16),
        ("Int32", Int32),
        ("Int64", Int64),
        ("UInt8", UInt8),
        ("UInt16", UInt16),
        ("UInt32", UInt32),
        ("UInt64", UInt64),
    ];
    all.extend(whole.map(|(name, said)| numbers(name, said, plain)));
    for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
        all.push(numbers("Timestamp", Timestamp(unit, None), plain));
        all.push(numbers("Timestamp with a zone", Timestamp(unit, Some("Europe/Oslo".into())), plain));
        all.push(numbers("Duration", Duration(unit), plain));
    }
    all
}

fn lists(values: &[Option<i64>]) -> ArrayRef {
    let lists = values.iter().map(|n| n.map(|n| vec![Some(n), None]));
    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
}

fn structures(values: &[Option<i64>]) -> ArrayRef {
    let numbers: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    let texts: ArrayRef = Arc::new(values.iter().map(|n| n.map(text)).collect::<StringArray>());
    let fields = vec![Field::new("n", DataType::Int64, true), Field::new("t", DataType::Utf8, true)];
    let nulls = values.iter().map(Option::is_some).collect::<Vec<_>>().into();
    Arc::new(StructArray::new(fields.into(), vec![numbers, texts], Some(nulls)))
}

fn maps(values: &[Option<i64>]) -> ArrayRef {
    let mut builder = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for value in values {
        if let Some(n) = value {
            builder.keys().append_value(text(*n));
            builder.values().append_value(*n);
        }
        builder.append(value.is_some()).expect("as many keys as values");
    }
    Arc::new(builder.finish())
}

impl Kind {
    fn array(&self, values: &[Option<i64>]) -> ArrayRef {
        let (first, way): (ArrayRef, &[DataType]) = match &self.made {
            Made::By(make) => return make(values),
            Made::Numbers(way) if self.said == DataType::Null => {
                return arrow_array::new_null_array(&way[0], values.len());
            }
            Made::Numbers(way) => (Arc::new(Int64Array::from(values.to_vec())), way),
            Made::Texts(way) => (Arc::new(values.iter().map(|n| n.map(text)).collect::<StringArray>()), way),
        };
        way.iter().fold(first, |array, kind| cast(&array, kind).expect("a cast"))
    }

    fn told(&self, value: Option<i64>) -> Option<String> {
        value.filter(|_| self.said != DataType::Null).map(self.told)
    }
}

/// Rows of all kinds in parts: each part an array of its own, or all slices of one.
fn rows(parts: &[Vec<Option<i64>>], are_slices: bool) -> Batches {
    let kinds = kinds();
    let fields: Vec<_> = kinds
        .iter()
        .enumerate()
        .map(|(place, kind)| Arc::new(Field::new(format!("{place} {}", kind.name), kind.said.clone(), true)))
        .collect();
    let batch = |values: &[Option<i64>]| {
        let columns = kinds.iter().map(|kind| kind.array(values)).collect();
        repeating::batch(&fields, columns, values.len()).expect("a batch")
    };
    let mut from = 0;
    let whole = batch(&parts.concat());
    let slice = |part: &Vec<Option<i64>>| {
        from += part.len();
        whole.slice(from - part.len(), part.len())
    };
    let batches =
        if are_slices { parts.iter().map(slice).collect() } else { parts.iter().map(|part| batch(part)).collect() };
    Batches::new(Arc::new(Schema::new(fields)), batches)
}

/// The value of each row, as the page on columns says that they are read.
fn values(said: &Value, buffers: &[Vec<u8>]) -> Vec<Option<String>> {
    let rows = count(&said["rows"]);
    let mut buffers = buffers.iter().map(Vec::as_slice);
    let found = part(said, rows, &mut buffers);
    assert_eq!((found.len(), buffers.len()), (rows, 0), "{said}");
    found
}

fn count(said: &Value) -> usize {
    usize::try_from(said.as_u64().expect("a number")).expect("small")
}

/// The values of a column, or of what lies in one.
fn part<'a>(said: &Value, rows: usize, buffers: &mut impl Iterator<Item = &'a [u8]>) -> Vec<Option<String>> {
    let mut buffer = || buffers.next().expect("a buffer");
    let is_nullable = said["nullable"].as_bool().expect("said");
    let mask = if is_nullable { buffer().iter().map(|byte| *byte != 0).collect() } else { vec![true; rows] };
    assert_eq!(mask.len(), rows, "{said}");
    let kind = &said["type"];
    let name = kind["kind"].as_str().expect("a kind");
    let bits = kind["bits"].as_u64().unwrap_or(64) as usize;
    let found: Vec<Option<String>> = match name {
        "null" => vec![None; rows],
        "boolean" => buffer().iter().map(|byte| Some((*byte != 0).to_string())).collect(),
        "float" => {
            let real = |bytes: &[u8]| match bits {
                16 => half(bytes),
                32 => f32::from_le_bytes(bytes.try_into().expect("four bytes")).into(),
                _ => f64::from_le_bytes(bytes.try_into().expect("eight bytes")),
            };
            buffer().chunks_exact(bits / 8).map(|bytes| Some(real(bytes).to_string())).collect()
        }
        "integer" => numbers(buffer(), bits / 8).iter().map(|number| Some(number.to_string())).collect(),
        "date" => numbers(buffer(), 4).iter().map(|number| Some(number.to_string())).collect(),
        "timestamp" | "duration" => {
            numbers(buffer(), 8).iter().map(|number| (*number != i64::MIN).then(|| number.to_string())).collect()
        }
        "category" | "repeated" => {
            let codes = numbers(buffer(), 4);
            let names = texts(buffer(), buffer());
            let name = |code: &i64| usize::try_from(*code as i32).ok().map(|code| names[code].clone());
            codes.iter().map(name).collect()
        }
        "list" | "map" => {
            let ends = ends(buffer());
            let items = part(&kind["item"], count(&kind["count"]), buffers);
            let item = |item: &Option<String>| item.clone().unwrap_or_else(|| "null".to_owned());
            let list = |pair: &[usize]| items[pair[0]..pair[1]].iter().map(item).collect::<Vec<_>>().join(",");
            ends.windows(2).map(|pair| Some(format!("[{}]", list(pair)))).collect()
        }
        "struct" => {
            let fields = kind["fields"].as_array().expect("fields");
            let columns: Vec<_> = fields.iter().map(|field| part(field, rows, buffers)).collect();
            let member = |(field, column): (&Value, &Vec<Option<String>>), row: usize| {
                format!("{}: {}", field["name"].as_str().expect("a name"), column[row].as_deref().unwrap_or("null"))
            };
            let row = |row| fields.iter().zip(&columns).map(|each| member(each, row)).collect::<Vec<_>>().join(", ");
            (0..rows).map(|each| Some(format!("{{{}}}", row(each)))).collect()
        }
        _ => texts(buffer(), buffer()).into_iter().map(Some).collect(),
    };
    assert_eq!(found.len(), rows, "{said}");
    found.into_iter().zip(mask).map(|(value, is_there)| value.filter(|_| is_there)).collect()
}

fn numbers(buffer: &[u8], width: usize) -> Vec<i64> {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_i64, |all, byte| all << 8 | i64::from(*byte));
    buffer.chunks_exact(width).map(number).collect()
}

fn ends(buffer: &[u8]) -> Vec<usize> {
    numbers(buffer, 4).into_iter().map(|end| usize::try_from(end).expect("small")).collect()
}

fn texts(offsets: &[u8], bytes: &[u8]) -> Vec<String> {
    let ends = ends(offsets);
    assert_eq!(ends.last(), Some(&bytes.len()));
    ends.windows(2).map(|pair| String::from_utf8(bytes[pair[0]..pair[1]].to_vec()).expect("text")).collect()
}

/// A number of 16 bits, of those that the tests have.
fn half(bytes: &[u8]) -> f64 {
    let bits = u16::from_le_bytes(bytes.try_into().expect("two bytes"));
    if bits == 0 { 0.0 } else { (1.0 + f64::from(bits & 0x3ff) / 1024.0) * 2_f64.powi(i32::from(bits >> 10) - 15) }
}

/// Compares what a guest has with the values that the rows were made of.
fn check(way: &str, handed: &[(Value, Vec<Vec<u8>>)], wanted: &[Option<i64>]) {
    for ((said, buffers), kind) in handed.iter().zip(kinds()) {
        let wanted: Vec<_> = wanted.iter().map(|value| kind.told(*value)).collect();
        let found = values(said, buffers);
        let row = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        let at = |values: &[Option<String>]| row.map(|row| values.get(row).cloned());
        assert_eq!(at(&found), at(&wanted), "{way}, {said}, row {row:?}");
        assert_eq!(found.len(), wanted.len(), "{way}, {said}");
    }
    assert_eq!(handed.len(), kinds().len(), "{way}");
}

/// Columns of a file as a guest is handed them.
fn read(file: File, format: Format) -> Vec<(Value, Vec<Vec<u8>>)> {
    let request = Request { direction: Direction::Read, format, columns: None, compression: None };
    let mut out = Vec::new();
    files::work(file, &request, &mut out).expect("read");
    super::taken(Columns::from(out))
}

fn temporary(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("written");
    std::io::Seek::rewind(&mut file).expect("rewound");
    file
}

/// The rows as a Feather file, which has a part for each.
fn feather(rows: &Batches) -> Vec<u8> {
    let mut writer = FileWriter::try_new(Vec::new(), &rows.schema).expect("a writer");
    // Such a file has one dictionary for all parts of a column.
    let whole = |(place, field): (usize, &Arc<Field>)| {
        let parts = rows.batches.iter().map(|batch| cast(batch.column(place), field.data_type()).expect("a cast"));
        let parts: Vec<ArrayRef> = parts.collect();
        concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<_>>()).expect("a column")
    };
    let columns: Vec<ArrayRef> = rows.schema.fields().iter().enumerate().map(whole).collect();
    let whole = RecordBatch::try_new(Arc::clone(&rows.schema), columns).expect("a batch");
    let mut from = 0;
    for batch in &rows.batches {
        writer.write(&whole.slice(from, batch.num_rows())).expect("written");
        from += batch.num_rows();
    }
    writer.into_inner().expect("written")
}

/// Sends rows through all ways that there are.
fn check_all(parts: &[Vec<Option<i64>>], are_slices: bool) {
    let (rows, wanted) = (rows(parts, are_slices), parts.concat());
    check("fetched", &handed_over(&rows), &wanted);
    let pieces = rows.clone().into_pieces().collect::<Result<Vec<_>, _>>().expect("pieces");
    check("of another process", &handed_over(&Batches::from_pieces(pieces).expect("rows")), &wanted);
    let file = file_of(&rows);
    check("fetched again", &handed_over(&read_again(&file).expect("a file")), &wanted);
    check("Parquet", &read(temporary(&file), Format::Parquet), &wanted);
    check("Feather", &read(temporary(&feather(&rows)), Format::Feather), &wanted);
}

#[test]
fn every_kind_keeps_its_gaps_wherever_a_column_is_cut() {
    for gaps in [vec![], vec![0], vec![3], vec![0, 1, 2], vec![2, 3, 4, 5], vec![0, 5], (0..6).collect()] {
        let values: Vec<_> = (0..6).map(|row| (!gaps.contains(&row)).then(|| (row * 9 % 13) as i64)).collect();
        for cut in 0..=values.len() {
            let (before, behind) = values.split_at(cut);
            for are_slices in [false, true] {
                check_all(&[before.to_vec(), behind.to_vec()], are_slices);
            }
        }
    }
}

#[test]
fn every_kind_keeps_its_gaps_in_files_of_many_rows() {
    // Files are read 65,536 rows at a time.
    let rows = (1 << 16) + 9;
    for gap in [0, rows - 1] {
        let values: Vec<_> = (0..rows).map(|row| (row != gap).then_some(row % 100)).collect();
        check_all(&[values], false);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Checks that each row keeps its value, in any parts.
    #[test]
    fn rows_keep_their_values_in_any_parts(
        parts in prop::collection::vec(
            prop_oneof![
                prop::collection::vec((0_i64..100).prop_map(Some), 0..9),
                prop::collection::vec(prop::option::of(0_i64..100), 0..9),
                prop::collection::vec(Just(None), 0..3),
            ],
            1..5,
        ),
        are_slices in any::<bool>(),
    ) {
        check_all(&parts, are_slices);
    }
}

#[test]
fn a_buffer_of_another_length_is_no_column() {
    let parts = [lists(&[Some(1), None]), lists(&[Some(2)])];
    let column = || Encoded::new(json!({"kind": "boolean"})).with_mask(&parts).expect("a mask");
    assert_eq!(column().lengths(), [3]);
    assert_eq!(column().with::<u8>(3, vec![vec![1_u8, 0, 1].into()]).expect("three bytes").lengths(), [3, 3]);
    // A literal without a type has four bytes for each row.
    let wide = column().with::<u8>(3, vec![vec![1; 2].into(), vec![1_u8].into()]).err().expect("too long");
    assert!(matches!(wide, TableError::Length { wanted: 3, found: 9 }), "{wide}");
    assert!(column().with::<i64>(3, vec![vec![1_i64; 2].into()]).is_err());
}
