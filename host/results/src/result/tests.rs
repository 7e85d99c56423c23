use cellar_core::event::{Bridge, Scalar};
use cellar_core::mime::MimeData;

use cellar_core::outcome::FailureKind;

use super::*;

fn text_bundle(pairs: &[(&str, &str)]) -> MimeBundle {
    MimeBundle(pairs.iter().map(|(name, text)| ((*name).to_owned(), MimeData::Text((*text).to_owned()))).collect())
}

fn png() -> MimeBundle {
    let mut bundle = text_bundle(&[("text/plain", "<Figure>")]);
    bundle.0.insert(0, ("image/png".to_owned(), MimeData::Binary(vec![1, 2, 3])));
    bundle
}

fn fold(cells: usize, kinds: impl IntoIterator<Item = EventKind>) -> RunResult {
    let cells = (0..cells).map(|_| Cell::new(Language::Python, "")).collect();
    let started = EventKind::RunStarted { session: "s".to_owned(), cells };
    let mut result = RunResult::default();
    for (seq, kind) in std::iter::once(started).chain(kinds).enumerate() {
        result.apply(&Event { seq: seq as u64, kind });
    }
    result
}

fn out(text: &str) -> EventKind {
    EventKind::Stdout { index: 0, text: text.to_owned() }
}

fn shows(bundle: MimeBundle) -> EventKind {
    EventKind::Display { index: 0, data: bundle, display_id: None, is_value: false }
}

fn named(id: &str, bundle: MimeBundle) -> EventKind {
    EventKind::Display { index: 0, data: bundle, display_id: Some(id.to_owned()), is_value: false }
}

fn update(index: usize, id: &str, bundle: MimeBundle) -> EventKind {
    EventKind::UpdateDisplay { index, data: bundle, display_id: id.to_owned() }
}

fn ends(index: usize, outcome: Outcome) -> EventKind {
    EventKind::CellFinished { index, outcome, duration: Duration::from_millis(3), usage: Usage::default(), kept: None }
}

fn fails(index: usize) -> EventKind {
    ends(index, Outcome::Failed(Box::new(Failure::new(FailureKind::Raised, "ValueError", "no"))))
}

#[test]
fn both_streams_and_plain_displays_make_one_text_in_order() {
    let result = fold(
        1,
        [
            out("a\nb"),
            EventKind::Stderr { index: 0, text: "!\n".to_owned() },
            out("unended"),
            shows(text_bundle(&[("text/plain", "42")])),
            out("c\n\n"),
        ],
    );
    assert_eq!(result.cells[0].output().text, "a\nb!\nunended\n42\nc");
}

#[test]
fn a_title_of_several_lines_breaks_no_header() {
    let titled = |title: &str| {
        let mut cells = vec![Cell::new(Language::Python, ""); 2];
        cells[0].title = Some(title.to_owned());
        fold(0, [EventKind::RunStarted { session: String::new(), cells }, out("one\n")]).text()
    };
    assert_eq!(titled("load\n[2/2] forged\r\n\tx"), "[1/2] load [2/2] forged x\none");
    assert_eq!(titled(" \n"), "[1/2]\none");
}

#[test]
fn calls_that_came_back_are_status_events() {
    let started = |call, bridge, name: &str| EventKind::CallStarted { index: 0, call, bridge, name: name.to_owned() };
    let finished = |call, error: Option<&str>| EventKind::CallFinished {
        index: 0,
        call,
        duration: Duration::from_micros(1_500),
        error: error.map(str::to_owned),
    };
    let events = [
        started(1, Bridge::Tool, "search"),
        started(2, Bridge::Llm, "default"),
        finished(2, Some(&"no".repeat(1_000))),
        finished(1, None),
        finished(1, None),
        started(3, Bridge::Agent, "task"),
    ];
    let result = fold(1, events);
    let statuses = &result.cells[0].statuses;
    let text = |text: &str| Scalar::Text(text.to_owned());
    let names: Vec<_> = statuses.iter().map(|status| (status.op.as_str(), status.fields[1].1.clone())).collect();
    assert_eq!(names, [("call", text("default")), ("call", text("search"))]);
    assert_eq!(statuses[0].fields[3], ("error".to_owned(), text(&"no".repeat(512))));
    let expected = [("bridge", text("tool")), ("name", text("search")), ("duration_ms", Scalar::Number(1.5))];
    assert_eq!(statuses[1].fields, expected.map(|(name, value)| (name.to_owned(), value)));
}

