//! Changes to seeds.

use rand::{Rng, RngCore, rngs::SmallRng};

/// Numbers at which something ends, in the widths that formats have.
const NUMBERS: [u64; 14] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x10000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];
/// The same as texts, and pieces that texts have a meaning for.
const PIECES: [&str; 28] = [
    "0",
    "-1",
    "1e400",
    "-0",
    "18446744073709551616",
    "9223372036854775807",
    "NaN",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "[[[[[[[[",
    "{\"a\":",
    "\\ud800",
    "\\u0000",
    "\u{202e}",
    "\u{1b}[2J",
    "../",
    "/",
    "\0",
    "\r\n",
    "<",
    "&#x0;",
    "url(#a)",
    "%",
    "é",
    "\u{feff}",
];

fn place(bytes: &[u8], random: &mut SmallRng) -> usize {
    random.random_range(0..=bytes.len())
}

/// A piece of some bytes, short ones more often than long ones.
fn piece<'a>(bytes: &'a [u8], random: &mut SmallRng) -> &'a [u8] {
    let begin = place(bytes, random);
    let most = (bytes.len() - begin).min(1 << random.random_range(0..12));
    &bytes[begin..begin + random.random_range(0..=most)]
}

/// A seed with a few changes, some of them pieces of another seed.
pub(crate) fn changed(seed: &[u8], other: &[u8], random: &mut SmallRng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    let count = if random.random() { 1 } else { 1 << random.random_range(0..4) };
    for _ in 0..count {
        change(&mut bytes, other, random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut SmallRng) {
    let at = place(bytes, random);
    match random.random_range(0..9) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
        1 if at < bytes.len() => bytes[at] = random.random(),
        2 => {
            let number = NUMBERS[random.random_range(0..NUMBERS.len())];
            let number = if random.random() { number } else { number.wrapping_add(random.next_u64() % 5) };
            let width = 1 << random.random_range(0..4);
            let new = number.to_le_bytes();
            bytes.iter_mut().skip(at).zip(&new[..width]).for_each(|(old, new)| *old = *new);
        }
        3 => {
            // A number as postcard writes it.
            let mut number = NUMBERS[random.random_range(0..NUMBERS.len())];
            let mut new = Vec::new();
            while number >= 0x80 {
                new.push((number & 0x7f) as u8 | 0x80);
                number >>= 7;
            }
            new.push(number as u8);
            let end = (at + random.random_range(0..3)).min(bytes.len());
            bytes.splice(at..end, new);
        }
        4 => {
            let gone = piece(bytes, random).len();
            let at = at.min(bytes.len() - gone);
            bytes.drain(at..at + gone);
        }
        5 => {
            let new = piece(bytes, random).to_vec();
            bytes.splice(at..at, new);
        }
        6 => {
            let new = piece(other, random).to_vec();
            let end = (at + random.random_range(0..=new.len())).min(bytes.len());
            bytes.splice(at..end, new);
        }
        7 => {
            // In the place of a number or a word of a text.
            let new = PIECES[random.random_range(0..PIECES.len())].bytes();
            let is_of_word = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'.';
            let length = bytes[at..].iter().take_while(is_of_word).count();
            let end = if random.random() { at + length } else { at };
            bytes.splice(at..end, new);
        }
        _ => {
            let new = piece(bytes, random).to_vec();
            let count = random.random_range(1..64);
            bytes.splice(at..at, new.repeat(count));
        }
    }
}
