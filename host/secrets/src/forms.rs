//! Forms in which a credential comes back: as it is, and as texts are escaped for other formats.
//!
//! Encoders differ in which characters they escape, in the case of digits, and in how often they escape. So a text is decoded
//! while it is read, and searched in its decoded form; a match is reported by its range in the original text. Base64 and
//! hexadecimal digits are searched for as they are, also across line breaks.

use std::collections::VecDeque;

use aho_corasick::{
    AhoCorasick, Anchored, MatchKind,
    automaton::{Automaton, StateID},
    nfa::contiguous::NFA,
};
use base64::{
    Engine as _,
    engine::{
        GeneralPurpose,
        general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
    },
};
use memchr::{memchr, memchr2, memmem};

/// Shortest piece of base64 or hexadecimal digits that is searched for.
const PACKED_BYTES_MIN: usize = 6;
/// Bytes that one byte of a credential takes at most in what is decoded.
const GROWTH: usize = 8;
/// Names of characters in HTML that are not letters.
const ENTITIES: [(&str, u8); 35] = [
    ("amp", b'&'),
    ("lt", b'<'),
    ("gt", b'>'),
    ("quot", b'"'),
    ("apos", b'\''),
    ("sol", b'/'),
    ("plus", b'+'),
    ("equals", b'='),
    ("num", b'#'),
    ("excl", b'!'),
    ("quest", b'?'),
    ("commat", b'@'),
    ("colon", b':'),
    ("semi", b';'),
    ("comma", b','),
    ("period", b'.'),
    ("dollar", b'$'),
    ("percnt", b'%'),
    ("lowbar", b'_'),
    ("grave", b'`'),
    ("lpar", b'('),
    ("rpar", b')'),
    ("lsqb", b'['),
    ("lbrack", b'['),
    ("rsqb", b']'),
    ("rbrack", b']'),
    ("lcub", b'{'),
    ("lbrace", b'{'),
    ("rcub", b'}'),
    ("rbrace", b'}'),
    ("verbar", b'|'),
    ("vert", b'|'),
    ("ast", b'*'),
    ("bsol", b'\\'),
    ("Hat", b'^'),
];
/// Bytes of an entity behind its ampersand, at most.
const ENTITY_BYTES_MAX: usize = 12;

/// Finds credentials in texts.
#[derive(Debug)]
pub(super) struct Finder {
    /// Searcher for credentials and their base64 and hexadecimal forms in text as it is.
    forms: AhoCorasick,
    /// Searcher for credentials alone, in decoded text.
    plain: NFA,
    /// Searcher for base64 and hexadecimal forms, in text without its line breaks.
    packed: Option<NFA>,
}

