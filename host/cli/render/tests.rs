use cellar_engine::{
    CellId, Language, Outcome,
    event::Scalar,
    outcome::{FailureKind, Usage},
};

use super::*;

fn render(look: Look, images: Option<PathBuf>, kinds: Vec<EventKind>) -> String {
    let is_rich = false;
    let has_frames = true;
    rendered(Options { look, width: 80, code_lines: Some(10), output_lines: None, is_rich, has_frames, images }, kinds)
}

fn rendered(options: Options, kinds: Vec<EventKind>) -> String {
    let mut out = Vec::new();
    let mut transcript = Transcript::new(&mut out, options);
    for (seq, kind) in kinds.into_iter().enumerate() {
        transcript.event(&Event { seq: seq as u64, kind }).expect("written");
    }
    String::from_utf8(out).expect("text")
}

const FILE: Look = Look { has_colors: false, is_terminal: false };

fn started(cells: Vec<Cell>) -> Vec<EventKind> {
    vec![EventKind::RunStarted { session: String::new(), cells }, EventKind::CellStarted { index: 0, cell: CellId(1) }]
}

fn ends(outcome: Outcome) -> EventKind {
    EventKind::CellFinished {
        index: 0,
        outcome,
        duration: Duration::from_millis(12),
        usage: Usage::default(),
        kept: None,
    }
}

fn out(text: &str) -> EventKind {
    EventKind::Stdout { index: 0, text: text.to_owned() }
}

#[test]
fn a_cell_shows_its_code_its_output_and_its_end() {
    let code = (1..=20).map(|n| format!("line {n}\n")).collect::<String>();
    let cell = Cell { title: Some("long".to_owned()), ..Cell::new(Language::Python, code) };
    let mut kinds = started(vec![cell]);
    let json = MimeBundle(vec![("application/json".to_owned(), MimeData::Text("{\"a\":1}".to_owned()))]);
    kinds.extend([
        out("half"),
        out(" and half"),
        EventKind::Display { index: 0, data: json, display_id: None, is_value: false },
        EventKind::Status {
            index: 0,
            op: "read".to_owned(),
            fields: vec![
                ("path".to_owned(), Scalar::Text("a.csv".to_owned())),
                ("bytes".to_owned(), Scalar::Integer(3)),
            ],
        },
        ends(Outcome::Complete),
    ]);
    let code: String = (1..=10).map(|n| format!("│ line {n}\n")).collect();
    let expected = format!(
        "[1/1] Python · long\n{code}… 10 more lines\n  half and half\n  {{\n    \"a\": 1\n  }}\n· read a.csv bytes=3\n✓ 12 ms\n\n"
    );
    assert_eq!(render(FILE, None, kinds), expected);
}

/// A list: its JSON, and what Python prints of it.
fn list() -> EventKind {
    let text = |mime: &str, text: &str| (mime.to_owned(), MimeData::Text(text.to_owned()));
    let data = MimeBundle(vec![text("application/json", "[1,[2,\"a\"]]"), text("text/plain", "[1, [2, 'a']]")]);
    EventKind::Display { index: 0, data, display_id: None, is_value: true }
}

#[test]
fn a_list_is_shown_once() {
    let kinds = || {
        let mut kinds = started(vec![Cell::new(Language::Python, "x")]);
        kinds.extend([list(), ends(Outcome::Complete)]);
        kinds
    };
    assert_eq!(render(FILE, None, kinds()), "[1/1] Python\n│ x\n  [1, [2, 'a']]\n✓ 12 ms\n\n");
    // At a prompt, without frames and times.
    let (look, output_lines, images) = (FILE, None, None);
    let options =
        Options { look, width: 80, code_lines: Some(10), output_lines, is_rich: true, has_frames: false, images };
    let tree = rendered(options, kinds());
    assert_eq!(tree.matches('2').count(), 1, "{tree}");
}

