//! Workbooks of Excel as sources, of which some are out to do harm.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeMap,
    io::{Cursor, Write},
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use cellar_connectors::{
    Bounds, Comparison, ConnectorOptions, Connectors, CsvOptions, FetchError, FetchFault, FetchOptions, FilesFetch,
    FilesPlace, Filter, Kind, Parameter, ParameterKind, Sheet,
};
use cellar_tables::Batches;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use zip::{ZipWriter, write::SimpleFileOptions};

const RELATIONS: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const PACKAGE: &str = "http://schemas.openxmlformats.org/package/2006/relationships";
const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";

/// A workbook of sheets, each with its name and the XML of its rows. `strings` is all of its list of texts.
fn workbook(sheets: &[(&str, &str)], strings: &str) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let mut put = |name: &str, text: &str| {
        zip.start_file(name, SimpleFileOptions::default()).expect("a part");
        zip.write_all(text.as_bytes()).expect("written");
    };
    let mut listed = String::new();
    let mut related = String::new();
    for (place, (name, rows)) in sheets.iter().enumerate() {
        let number = place + 1;
        listed.push_str(&format!("<sheet name=\"{name}\" sheetId=\"{number}\" r:id=\"rId{number}\"/>"));
        related.push_str(&format!(
            "<Relationship Id=\"rId{number}\" Type=\"{RELATIONS}/worksheet\" Target=\"worksheets/sheet{number}.xml\"/>"
        ));
        let sheet = format!("<worksheet xmlns=\"{MAIN}\"><sheetData>{rows}</sheetData></worksheet>");
        put(&format!("xl/worksheets/sheet{number}.xml"), &sheet);
    }
    put(
        "_rels/.rels",
        &format!(
            "<Relationships xmlns=\"{PACKAGE}\"><Relationship Id=\"rId1\" Type=\"{RELATIONS}/officeDocument\" Target=\"xl/workbook.xml\"/></Relationships>"
        ),
    );
    put(
        "xl/workbook.xml",
        &format!("<workbook xmlns=\"{MAIN}\" xmlns:r=\"{RELATIONS}\"><sheets>{listed}</sheets></workbook>"),
    );
    put("xl/_rels/workbook.xml.rels", &format!("<Relationships xmlns=\"{PACKAGE}\">{related}</Relationships>"));
    // Style 1 is a date, 2 a time of day, 3 a duration.
    let styles = "<numFmts count=\"1\"><numFmt numFmtId=\"170\" formatCode=\"[h]:mm:ss\"/></numFmts>\
                  <cellXfs count=\"4\"><xf numFmtId=\"0\"/><xf numFmtId=\"14\"/><xf numFmtId=\"21\"/><xf numFmtId=\"170\"/></cellXfs>";
    put("xl/styles.xml", &format!("<styleSheet xmlns=\"{MAIN}\">{styles}</styleSheet>"));
    if !strings.is_empty() {
        put("xl/sharedStrings.xml", strings);
    }
    zip.finish().expect("finished").into_inner()
}

fn text(place: &str, text: &str) -> String {
    format!("<c r=\"{place}\" t=\"inlineStr\"><is><t>{text}</t></is></c>")
}

fn number(place: &str, style: u8, value: f64) -> String {
    format!("<c r=\"{place}\" s=\"{style}\"><v>{value}</v></c>")
}

fn row(number: u32, cells: &[String]) -> String {
    format!("<row r=\"{number}\">{}</row>", cells.concat())
}

fn bounds() -> Bounds {
    Bounds { rows: 10_000, bytes: 4 << 20, timeout: Duration::from_secs(60), concurrency: 4 }
}

fn options(path: &str, sheet: Sheet) -> FilesFetch {
    let csv = CsvOptions::default();
    FilesFetch { path: path.to_owned(), format: None, select: None, filters: Vec::new(), csv, sheet }
}

async fn fetch(folder: &TempDir, asks: FilesFetch, arguments: Value) -> Result<Batches, FetchError> {
    let parameters = asks.filters.iter().map(|filter| Parameter {
        name: filter.parameter.clone(),
        kind: ParameterKind::Integer,
        description: String::new(),
        is_list: false,
        is_required: true,
        default: Value::Null,
        choices: Vec::new(),
        min: None,
        max: None,
    });
    let fetch =
        FetchOptions { description: String::new(), parameters: parameters.collect(), columns: Vec::new(), asks };
    let place = FilesPlace::Folder(folder.path().to_owned());
    let kind = Kind::Files { place, fetches: BTreeMap::from([("rows".to_owned(), fetch)]) };
    let options = ConnectorOptions { description: String::new(), bounds: bounds(), kind };
    let connectors = Connectors::new(BTreeMap::from([("c".to_owned(), options)])).expect("a connector");
    let Value::Object(arguments) = arguments else { panic!("no object") };
    let canonical = connectors.check("c", "rows", arguments)?;
    connectors.fetch("c", "rows", canonical).await
}

