use std::sync::Arc;

use cellar_core::{
    cell::{Cell, Language},
    outcome::FailureKind,
};

use serde_json::{Value, json};

use super::*;
use crate::artifacts::{ArtifactQuota, ArtifactStore, Description};

fn bundle(pairs: &[(&str, &str)]) -> MimeBundle {
    MimeBundle(pairs.iter().map(|(name, text)| ((*name).to_owned(), MimeData::Text((*text).to_owned()))).collect())
}

fn blocks(page: &LlmPage) -> Vec<&str> {
    page.blocks.iter().map(|block| if let Block::Text(text) = block { text.as_str() } else { "image" }).collect()
}

/// Stores a table with so many rows, and returns it as it is displayed.
fn table(rows: u16) -> (tempfile::TempDir, (ArtifactStore, SessionArtifacts), MimeBundle) {
    let head = format!(
        r#"{{"rows":{rows},"index":{{"kind":"range","name":null,"start":0,"stop":{rows},"step":1}},"columns":
            [{{"name":"n","dtype":"uint16","type":{{"kind":"integer","bits":16,"signed":false}}}}]}}"#
    );
    let mut frame = u32::try_from(head.len()).expect("short").to_le_bytes().to_vec();
    frame.extend(head.as_bytes());
    frame.extend((0..rows).flat_map(u16::to_le_bytes));
    let mut file = Vec::new();
    cellar_tables::Table::parse(&frame).expect("a table").write_parquet(&mut file).expect("written");
    let folder = tempfile::tempdir().expect("a folder");
    let store = ArtifactStore::open(folder.path().join("store"), ArtifactQuota::default()).expect("a store");
    let own = store.for_session("s", Arc::default());
    let kept = own.put(&file, Description { mime_type: cellar_tables::PARQUET_TYPE, title: None }).expect("stored");
    let resource = serde_json::json!({
        "rows": rows, "columns": 1, "rowsLeftOut": rows - 1, "path": kept.uri(), "data": [{"n": 0}],
        "schema": {"fields": [{"name": "n", "type": "integer", "dtype": "uint16"}], "primaryKey": []},
    });
    (folder, (store, own), bundle(&[("text/markdown", "| n |"), (RESOURCE_TYPE, &resource.to_string())]))
}

#[test]
fn tables_have_pages_of_rows() {
    let (_folder, (_, own), shown) = table(120);
    let output = OutputTypes::default().output(&shown);
    let Output::DataFrame(frame) = &output else { panic!("{output:?}") };
    assert_eq!((frame.rows, frame.rows_left_out, frame.schema.fields[0].dtype.as_str()), (120, 119, "uint16"));
    let mut view = View { artifacts: Some(own), ..View::default() };
    let mut rows = Vec::new();
    loop {
        let page = output.to_llm(&view);
        let [head, text] = blocks(&page)[..] else { panic!("{page:?}") };
        assert!(head.starts_with("DataFrame of 120 rows × 1 column, artifact://"), "{head}");
        assert!(head.ends_with("\nn uint16"), "{head}");
        assert!(text.starts_with("n\n"), "{text}");
        rows.extend(text.lines().skip(1).filter(|line| !line.starts_with('[')).map(str::to_owned));
        match page.next {
            Some(next) => {
                assert!(text.ends_with(&format!("[{} more rows, from row {next}]", 120 - next)), "{text}");
                view.from = next;
            }
            None => break,
        }
    }
    assert_eq!(rows, (0..120).map(|n| n.to_string()).collect::<Vec<_>>());
    let narrow = View { from: 100, characters: 9, ..view.clone() };
    let page = output.to_llm(&narrow);
    assert_eq!((blocks(&page)[1], page.next), ("n\n100\n101\n[18 more rows, from row 102]", Some(102)));
    let beyond = output.to_llm(&View { from: 1_000, ..view });
    assert_eq!((blocks(&beyond)[1], beyond.next), ("n\n", None));
}

#[test]
fn a_table_without_its_file_is_what_was_shown_of_it() {
    let (_folder, (store, own), shown) = table(3);
    let output = OutputTypes::default().output(&shown);
    assert_eq!(blocks(&output.to_llm(&View::default())), ["| n |"]);
    for artifact in store.list().expect("a list") {
        store.delete(&artifact.id).expect("deleted");
    }
    let page = output.to_llm(&View { artifacts: Some(own), ..View::default() });
    assert!(blocks(&page)[0].starts_with("| n |\n\n[its rows cannot be read: no artifact"), "{page:?}");
}

