use super::*;

fn fold<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Window {
    let mut window = Window::default();
    pieces.into_iter().for_each(|piece| window.push(piece));
    window
}

#[test]
fn a_text_that_fits_is_shown_whole() {
    let line = "x".repeat(1023) + "\n";
    let shown = fold(std::iter::repeat_n(line.as_str(), 50)).shown(None);
    assert_eq!(shown, Shown::whole(line.repeat(50)));
}

#[test]
fn too_many_lines_leave_head_and_tail_on_line_boundaries() {
    let lines: Vec<String> = (0..20_000).map(|n| format!("line {n}\n")).collect();
    let shown = fold(lines.iter().map(String::as_str)).shown(None);
    let truncation = shown.truncation.expect("truncated");
    assert_eq!(truncation.by, TruncatedBy::Lines);
    assert_eq!(truncation.total_lines, 20_000);
    assert_eq!(truncation.total_bytes, lines.iter().map(|line| line.len() as u64).sum::<u64>());
    assert!(shown.text.starts_with("line 0\nline 1\n"), "head");
    assert!(shown.text.ends_with("line 19999\n"), "tail");
    assert!(shown.text.len() < WINDOW_BYTES + 100);
    let shown_lines: Vec<&str> = shown.text.lines().collect();
    assert_eq!(shown_lines.len() as u64, truncation.output_lines + 1);
    let left_out = truncation.total_lines - truncation.output_lines;
    assert!(shown.text.contains(&format!("[… {left_out} lines, ")), "{left_out}");
    assert!(shown_lines.iter().all(|line| line.starts_with("line ") || line.starts_with("[… ")));
}

#[test]
fn too_many_lines_leave_the_first_and_the_last() {
    let text: String = (0..3_001).map(|n| format!("{n}\n")).collect();
    let shown = fold([text.as_str()]).shown(None);
    let truncation = shown.truncation.expect("truncated");
    assert_eq!((truncation.by, truncation.output_lines), (TruncatedBy::Lines, 2_998));
    assert!(shown.text.contains("1498\n[… 3 lines, 15 bytes left out …]\n1502\n"));
}

#[test]
fn what_is_shown_fits_into_a_window() {
    for line in ["\n", "ab\n", "0123456789\n", "é日本🦀"] {
        let text = line.repeat(100_000);
        let shown = fold([text.as_str()]).shown(None).text;
        assert_eq!(fold([shown.as_str()]).shown(None).truncation, None, "{line:?}");
    }
}

#[test]
fn exactly_the_window_is_whole() {
    let text = "a\n".repeat(WINDOW_LINES);
    assert_eq!(fold([text.as_str()]).shown(None).truncation, None);
    let text = "a".repeat(WINDOW_BYTES);
    assert_eq!(fold([text.as_str()]).shown(None), Shown::whole(text));
}

#[test]
fn one_endless_line_is_cut_between_characters() {
    let shown = fold(std::iter::repeat_n("é日本🦀", 20_000)).shown(None);
    assert!(shown.truncation.is_some());
    assert!(shown.text.starts_with("é日本🦀") && shown.text.ends_with("é日本🦀"));
    assert!(shown.text.len() <= WINDOW_BYTES + 64);
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut window = Window::default();
    let megabyte = "0123456789abcdef".repeat(1 << 16);
    for _ in 0..64 {
        window.push(&megabyte);
        assert!(window.settled.head.len() + window.settled.tail.len() <= WINDOW_BYTES + 2 * LIVE_TAIL_BYTES);
    }
    assert_eq!(window.total_bytes(), 64 << 20);
}

#[test]
fn the_place_of_the_rest_is_told_and_fits_into_the_window() {
    let window = fold(std::iter::repeat_n("0123456789\n", 20_000));
    let place = "all of it is artifact://".to_owned() + &"0".repeat(500);
    let shown = window.shown(Some(&place)).text;
    assert!(shown.contains(&format!(" bytes left out; {place} …]\n")));
    assert!(shown.len() <= WINDOW_BYTES);
    let endless = "x".repeat(PLACE_BYTES_MAX);
    assert_eq!(window.shown(Some(&endless)), window.shown(None));
}

#[test]
fn the_live_tail_is_the_end_in_whole_lines() {
    let mut text = String::new();
    let mut window = Window::default();
    for number in 0..40_000 {
        let line = format!("líne {number}\n");
        text.push_str(&line);
        window.push(&line);
        if number % 3_331 == 0 {
            let tail = window.live_tail(LIVE_TAIL_BYTES);
            assert!(text.ends_with(&tail) && tail.starts_with("líne "), "after line {number}");
            let is_long = tail.len() > LIVE_TAIL_BYTES - 100;
            assert!(tail.len() <= LIVE_TAIL_BYTES && (is_long || tail == text), "{} bytes", tail.len());
        }
    }
}