fn all(rows: &Batches) -> Vec<Map<String, Value>> {
    let (head, tail) = rows.sample(1_000).expect("rows");
    let rows = |value: Value| serde_json::from_value::<Vec<Map<String, Value>>>(value).expect("objects");
    rows(head).into_iter().chain(rows(tail)).collect()
}

fn put(folder: &TempDir, name: &str, bytes: &[u8]) {
    std::fs::write(folder.path().join(name), bytes).expect("written");
}

#[tokio::test]
async fn a_sheet_is_rows_of_the_types_of_its_cells() {
    let folder = TempDir::new().expect("a folder");
    let heads = ["A2", "B2", "C2", "D2", "E2", "F2", "G2"].map(|place| text(place, &format!("h{place}")));
    let first = [
        number("A4", 0, 1.0),
        number("B4", 0, 2.5),
        "<c r=\"C4\" t=\"s\"><v>0</v></c>".to_owned(),
        number("D4", 1, 45_292.5),
        number("E4", 2, 0.25),
        number("F4", 3, 1.5),
        "<c r=\"G4\" t=\"b\"><v>1</v></c>".to_owned(),
        number("I4", 0, 9.0),
    ];
    let second = [
        number("A6", 0, 3.0),
        number("B6", 0, 4.0),
        "<c r=\"D6\" t=\"e\"><v>#N/A</v></c>".to_owned(),
        "<c r=\"H6\"><f>1+1</f><v>2</v></c>".to_owned(),
    ];
    let sheet = row(2, &heads) + &row(4, &first) + &row(6, &second);
    let strings = format!("<sst xmlns=\"{MAIN}\" count=\"1\" uniqueCount=\"1\"><si><t>größe</t></si></sst>");
    put(&folder, "a.xlsx", &workbook(&[("Eins", &sheet), ("Zwei", &row(1, &[text("A1", "n")]))], &strings));
    let rows = fetch(&folder, options("a.xlsx", Sheet::default()), json!({})).await.expect("rows");
    let types: Vec<String> =
        rows.schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect();
    let expected = [
        "hA2 Int64",
        "hB2 Float64",
        "hC2 Utf8",
        "hD2 Timestamp(µs)",
        "hE2 Time64(µs)",
        "hF2 Utf8",
        "hG2 Boolean",
        "Unnamed: 7 Int64",
        "Unnamed: 8 Int64",
    ];
    assert_eq!(types, expected);
    let found = all(&rows);
    assert_eq!(
        (&found[0]["hC2"], &found[0]["hF2"], &found[0]["hG2"]),
        (&json!("größe"), &json!("PT36H0M0S"), &json!(true))
    );
    assert!(found[0]["hD2"].as_str().expect("a moment").starts_with("2024-01-01T12:00"), "{}", found[0]["hD2"]);
    assert!(found[0]["hE2"].as_str().expect("a time").starts_with("06:00"), "{}", found[0]["hE2"]);
    assert_eq!((&found[1]["hB2"], &found[1]["hD2"], &found[1]["Unnamed: 7"]), (&json!(4.0), &Value::Null, &json!(2)));

    // Sheets by name and by number, and what is there where one is not.
    let zwei = Sheet::Name("Zwei".to_owned());
    assert_eq!(fetch(&folder, options("a.xlsx", zwei), json!({})).await.expect("a sheet").rows(), 0);
    let third = Sheet::Number(NonZeroUsize::new(3).expect("a number"));
    for (sheet, what) in [
        (Sheet::Name("Zwo".to_owned()), "it has no sheet `Zwo`"),
        (third, "it has no sheet 3; its sheets are `Eins`, `Zwei`"),
    ] {
        let error = fetch(&folder, options("a.xlsx", sheet), json!({})).await.expect_err("no such sheet");
        assert!(error.message.contains(what), "{error}");
    }

    // Columns are chosen and rows are tested as those of other files, several workbooks are one table.
    put(
        &folder,
        "b.xlsx",
        &workbook(&[("Eins", &(row(1, &[text("A1", "hA2")]) + &row(2, &[number("A2", 0, 7.0)])))], ""),
    );
    let filter = Filter { column: "hA2".to_owned(), comparison: Comparison::Greater, parameter: "least".to_owned() };
    let asks = FilesFetch {
        select: Some(vec!["hA2".to_owned()]),
        filters: vec![filter],
        ..options("*.xlsx", Sheet::default())
    };
    let rows = fetch(&folder, asks.clone(), json!({"least": 2})).await.expect("rows");
    assert_eq!(all(&rows).iter().map(|row| row["hA2"].clone()).collect::<Vec<_>>(), [json!(3), json!(7)]);
    // A fraction is not cut off because the file before had whole numbers.
    put(
        &folder,
        "b.xlsx",
        &workbook(&[("Eins", &(row(1, &[text("A1", "hA2")]) + &row(2, &[number("A2", 0, 7.5)])))], ""),
    );
    let error = fetch(&folder, asks, json!({"least": 2})).await.expect_err("a fraction");
    assert!(error.message.contains("column `hA2` is of another type"), "{error}");
}