#[test]
fn a_table_that_is_not_kept_says_why() {
    let resource = r#"{"rows": 9, "columns": 1, "notice": "not kept as a file: it has 70 MiB", "data": []}"#;
    let output = OutputTypes::default().output(&bundle(&[("text/markdown", "| n |"), (RESOURCE_TYPE, resource)]));
    let page = output.to_llm(&View::default());
    assert!(blocks(&page)[0].starts_with("| n |\n\n[not kept as a file: it has 70 MiB; what is left out"), "{page:?}");
}

/// Stores a table with `columns` columns of one long text each, in two rows.
fn wide(columns: usize, length: usize) -> (tempfile::TempDir, SessionArtifacts, MimeBundle) {
    let names: Vec<String> = (0..columns).map(|n| format!("c{n}")).collect();
    let told: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "dtype": "str", "type": {"kind": "text", "bytes": 2 * length}}))
        .collect();
    let head =
        json!({"rows": 2, "index": {"kind": "range", "name": null, "start": 0, "stop": 2, "step": 1}, "columns": told});
    let head = head.to_string();
    let mut frame = u32::try_from(head.len()).expect("short").to_le_bytes().to_vec();
    frame.extend(head.as_bytes());
    let length = i32::try_from(length).expect("short");
    for _ in &names {
        frame.extend([0, length, 2 * length].iter().flat_map(|offset| offset.to_le_bytes()));
        frame.extend("x".repeat(2 * usize::try_from(length).expect("short")).bytes());
    }
    let mut file = Vec::new();
    cellar_tables::Table::parse(&frame).expect("a table").write_parquet(&mut file).expect("written");
    let folder = tempfile::tempdir().expect("a folder");
    let store = ArtifactStore::open(folder.path().join("store"), ArtifactQuota::default()).expect("a store");
    let own = store.for_session("s", Arc::default());
    let kept = own.put(&file, Description { mime_type: cellar_tables::PARQUET_TYPE, title: None }).expect("stored");
    let resource = json!({"rows": 2, "columns": columns, "path": kept.uri(), "data": []});
    (folder, own, bundle(&[("text/markdown", "| c |"), (RESOURCE_TYPE, &resource.to_string())]))
}

#[test]
fn rows_that_are_too_wide_have_pages() {
    for (columns, length) in [(40, 600), (1_999, 12), (3, 60_000)] {
        let (_folder, own, shown) = wide(columns, length);
        let output = OutputTypes::default().output(&shown);
        let mut view = View { artifacts: Some(own), value_characters: 100_000, ..View::default() };
        let first = output.to_llm(&view);
        let text = blocks(&first)[1].to_owned();
        assert!(text.starts_with("c0,c1,c2") && text.len() < 3 * view.characters, "{columns}: {}", text.len());
        assert_eq!(text.contains("more columns on the right"), columns == 1_999, "{columns}");
        view.from = first.next.expect("more");
        assert_eq!((view.from, output.to_llm(&view).next), (1, None), "{columns}");
    }
}

#[test]
fn a_text_that_was_cut_has_all_of_its_pages() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = ArtifactStore::open(folder.path().join("store"), ArtifactQuota::default()).expect("a store");
    let own = store.for_session("s", Arc::default());
    let whole: String = (0..9_000).map(|n| format!("zeile {n} ø\n")).collect();
    let kept = own.put(whole.as_bytes(), Description { mime_type: "text/plain", title: None }).expect("stored");
    let text = PrimitiveObject { text: "zeile 0 … zeile 8999".to_owned(), kept: Some(kept.id) };
    let output = Output::Primitive(text);
    let (mut view, mut found) = (View { artifacts: Some(own), ..View::default() }, String::new());
    loop {
        let page = output.to_llm(&view);
        let shown = blocks(&page)[0];
        match page.next {
            Some(_) => found.push_str(shown.rsplit_once("\n[").map(|(text, _)| text).expect("a note")),
            None => {
                found.push_str(shown);
                break;
            }
        }
        view.from = page.next.expect("more");
    }
    assert_eq!(found, whole);
    let cut = Output::Primitive(PrimitiveObject { text: "a".to_owned(), kept: Some("0".repeat(32)) });
    assert_eq!(blocks(&cut.to_llm(&view)), [""], "what is gone is what the result has");
}