#[test]
fn blank_lines_around_a_text_go_and_its_indentation_stays() {
    assert_eq!(fold(1, [out("\n\n   x  y\n0  1  2\n \n")]).text(), "   x  y\n0  1  2");
}

#[test]
fn a_formula_is_shown_as_it_was_written_unless_its_plain_text_says_something() {
    let shown = |plain: &str| fold(1, [shows(text_bundle(&[("text/plain", plain), ("text/latex", "$x^2$")]))]).text();
    assert_eq!([shown("<Latex object>"), shown("x**2")], ["$x^2$", "x**2"]);
}

#[test]
fn markdown_is_preferred_over_plain_text() {
    let result = fold(1, [shows(text_bundle(&[("text/plain", "<Markdown>"), ("text/markdown", "# Hi")]))]);
    assert_eq!(result.text(), "# Hi");
    assert_eq!(result.markdowns().collect::<Vec<_>>(), ["# Hi"]);
    assert!(result.cells[0].has_markdown());
}

#[test]
fn images_and_json_leave_no_text() {
    let result = fold(1, [shows(png()), shows(png())]);
    assert_eq!(result.text(), "(displayed 2 image(s); no text output)");
    assert_eq!(result.images().next(), Some(Image { mime_type: "image/png", data: &MimeData::Binary(vec![1, 2, 3]) }));
    let result = fold(1, [shows(text_bundle(&[("application/json", "{}"), ("text/plain", "<Chart object>")]))]);
    assert_eq!(result.text(), "(no text output)");
    assert_eq!(result.jsons().collect::<Vec<_>>(), ["{}"]);
}

#[test]
fn a_value_is_shown_as_its_language_prints_it() {
    let value = text_bundle(&[("application/json", "{\"1\": [2]}"), ("text/plain", "{1: (2,)}")]);
    let result = fold(1, [shows(value)]);
    assert_eq!(result.text(), "{1: (2,)}");
    assert_eq!(result.jsons().collect::<Vec<_>>(), ["{\"1\": [2]}"]);
}

#[test]
fn a_chart_with_an_image_is_an_image_alone() {
    let mut bundle = png();
    bundle.0.push(("application/vnd.vegalite.v5+json".to_owned(), MimeData::Text("{}".to_owned())));
    let result = fold(1, [shows(bundle)]);
    assert_eq!((result.images().count(), result.jsons().count()), (1, 0));
}

#[test]
fn nothing_shown_is_said() {
    assert_eq!(fold(2, [ends(0, Outcome::Complete)]).text(), "(no output)");
    assert_eq!(fold(1, [out(" \n")]).text(), "(no output)");
    assert_eq!(fold(1, [shows(png())]).text(), "(displayed 1 image(s); no text output)");
}

#[test]
fn an_update_replaces_wherever_the_display_is() {
    let plain = |text: &str| text_bundle(&[("text/plain", text)]);
    let result = fold(2, [named("a", plain("0 %")), out("between\n"), update(1, "a", plain("100 %"))]);
    assert_eq!(result.cells[0].output().text, "100 %\nbetween");
    assert_eq!(result.cells[1].output().text, "");
    let result = fold(1, [update(0, "of an earlier run", plain("new"))]);
    assert_eq!(result.cells[0].output().text, "new");
}

#[test]
fn clearing_drops_what_was_shown_at_once_or_with_the_next_output() {
    let clear = |wait| EventKind::ClearOutput { index: 0, wait };
    let result = fold(1, [out("old"), shows(png()), clear(false)]);
    assert_eq!(result.text(), "(no output)");
    let waiting = [out("old"), clear(true)];
    assert_eq!(fold(1, waiting.clone()).text(), "old");
    assert_eq!(fold(1, waiting.into_iter().chain([out("new"), out("er")])).text(), "newer");
}