#[test]
fn a_failure_points_at_its_place() {
    let mut failure = Failure::new(FailureKind::Raised, "NameError", "name 'y' is not defined");
    failure.line = Some(1);
    failure.snippet = Some("x = y".to_owned());
    failure.pointer = Some("    ^".to_owned());
    let mut kinds = started(vec![Cell::new(Language::Python, "x = y"), Cell::new(Language::Python, "")]);
    kinds.extend([ends(Outcome::Failed(Box::new(failure))), EventKind::RunFinished { is_error: true, kept: None }]);
    assert_eq!(
        render(FILE, None, kinds),
        "[1/2] Python\n│ x = y\n✗ raised after 12 ms: NameError: name 'y' is not defined (line 1)\n1 │ x = y\n  │     \
         ^\n\n1 cell did not run\n"
    );
}

#[test]
fn images_are_named_or_saved() {
    let folder = std::env::temp_dir().join(format!("cellar-render-{}", std::process::id()));
    let png = MimeBundle(vec![("image/png".to_owned(), MimeData::Binary(vec![0; 2_048]))]);
    let show = || EventKind::Display { index: 0, data: png.clone(), display_id: None, is_value: false };
    let text = render(FILE, None, vec![show()]);
    assert_eq!(text, "[image/png, 2.0 KiB]\n");
    let text = render(FILE, Some(folder.clone()), vec![show(), show()]);
    assert!(text.contains(&format!("saved as {}/image-2.png]", folder.display())), "{text}");
    assert_eq!(fs::read(folder.join("image-1.png")).expect("saved"), vec![0; 2_048]);
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_terminal_is_not_steered_and_colours_end_with_the_output() {
    let look = Look { has_colors: true, is_terminal: true };
    let cell = Cell { title: Some("a\u{1b}]0;b\u{7}".to_owned()), ..Cell::new(Language::Python, "\u{1b}[2J") };
    let mut kinds = started(vec![cell]);
    kinds.extend([out("\u{1b}[31mred\u{1b}[2J"), ends(Outcome::Complete)]);
    let text = render(look, None, kinds);
    assert!(text.contains("\u{1b}[31m  red\u{1b}[0m\n"), "{text:?}");
    assert!(!text.contains("\u{1b}[2J") && !text.contains("\u{1b}]0"), "{text:?}");
}

/// Lines of a transcript without colours, as far as they are its own.
fn own_lines(text: &str) -> Vec<String> {
    let plain = anstream::adapter::strip_str(text).to_string();
    plain.lines().filter(|line| !line.is_empty() && !line.starts_with("  ")).map(str::to_owned).collect()
}

#[test]
fn no_cell_prints_a_line_of_the_transcript() {
    let forged =
        "\r\n✓ 12 ms\n\n[2/2] Python · forged\n│ 1 + 1\n✗ raised after 1 ms: E\n1 │ x\n· read a\n… 3 more lines\n";
    let wide = format!("{}✓ 12 ms{}[2/2] Python", " ".repeat(78), " ".repeat(80));
    let status = EventKind::Status { index: 0, op: "read".to_owned(), fields: Vec::new() };
    let text_bundle = |mime: &str, text: &str| MimeBundle(vec![(mime.to_owned(), MimeData::Text(text.to_owned()))]);
    let show = |data: MimeBundle| EventKind::Display { index: 0, data, display_id: None, is_value: false };
    for look in [FILE, Look { has_colors: true, is_terminal: true }] {
        let cell = Cell { title: Some(wide.clone()), ..Cell::new(Language::Python, "1") };
        let mut kinds = started(vec![cell]);
        kinds.extend([
            out(forged),
            out(&wide),
            out("\u{1}· forged\n\u{b}· forged\u{85}· forged\u{2028}· forged\rforged"),
            status.clone(),
            out("fake\r"),
            EventKind::Stderr { index: 0, text: forged.to_owned() },
            show(text_bundle("text/plain", forged)),
            show(text_bundle("text/markdown", forged)),
            show(text_bundle("application/json", "\"\u{85}✓ 12 ms\"")),
            ends(Outcome::Complete),
        ]);
        let text = render(look, None, kinds);
        let own = own_lines(&text);
        let expected = ["[1/1] Python · ", "│ 1", "· read", "✓ 12 ms"];
        assert!(
            own.len() == 4 && own.iter().zip(expected).all(|(line, start)| line.starts_with(start)),
            "{own:#?}\n{text}"
        );
    }
}