#[test]
fn pieces_of_any_size_fold_alike() {
    let text: String = (0..9_000).map(|n| format!("{n}\tü\n")).collect();
    let whole = fold([text.as_str()]).shown(None);
    let characters: Vec<String> = text.chars().map(String::from).collect();
    assert_eq!(fold(characters.iter().map(String::as_str)).shown(None), whole);
}

#[test]
fn what_is_left_out_twice_is_counted_once_and_in_full() {
    let lines = |count: u64| (0..count).map(|n| format!("{n}\n")).collect::<String>();
    for count in [3_001, 5_000, 20_000, 100_000] {
        let first = fold([lines(count).as_str()]).shown(None);
        let mut whole = Window::default();
        whole.push_shown(&first.text, first.gaps);
        whole.push(&lines(10));
        let shown = whole.shown(None);
        let is_count = |word: &str| word.chars().all(|letter| letter.is_ascii_digit());
        let told: Vec<&str> = shown.text.lines().filter(|line| line.starts_with("[… ")).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        let words: Vec<&str> = told[0].split(' ').filter(|word| is_count(word)).collect();
        let shown_lines = shown.text.lines().count() as u64 - 1;
        let shown_bytes = (shown.text.len() - told[0].len() - 1) as u64;
        assert_eq!(words[0], (count + 10 - shown_lines).to_string(), "{count}");
        let total_bytes = (lines(count).len() + lines(10).len()) as u64;
        assert_eq!(words[1], (total_bytes - shown_bytes).to_string(), "{count}");
    }
}

#[test]
fn the_headline_of_what_is_shown_is_said_again_where_it_is_left_out() {
    let lines = |letter: &str, count: usize| format!("{}\n", letter.repeat(9)).repeat(count);
    let told = |first: usize, second: usize, third: usize| {
        let mut window = Window::default();
        for (headline, text) in
            [("[1/3] A", lines("a", first)), ("[2/3] B", lines("b", second)), ("[3/3]", lines("c", third))]
        {
            window.headline(headline);
            window.push(&format!("{headline}\n{text}"));
        }
        let shown = window.shown(None).text;
        assert!(shown.len() <= WINDOW_BYTES && shown.lines().count() <= WINDOW_LINES);
        assert_eq!(fold([shown.as_str()]).shown(None).truncation, None);
        shown
            .lines()
            .filter(|line| line.starts_with('['))
            .map(|line| line.split(' ').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    // The cut is in the second; the second and the third; the first alone; the third alone, where lines are too many.
    assert_eq!(told(10, 10_000, 10), ["[1/3]", "[2/3]", "[…", "[3/3]"]);
    assert_eq!(told(10_000, 10_000, 10), ["[1/3]", "[…", "[2/3]", "[3/3]"]);
    assert_eq!(told(10_000, 10, 10_000), ["[1/3]", "[…", "[3/3]"]);
    assert_eq!(told(10_000, 10, 10), ["[1/3]", "[…", "[2/3]", "[3/3]"]);
}

#[test]
fn lines_of_their_own() {
    let mut window = fold(["half"]);
    window.push_lines("whole");
    window.push("rest");
    assert_eq!(window.shown(None).text, "half\nwhole\nrest");
}

#[test]
fn the_limit_that_cut_is_named() {
    let by = |line: usize, lines: usize| {
        let text = format!("{}\n", "x".repeat(line)).repeat(lines);
        fold([text.as_str()]).shown(None).truncation.expect("cut").by
    };
    // Many short lines reach the limit of lines first, although there are too many bytes as well.
    assert_eq!(by(8, 9_000), TruncatedBy::Lines);
    assert_eq!(by(8, 3_001), TruncatedBy::Lines);
    assert_eq!(by(100, 9_000), TruncatedBy::Bytes);
    assert_eq!(by(100, 600), TruncatedBy::Bytes);
}

#[test]
fn a_room_is_divided_by_need() {
    assert_eq!(divide(100, &[10, 200, 300]), [10, 45, 45]);
    assert_eq!(divide(100, &[10, 20]), [10, 20]);
    assert_eq!(divide(9, &[100, 100, 100, 100]), [2, 2, 2, 3]);
}