#[test]
fn several_cells_are_numbered_and_titled_and_a_failure_says_what_did_not_run() {
    let mut cells = vec![Cell::new(Language::JavaScript, ""); 4];
    cells[1].title = Some("load".to_owned());
    cells[3].language = Language::Python;
    let started = EventKind::RunStarted { session: String::new(), cells };
    let second = EventKind::Stdout { index: 1, text: "half\n".to_owned() };
    let result = fold(0, [started, out("one\n"), ends(0, Outcome::Complete), second, fails(1)]);
    assert_eq!(
        result.text(),
        "[1/4]\none\n\n[2/4] load\nhalf\nValueError: no\n\nCell 2 failed; cells 3 to 4 did not run. \
         What earlier cells made is kept."
    );
    assert_eq!(result.languages(), [Language::JavaScript]);
    let statuses: Vec<_> = result.cells.iter().map(|cell| (cell.status, cell.exit_code())).collect();
    assert_eq!(statuses[0], (CellStatus::Complete, Some(0)));
    assert_eq!(statuses[1], (CellStatus::Error, Some(1)));
    assert_eq!(statuses[2], (CellStatus::Pending, None));
}

#[test]
fn a_failure_is_silent_about_later_cells_that_ran() {
    let result = fold(2, [fails(0), EventKind::CellStarted { index: 1, cell: CellId(2) }, ends(1, Outcome::Complete)]);
    assert_eq!(result.text(), "[1/2]\nValueError: no\n\nCell 1 failed.");
}

#[test]
fn an_exit_status_is_a_failure_unless_0() {
    assert_eq!(fold(1, [ends(0, Outcome::Exited(0))]).cells[0].exit_code(), Some(0));
    let result = fold(1, [ends(0, Outcome::Exited(3))]);
    assert_eq!(result.cells[0].exit_code(), Some(1));
    assert_eq!(result.text(), "SystemExit: the cell exited with status 3");
}

#[test]
fn the_result_is_bounded() {
    let many = (0..DISPLAYS_MAX + 5).map(|_| shows(png()));
    let result = fold(1, many);
    assert_eq!(result.images().count(), DISPLAYS_MAX);
    assert_eq!(result.text().lines().count(), 5);
    let status = EventKind::Status { index: 0, op: "read".to_owned(), fields: Vec::new() };
    let result = fold(1, std::iter::repeat_n(status, STATUSES_MAX + 7));
    assert_eq!((result.cells[0].statuses.len(), result.statuses_left_out), (STATUSES_MAX, 7));
    let big = MimeBundle(vec![("image/png".to_owned(), MimeData::Binary(vec![0; DISPLAYS_BYTES_MAX + 1]))]);
    assert_eq!(fold(1, [shows(big)]).images().count(), 0);
}

#[test]
fn the_combined_text_counts_all_that_was_left_out() {
    let line = "x".repeat(99) + "\n";
    let lines = 2_000;
    let long = |index| EventKind::Stdout { index, text: line.repeat(lines) };
    let result = fold(2, [long(0), long(1)]);
    let cell = result.cells[0].output().truncation.expect("the cell is cut");
    assert_eq!((cell.total_bytes, cell.total_lines), (200_000, 2_000));
    let shown = result.shown();
    let run = shown.truncation.expect("the run is cut");
    assert!(shown.text.len() < WINDOW_BYTES + 100);
    assert!((399_900..400_200).contains(&run.total_bytes), "{run:?}");
    assert!((3_999..4_006).contains(&run.total_lines), "{run:?}");
}