impl Finder {
    /// Creates a finder of these credentials.
    ///
    /// # Errors
    /// There are too many to search for.
    pub(super) fn new<'a>(values: impl Iterator<Item = &'a str> + Clone) -> Result<Finder, aho_corasick::BuildError> {
        // In forms of web pages a space is a plus sign.
        let spaced = values.clone().filter(|value| value.contains(' ')).map(|value| value.replace(' ', "+"));
        let plain: Vec<Vec<u8>> = values.clone().map(str::to_owned).chain(spaced).map(String::into_bytes).collect();
        let mut packed: Vec<Vec<u8>> = values.flat_map(packed_forms).map(String::into_bytes).collect();
        packed.sort_unstable();
        packed.dedup();
        let forms = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(plain.iter().chain(&packed))?;
        let packed = if packed.is_empty() { None } else { Some(NFA::new(&packed)?) };
        Ok(Finder { forms, plain: NFA::new(&plain)?, packed })
    }

    /// Bytes of the longest form of any credential, for a text in an unknown encoding.
    pub(super) fn longest(&self) -> usize {
        self.plain.max_pattern_len().saturating_mul(GROWTH)
    }

    /// Returns true if the text contains a credential.
    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        !self.find(text).is_empty()
    }

    /// Returns the ranges of credentials in a text, in order and without overlaps.
    pub(super) fn find(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> =
            self.forms.find_iter(text).map(|place| (place.start(), place.end())).collect();
        let has = |byte: u8| memchr(byte, text).is_some();
        let (has_percent, has_escape, has_entity) = (has(b'%'), has(b'\\'), has(b'&'));
        if has_percent {
            search(&self.plain, percent(raw(text)), &mut found);
            if memmem::find(text, b"%25").is_some() {
                search(&self.plain, percent(percent(raw(text))), &mut found);
            }
        }
        if has_escape {
            search(&self.plain, escapes(raw(text)), &mut found);
            search(&self.plain, entities(escapes(raw(text))), &mut found);
            if memmem::find(text, b"\\\\").is_some() {
                search(&self.plain, escapes(escapes(raw(text))), &mut found);
            }
            if has_percent {
                search(&self.plain, percent(escapes(raw(text))), &mut found);
            }
            if has(b'=') {
                search(&self.plain, quoted_printable(escapes(raw(text))), &mut found);
            }
        }
        if has_entity {
            search(&self.plain, entities(raw(text)), &mut found);
            if memmem::find(text, b"&amp;").is_some() {
                search(&self.plain, entities(entities(raw(text))), &mut found);
            }
            if has_percent {
                search(&self.plain, percent(entities(raw(text))), &mut found);
            }
        }
        if has(b'=') {
            search(&self.plain, quoted_printable(raw(text)), &mut found);
        }
        if let Some(packed) = &self.packed {
            if memchr2(b'\n', b' ', text).is_some() {
                search(packed, unbroken(raw(text)), &mut found);
            }
            if has_escape {
                search(packed, unbroken(escapes(raw(text))), &mut found);
            }
            if has_percent {
                search(packed, unbroken(percent(raw(text))), &mut found);
            }
        }
        found.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::with_capacity(found.len());
        for (start, end) in found {
            match merged.last_mut() {
                Some(last) if start < last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        merged
    }
}

/// Base64 and hexadecimal digits of a value.
fn packed_forms(value: &str) -> Vec<String> {
    let engines = [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD];
    let mut forms: Vec<String> = engines.into_iter().flat_map(|engine| base64_forms(engine, value)).collect();
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    forms.push(hex.to_uppercase());
    forms.push(hex);
    forms.retain(|form| form.len() >= PACKED_BYTES_MIN);
    forms
}

/// Returns the parts of a value's base64 that are certain, for each offset at which the value may begin in the encoded bytes.
fn base64_forms(engine: &GeneralPurpose, value: &str) -> Vec<String> {
    let piece = |offset: usize| {
        let encoded = engine.encode([&vec![0; offset], value.as_bytes()].concat());
        // Bits of what stands before and behind are in the characters at the ends.
        let start = offset.saturating_mul(8).div_ceil(6);
        let end = offset.saturating_add(value.len()).saturating_mul(8) / 6;
        encoded.get(start..end).map(str::to_owned)
    };
    (0..3).filter_map(piece).collect()
}

/// Searches decoded text, and records the ranges of matches in the original text.
fn search(values: &NFA, decoded: impl Iterator<Item = Byte>, found: &mut Vec<(usize, usize)>) {
    let Ok(mut state) = values.start_state(Anchored::No) else { return };
    let kept = values.max_pattern_len();
    // Where the latest bytes begin.
    let mut starts = VecDeque::with_capacity(kept.saturating_add(1));
    for Byte { value, start, end } in decoded {
        starts.push_back(start);
        if starts.len() > kept {
            starts.pop_front();
        }
        state = values.next_state(Anchored::No, state, value);
        if values.is_special(state) && values.is_match(state) {
            let length = longest_match(values, state);
            let first = starts.len().checked_sub(length).and_then(|place| starts.get(place));
            found.extend(first.map(|first| (*first, end)));
        }
    }
}

fn longest_match(values: &NFA, state: StateID) -> usize {
    let patterns = (0..values.match_len(state)).map(|place| values.match_pattern(state, place));
    patterns.map(|pattern| values.pattern_len(pattern)).max().unwrap_or(0)
}

/// A byte that was read, and what of the text as it came it stands for.
#[derive(Clone, Copy, Debug)]
struct Byte {
    value: u8,
    start: usize,
    end: usize,
}

fn raw(text: &[u8]) -> impl Iterator<Item = Byte> {
    text.iter().enumerate().map(|(start, value)| Byte { value: *value, start, end: start.saturating_add(1) })
}

/// Decoder that looks ahead.
struct Decoder<I, F> {
    ahead: Ahead<I>,
    /// Decoded bytes that were not returned yet.
    ready: VecDeque<Byte>,
    /// Decodes the next part of the text and appends the result, which may be empty. Consumes at least one byte.
    decode: F,
}

struct Ahead<I> {
    from: I,
    held: VecDeque<Byte>,
}

impl<I: Iterator<Item = Byte>> Ahead<I> {
    fn peek(&mut self, place: usize) -> Option<u8> {
        while self.held.len() <= place {
            self.held.push_back(self.from.next()?);
        }
        self.held.get(place).map(|byte| byte.value)
    }

    /// The value of hexadecimal digits.
    fn hex(&mut self, places: std::ops::Range<usize>) -> Option<u32> {
        places.into_iter().try_fold(0, |number: u32, place| {
            number.checked_mul(16)?.checked_add(char::from(self.peek(place)?).to_digit(16)?)
        })
    }

    /// Skips the next `count` bytes and returns their range in the text.
    fn pass(&mut self, count: usize) -> Option<(usize, usize)> {
        let place = count.checked_sub(1)?;
        self.peek(place)?;
        let (first, last) = (self.held.front()?.start, self.held.get(place)?.end);
        self.held.drain(..count);
        Some((first, last))
    }
}

impl<I, F> Iterator for Decoder<I, F>
where
    I: Iterator<Item = Byte>,
    F: FnMut(&mut Ahead<I>, &mut VecDeque<Byte>) -> Option<()>,
{
    type Item = Byte;

    fn next(&mut self) -> Option<Byte> {
        loop {
            if let Some(byte) = self.ready.pop_front() {
                return Some(byte);
            }
            self.ahead.peek(0)?;
            (self.decode)(&mut self.ahead, &mut self.ready)?;
        }
    }
}

fn decoder<I, F>(from: I, decode: F) -> Decoder<I, F>
where
    I: Iterator<Item = Byte>,
    F: FnMut(&mut Ahead<I>, &mut VecDeque<Byte>) -> Option<()>,
{
    Decoder { ahead: Ahead { from, held: VecDeque::new() }, ready: VecDeque::new(), decode }
}

/// Replaces the next `count` bytes of the text by their decoded `meaning`.
fn give<I: Iterator<Item = Byte>>(
    ahead: &mut Ahead<I>,
    ready: &mut VecDeque<Byte>,
    count: usize,
    meaning: &[u8],
) -> Option<()> {
    let (start, end) = ahead.pass(count)?;
    ready.extend(meaning.iter().map(|value| Byte { value: *value, start, end }));
    Some(())
}

/// Passes the next byte on as it is.
fn keep<I: Iterator<Item = Byte>>(ahead: &mut Ahead<I>, ready: &mut VecDeque<Byte>) -> Option<()> {
    ready.push_back(ahead.held.pop_front()?);
    Some(())
}

/// `%2F`, of any characters, with large and small digits.
fn percent(from: impl Iterator<Item = Byte>) -> impl Iterator<Item = Byte> {
    decoder(from, |ahead, ready| match (ahead.peek(0), ahead.hex(1..3)) {
        (Some(b'%'), Some(value)) => give(ahead, ready, 3, &[u8::try_from(value).unwrap_or_default()]),
        _ => keep(ahead, ready),
    })
}

/// `=2F`, and an equals sign at the end of a line that goes on.
fn quoted_printable(from: impl Iterator<Item = Byte>) -> impl Iterator<Item = Byte> {
    decoder(from, |ahead, ready| {
        if ahead.peek(0) != Some(b'=') {
            return keep(ahead, ready);
        }
        match (ahead.peek(1), ahead.peek(2), ahead.hex(1..3)) {
            (Some(b'\n'), ..) => give(ahead, ready, 2, &[]),
            (Some(b'\r'), Some(b'\n'), _) => give(ahead, ready, 3, &[]),
            (.., Some(value)) => give(ahead, ready, 3, &[u8::try_from(value).unwrap_or_default()]),
            _ => keep(ahead, ready),
        }
    })
}

/// Escapes with backslashes, as JSON and the languages of cells have them.
fn escapes(from: impl Iterator<Item = Byte>) -> impl Iterator<Item = Byte> {
    decoder(from, |ahead, ready| {
        let (Some(b'\\'), Some(letter)) = (ahead.peek(0), ahead.peek(1)) else { return keep(ahead, ready) };
        let mut buffer = [0; 4];
        match letter {
            b'u' | b'U' => {
                let digits = if letter == b'u' { 4 } else { 8 };
                let Some((code, length)) = code_point(ahead, digits) else { return keep(ahead, ready) };
                let meaning = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut buffer);
                give(ahead, ready, length, meaning.as_bytes())
            }
            b'x' => match ahead.hex(2..4) {
                Some(value) => give(ahead, ready, 4, &[u8::try_from(value).unwrap_or_default()]),
                None => keep(ahead, ready),
            },
            b'n' => give(ahead, ready, 2, b"\n"),
            b't' => give(ahead, ready, 2, b"\t"),
            b'r' => give(ahead, ready, 2, b"\r"),
            other => give(ahead, ready, 2, &[other]),
        }
    })
}