#[test]
fn long_texts_have_pages() {
    let text = "øß☃".repeat(10);
    let output = OutputTypes::default().output(&bundle(&[("text/plain", &text)]));
    let mut view = View { characters: 12, ..View::default() };
    let first = output.to_llm(&view);
    assert_eq!(blocks(&first), ["øß☃øß☃øß☃øß☃\n[18 more characters, from character 12]"]);
    view.from = first.next.expect("more");
    let second = output.to_llm(&view);
    assert_eq!(second.next, Some(24));
    view.from = 24;
    assert_eq!((blocks(&output.to_llm(&view)), output.to_llm(&view).next), (vec!["øß☃øß☃"], None));
    view.from = u64::MAX;
    assert_eq!(output.to_llm(&view), LlmPage { blocks: vec![Block::Text(String::new())], next: None });
}

#[test]
fn what_is_displayed_has_a_kind() {
    let types = OutputTypes::default();
    let kind = |pairs: &[(&str, &str)]| types.output(&bundle(pairs)).kind().to_owned();
    assert_eq!(kind(&[("text/plain", "1")]), "primitive");
    assert_eq!(kind(&[("application/json", "{}"), ("text/plain", "{}")]), "primitive");
    assert_eq!(kind(&[("application/vnd.vegalite.v5+json", "{}")]), "figure");
    assert_eq!(kind(&[("image/svg+xml", "<svg/>")]), "figure");
    assert_eq!(kind(&[(RESOURCE_TYPE, "no JSON"), ("text/plain", "lies")]), "primitive");
    let mut chart = bundle(&[("application/vnd.vegalite.v5+json", "{}")]);
    chart.0.push(("image/png".to_owned(), MimeData::Binary(vec![1])));
    let image = Block::Image { mime_type: "image/png".to_owned(), data: vec![1] };
    assert_eq!(types.output(&chart).to_llm(&View::default()).blocks, [image]);
}

#[test]
fn first_pages_end_when_there_is_enough_of_them() {
    let text = Output::Primitive(PrimitiveObject { text: "x".repeat(FIRST_PAGES_BYTES_MAX / 2), kept: None });
    let view = View { from: 3, characters: FIRST_PAGES_BYTES_MAX, ..View::default() };
    let pages = first_pages(&vec![text; 4], &view);
    let lengths: Vec<usize> = pages.iter().map(|page| page.blocks.iter().map(Block::bytes).sum()).collect();
    assert_eq!(lengths, [FIRST_PAGES_BYTES_MAX / 2, FIRST_PAGES_BYTES_MAX / 2, 0, 0]);
    assert_eq!(pages.iter().map(|page| page.next).collect::<Vec<_>>(), [None, None, Some(0), Some(0)]);
}

#[derive(Debug)]
struct Molecule(String);

impl TypedOutput for Molecule {
    fn kind(&self) -> &str {
        "molecule"
    }

    fn to_llm(&self, _view: &View) -> LlmPage {
        LlmPage { blocks: vec![Block::Text(format!("a molecule: {}", self.0))], next: None }
    }
}

#[test]
fn hosts_add_types_and_a_run_is_all_its_outputs() {
    let mut types = OutputTypes::default();
    // The one that is registered last is asked first.
    types.register(|bundle| bundle.text("chemical/x-xyz").map(|_| Arc::new(Molecule("?".to_owned())) as _));
    types.register(|bundle| Some(Arc::new(Molecule(bundle.text("chemical/x-xyz")?.to_owned()))));
    let mut cell = CellResult::new(Cell::new(Language::Python, ""), super::super::OutputPolicy::Window);
    cell.text.push("before\n");
    let display = |bundle: MimeBundle, cell: &mut CellResult| {
        let text_before = std::mem::take(&mut cell.text);
        let bytes = bundle.weight_bytes();
        cell.displays.push(super::super::Display { text_before, id: None, bundle, bytes });
    };
    display(bundle(&[("chemical/x-xyz", "H2O"), ("text/plain", "?")]), &mut cell);
    cell.text.push("after");
    cell.failure = Some(Failure::new(FailureKind::Raised, "ValueError", "no"));
    let kinds: Vec<String> = cell.outputs(&types).iter().map(|output| output.kind().to_owned()).collect();
    assert_eq!(kinds, ["primitive", "molecule", "primitive", "exception"]);
    let run = RunResult { cells: vec![cell], ..RunResult::default() };
    let page = LlmPage { blocks: run.to_llm(&types, &View { from: 7, ..View::default() }), next: None };
    assert_eq!(blocks(&page), ["before\n", "a molecule: H2O", "after", "ValueError: no"]);
}