#[test]
fn every_cell_of_a_run_with_long_output_keeps_a_part() {
    let long = |index: usize, word: &str| {
        let lines: String = (0..9_000).map(|n| format!("{word} {n}\n")).collect();
        EventKind::Stdout { index, text: lines }
    };
    let middle = EventKind::Stdout { index: 1, text: "middle\n{'answer': 42}\n".to_owned() };
    let result = fold(3, [long(0, "first"), middle, long(2, "last")]);
    let shown = result.shown();
    for part in ["[1/3]\nfirst 0\n", "first 8999\n\n[2/3]\nmiddle\n{'answer': 42}\n\n[3/3]\nlast 0\n", "last 8999"] {
        assert!(shown.text.contains(part), "{part}");
    }
    assert!(shown.text.len() <= WINDOW_BYTES && shown.text.lines().count() <= WINDOW_LINES);
    let cut = shown.truncation.expect("it is cut");
    assert!((18_006..18_012).contains(&cut.total_lines), "{cut:?}");
    // Each part says how much of its cell is left out, of what was cut before as well.
    let left_out: u64 =
        shown.text.lines().filter_map(|line| line.strip_prefix("[… ")?.split(' ').next()?.parse::<u64>().ok()).sum();
    let in_text = shown.text.lines().filter(|line| line.starts_with("first ") || line.starts_with("last ")).count();
    assert_eq!(left_out + in_text as u64, 18_000);
    // Fewer tokens are as fair.
    let few = result.shown_in_tokens(2_000);
    assert!(estimated_tokens(&few.text) <= 2_000 && few.text.contains("{'answer': 42}"), "{}", few.text);
}

#[test]
fn output_of_code_that_outlived_its_cell_stands_in_lines_of_its_own() {
    let late = |text: &str| EventKind::Background {
        index: 1,
        cell: CellId(1),
        is_stderr: false,
        text: text.to_owned(),
        left_out: 0,
    };
    let own = |text: &str| EventKind::Stdout { index: 1, text: text.to_owned() };
    let result = fold(2, [own("half"), late("tick\n"), late("tock"), own("two\n"), late("")]);
    let marks = ["wrote", "displayed"].map(|did| format!("[<cell 1> {did} this after it had ended]"));
    assert_eq!(result.text(), format!("[2/2]\nhalf\n{}\ntick\ntock\ntwo\n{}", marks[0], marks[1]));
}

#[test]
fn events_out_of_place_are_ignored() {
    let elsewhere = EventKind::Stdout { index: 9, text: "x".to_owned() };
    let result = fold(1, [elsewhere, fails(9), EventKind::ClearOutput { index: 9, wait: false }]);
    assert_eq!(result.text(), "(no output)");
    assert!(!result.is_finished);
}

#[test]
fn long_lines_of_several_cells_share_the_window() {
    let line = |index: usize, letter: &str| EventKind::Stdout { index, text: letter.repeat(200_000) + "\n" };
    let text = fold(2, [line(0, "a"), line(1, "b")]).text();
    let count = |letter: char| text.chars().filter(|found| *found == letter).count();
    assert!(count('a') > WINDOW_BYTES / 3 && count('b') > WINDOW_BYTES / 3, "{} {}", count('a'), count('b'));
    assert!(text.starts_with("[1/2]\naaaa"), "{:?}", &text[..20]);
    assert!(text.trim_end().ends_with("bbbb"), "{:?}", &text[text.len() - 20..]);
}

#[test]
fn tables_that_follow_each_other_stay_two() {
    let table = || shows(text_bundle(&[("text/markdown", "| a |\n|---|\n| 1 |")]));
    let text = fold(1, [table(), table(), out("between\n"), table()]).text();
    let table = "| a |\n|---|\n| 1 |";
    assert_eq!(text, format!("{table}\n\n{table}\nbetween\n{table}"));
}

#[test]
fn a_progress_bar_is_shown_as_it_ends() {
    let result = fold(1, (0..100).map(|n| out(&format!("\rprogress {n}"))).chain([out("\ndone\n")]));
    assert_eq!(result.text(), "progress 99\ndone");
}

#[test]
fn spaces_are_no_output() {
    assert_eq!(fold(1, [out("\n  \n")]).text(), "(no output)");
}