#[tokio::test]
async fn workbooks_that_do_harm_are_refused_in_time() {
    let folder = TempDir::new().expect("a folder");
    let one = row(1, &[text("A1", "n")]);
    let blank = " ".repeat(1 << 20).repeat(64);
    let many: String = (2..11_000).map(|place| row(place, &[number(&format!("A{place}"), 0, 1.0)])).collect();
    let far = one.clone() + "<row r=\"1048576\"><c r=\"XFD1048576\"><v>1</v></c></row>";
    let strings = |count: &str, rest: &str| format!("<sst xmlns=\"{MAIN}\" uniqueCount=\"{count}\">{rest}</sst>");
    let long = "x".repeat(1 << 20);
    let shared: String =
        (2..100).map(|place| row(place, &[format!("<c r=\"A{place}\" t=\"s\"><v>0</v></c>")])).collect();
    for (name, book, fault, what) in [
        ("bomb", workbook(&[("s", &format!("{one}<!--{blank}-->"))], ""), FetchFault::Limit, "when it is unpacked"),
        ("texts", workbook(&[("s", &one)], &strings("1", &blank)), FetchFault::Limit, "when it is unpacked"),
        ("count", workbook(&[("s", &one)], &strings("99999999999", "")), FetchFault::Failed, "damaged"),
        ("most", workbook(&[("s", &one)], &strings("18446744073709551615", "")), FetchFault::Failed, "damaged"),
        ("rows", workbook(&[("s", &(one.clone() + &many))], ""), FetchFault::Limit, "more than 10000 rows"),
        ("far", workbook(&[("s", &far)], ""), FetchFault::Limit, "beyond column 2000"),
        (
            "shared",
            workbook(&[("s", &(one.clone() + &shared))], &strings("1", &format!("<si><t>{long}</t></si>"))),
            FetchFault::Limit,
            "more than 4 MiB",
        ),
        ("none", b"PK\x03\x04 no archive".to_vec(), FetchFault::Failed, "it is no workbook of Excel"),
        ("empty", Vec::new(), FetchFault::Failed, "it is no workbook of Excel"),
        (
            "old",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 an old one".to_vec(),
            FetchFault::Failed,
            "it is no workbook of Excel",
        ),
    ] {
        put(&folder, &format!("{name}.xlsx"), &book);
        let began = Instant::now();
        let error =
            fetch(&folder, options(&format!("{name}.xlsx"), Sheet::default()), json!({})).await.expect_err(name);
        assert_eq!(error.fault, fault, "{name}: {error}");
        assert!(error.message.contains(what), "{name}: {error}");
        assert!(began.elapsed() < Duration::from_secs(30), "{name}");
    }
    // Any byte of a whole one may be another.
    let whole = workbook(&[("s", &(one + &row(2, &[number("A2", 0, 1.0)])))], &strings("1", "<si><t>a</t></si>"));
    for place in (0..whole.len()).step_by(7) {
        let mut book = whole.clone();
        book[place] ^= 0x55;
        put(&folder, "flipped.xlsx", &book);
        let _ = fetch(&folder, options("flipped.xlsx", Sheet::default()), json!({})).await;
    }
}