/// The code point that an escape behind `\u` or `\U` names, and the bytes of the escape, which may be one of two halves.
fn code_point<I: Iterator<Item = Byte>>(ahead: &mut Ahead<I>, digits: usize) -> Option<(u32, usize)> {
    if ahead.peek(2) == Some(b'{') {
        let end = (3..=9).find(|place| ahead.peek(*place) == Some(b'}'))?;
        return Some((ahead.hex(3..end)?, end.saturating_add(1)));
    }
    let length = digits.saturating_add(2);
    let behind = length.saturating_add(6);
    let first = ahead.hex(2..length)?;
    if (0xD800..0xDC00).contains(&first)
        && ahead.peek(length) == Some(b'\\')
        && ahead.peek(length.saturating_add(1)) == Some(b'u')
        && let Some(second @ 0xDC00..0xE000) = ahead.hex(length.saturating_add(2)..behind)
    {
        // Each half has ten bits.
        let bits = ((first & 0x3FF) << 10) | (second & 0x3FF);
        return Some((bits.saturating_add(0x10000), behind));
    }
    Some((first, length))
}

/// `&amp;`, `&#47;` and `&#x2f;`.
fn entities(from: impl Iterator<Item = Byte>) -> impl Iterator<Item = Byte> {
    decoder(from, |ahead, ready| {
        if ahead.peek(0) != Some(b'&') {
            return keep(ahead, ready);
        }
        let Some(end) = (1..=ENTITY_BYTES_MAX).find(|place| ahead.peek(*place) == Some(b';')) else {
            return keep(ahead, ready);
        };
        let name: Vec<u8> = (1..end).filter_map(|place| ahead.peek(place)).collect();
        let mut buffer = [0; 4];
        let meaning: Option<&[u8]> = match name.as_slice() {
            [b'#', b'x' | b'X', digits @ ..] => number(digits, 16).map(|code| code.encode_utf8(&mut buffer).as_bytes()),
            [b'#', digits @ ..] => number(digits, 10).map(|code| code.encode_utf8(&mut buffer).as_bytes()),
            name => ENTITIES
                .iter()
                .find(|(known, _)| known.as_bytes() == name)
                .map(|(_, value)| std::slice::from_ref(value)),
        };
        match meaning {
            Some(meaning) => give(ahead, ready, end.saturating_add(1), meaning),
            None => keep(ahead, ready),
        }
    })
}

fn number(digits: &[u8], radix: u32) -> Option<char> {
    char::from_u32(u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()?)
}

/// Without line breaks and spaces.
fn unbroken(from: impl Iterator<Item = Byte>) -> impl Iterator<Item = Byte> {
    from.filter(|byte| !byte.value.is_ascii_whitespace())
}
