//! LLVM's indexed profiles, as `llvm-profdata` writes them, which the compiler's wheel does not have.
//!
//! Version 13 of the format, which is that of clang 22: by an older one it would compute other hashes of functions. A file is a
//! head, a summary of how counters are distributed, a hash table of functions by their names, and lists that are empty
//! here. All numbers are little-endian and, where not said otherwise, of 64 bits.

use md5::{Digest, Md5};

/// What a file begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"\xfflprofi\x81");
const VERSION: u64 = 13;
/// Keys are hashed by MD5.
const HASH_MD5: u64 = 0;
/// Bytes of the head.
const HEAD_BYTES: usize = 72;

/// Shares of all counts, in millionths, for which the summary tells how few counters make them up. The compiler takes
/// counters within the first 99 % for hot, and those beyond the last for cold.
const CUTOFFS: &[u64] = &[
    10_000, 100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 700_000, 800_000, 900_000, 950_000, 990_000, 999_000,
    999_900, 999_990, 999_999,
];

/// A function's counters.
#[derive(Debug)]
pub(super) struct Function {
    /// After its file's name and a colon, when it is seen in that alone.
    pub(super) name: String,
    /// Of its branches; the compiler leaves a profile aside that has another.
    pub(super) hash: u64,
    /// How often it was entered, and then how often each of its branches was taken.
    pub(super) counts: Vec<u64>,
}

impl Function {
    /// Whether this is its name, in whatever file.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name.rsplit(':').next() == Some(name)
    }
}

/// What a function is looked up by.
pub(super) fn key(name: &str) -> u64 {
    let [a, b, c, d, e, f, g, h, ..]: [u8; 16] = Md5::digest(name).into();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// A file with the counters of all functions, whose names differ.
pub(super) fn write(functions: &[Function]) -> Vec<u8> {
    let mut out = vec![0; HEAD_BYTES];
    put(&mut out, &summary(functions));
    let table = write_table(&mut out, functions);
    // Names of the program's binaries, and of its tables of virtual functions: none, each a length of zero.
    let binaries = out.len() as u64;
    put(&mut out, &[0]);
    let virtual_tables = out.len() as u64;
    put(&mut out, &[0]);
    let mut head = Vec::with_capacity(HEAD_BYTES);
    put(&mut head, &[MAGIC, VERSION, 0, HASH_MD5, table, 0, binaries, 0, virtual_tables]);
    out[..HEAD_BYTES].copy_from_slice(&head);
    out
}

fn put(out: &mut Vec<u8>, numbers: &[u64]) {
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

/// Totals and maxima, and how counters are distributed.
fn summary(functions: &[Function]) -> Vec<u64> {
    let mut counts: Vec<u64> = functions.iter().flat_map(|function| function.counts.iter().copied()).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let total: u64 = counts.iter().sum();
    let entries = functions.iter().filter_map(|function| function.counts.first().copied());
    let inside = functions.iter().flat_map(|function| function.counts.iter().skip(1).copied());
    let fields = [
        functions.len() as u64,
        counts.len() as u64,
        entries.max().unwrap_or_default(),
        counts.first().copied().unwrap_or_default(),
        inside.max().unwrap_or_default(),
        total,
    ];
    let mut summary = vec![fields.len() as u64, CUTOFFS.len() as u64];
    summary.extend(fields);
    let (mut sum, mut seen, mut least) = (0, 0, 0);
    for cutoff in CUTOFFS {
        let wanted = u64::try_from(u128::from(total) * u128::from(*cutoff) / 1_000_000).unwrap_or(u64::MAX);
        while sum < wanted {
            least = counts[seen];
            // Counters that are alike are hot or cold together.
            let alike = counts[seen..].iter().take_while(|count| **count == least).count();
            seen += alike;
            sum += least * alike as u64;
        }
        summary.extend([*cutoff, least, seen as u64]);
    }
    summary
}

/// Writes the hash table; returns where its directory lies.
fn write_table(out: &mut Vec<u8>, functions: &[Function]) -> u64 {
    let mut buckets: Vec<Vec<&Function>> = vec![Vec::new(); (functions.len() * 4 / 3).next_power_of_two()];
    let mask = buckets.len() as u64 - 1;
    for function in functions {
        buckets[(key(&function.name) & mask) as usize].push(function);
    }
    let mut directory = vec![buckets.len() as u64, functions.len() as u64];
    for bucket in &buckets {
        // Zero is where no bucket can lie: an empty one has no place.
        directory.push(if bucket.is_empty() { 0 } else { out.len() as u64 });
        if !bucket.is_empty() {
            out.extend((bucket.len() as u16).to_le_bytes());
        }
        for function in bucket {
            let mut record = vec![function.hash, function.counts.len() as u64];
            record.extend(&function.counts);
            // There are no bits of conditions, and no values besides the counters: two numbers of 32 bits, their length and none.
            record.extend([0, 8]);
            put(out, &[key(&function.name), function.name.len() as u64, (record.len() * size_of::<u64>()) as u64]);
            out.extend(function.name.as_bytes());
            put(out, &record);
        }
    }
    out.resize(out.len().next_multiple_of(size_of::<u64>()), 0);
    let place = out.len() as u64;
    put(out, &directory);
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(name: &str, counts: &[u64]) -> Function {
        Function { name: name.into(), hash: 7, counts: counts.to_vec() }
    }

    fn number(file: &[u8], at: u64) -> u64 {
        u64::from_le_bytes(*file[usize::try_from(at).unwrap()..].first_chunk().unwrap())
    }

    #[test]
    fn a_function_is_found_by_its_name() {
        let functions: Vec<_> = (1..50).map(|n| function(&format!("file.c:f{n}"), &[n, n * 2])).collect();
        let file = write(&functions);
        assert_eq!((&file[1..7], number(&file, 8)), (&b"lprofi"[..], 13));
        let table = number(&file, 32);
        let (buckets, count) = (number(&file, table), number(&file, table + 8));
        assert_eq!((table % 8, count), (0, 49));
        for Function { name, counts, .. } in &functions {
            let bucket = number(&file, table + 16 + (key(name) & (buckets - 1)) * 8);
            let mut at = bucket + 2;
            while number(&file, at) != key(name) {
                at += 24 + number(&file, at + 8) + number(&file, at + 16);
            }
            let record = at + 24 + number(&file, at + 8);
            assert_eq!(number(&file, at + 16), 6 * 8);
            let numbers: Vec<u64> = (0..6).map(|n| number(&file, record + n * 8)).collect();
            assert_eq!(numbers, [7, 2, counts[0], counts[1], 0, 8]);
        }
    }

    #[test]
    fn the_summary_tells_how_few_counters_make_up_most_of_all_counts() {
        let summary = summary(&[function("hot", &[10, 900]), function("warm", &[10, 80]), function("cold", &[0])]);
        assert_eq!(summary[..8], [6, 16, 3, 5, 10, 900, 900, 1000]);
        let entry = |cutoff| summary[8..].chunks(3).find(|entry| entry[0] == cutoff).map(|entry| (entry[1], entry[2]));
        assert_eq!(entry(900_000), Some((900, 1)));
        assert_eq!(entry(950_000), Some((80, 2)));
        assert_eq!(entry(990_000), Some((10, 4)));
    }
}
