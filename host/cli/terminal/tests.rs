use super::*;

fn check(text: &str, expected: &str) {
    let look = Look { has_colors: true, is_terminal: true };
    assert_eq!(Cleaner::new(look).clean(text), expected, "{text:?}");
    let mut cleaner = Cleaner::new(look);
    let one_by_one: String = text.chars().map(|c| cleaner.clean(&c.to_string())).collect();
    assert_eq!(one_by_one, expected, "{text:?} one by one");
}

#[test]
fn text_and_colours_stay() {
    check("a\tb\r\nü🦀", "a\tb\r\nü🦀");
    check("\u{1b}[1;31mred\u{1b}[0m", "\u{1b}[1;31mred\u{1b}[0m");
}

#[test]
fn what_steers_a_terminal_is_dropped_or_shown() {
    check("a\u{1b}[2Jb\u{1b}[10;20Hc", "abc");
    check("a\u{1b}]0;title\u{7}b", "a\\u{1b}]0;title\\u{7}b");
    check("a\u{1b}\u{1b}[31mb\u{1b}", "a\\u{1b}\u{1b}[31mb");
    check("\u{1b}P1$r\u{1b}\\x\u{8}\u{0}\u{9b}31m\u{7f}y", "\\u{1b}P1$r\\u{1b}\\x\\u{8}\\u{0}\\u{9b}31m\\u{7f}y");
    check("\u{1b}[?25lx\u{1b}[>4;1my\u{1b}[999999999999999999999999999999999999999mz", "xyz");
    check("\u{1b}[3\ny", "\ny");
}

#[test]
fn bidirectional_controls_are_shown() {
    check("a\u{202e}b\u{2066}c\u{200f}", "a\\u{202e}b\\u{2066}c\\u{200f}");
    assert_eq!(escaped("a\u{202e}b\nc\u{9b}d"), "a\\u{202e}b\\u{a}c\\u{9b}d");
    assert_eq!(escaped_json("\"\u{202e}\u{9b}\u{7f}ü\"\n"), "\"\\u202e\\u009b\\u007fü\"\n");
}

#[test]
fn messages_keep_their_own_colours_only() {
    assert_eq!(harmless("\u{1b}[31mred\u{1b}[0m\n\ta"), "\u{1b}[31mred\u{1b}[0m\n\ta");
    assert_eq!(harmless("\u{1b}[2J\u{1b}]0;\u{7}\u{9b}\r"), "\\u{1b}[2J\\u{1b}]0;\\u{7}\\u{9b}\\u{d}");
    assert_eq!(harmless("\u{1b}\u{1b}[31m\u{1b}["), "\\u{1b}\u{1b}[31m\\u{1b}[");
}

#[test]
fn widths_are_those_of_a_terminal() {
    assert_eq!((width("\u{1b}[31mü漢\u{1b}[0m"), width("e\u{301}"), padded("漢", 4).as_str()), (3, 1, "漢  "));
}

#[test]
fn files_get_every_byte() {
    let mut cleaner = Cleaner::new(Look { has_colors: false, is_terminal: false });
    assert_eq!(cleaner.clean("\u{1b}[2J\u{0}"), "\u{1b}[2J\u{0}");
}
