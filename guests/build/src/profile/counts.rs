//! Counters as they lie in the memory of an instrumented program for wasm32.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};

use super::indexed::{Function, key};

/// Bytes of clang's record of a function: two hashes, four addresses, the number of counters, and what has no use here.
const RECORD_BYTES: usize = 48;

/// Where things lie in a record.
const FUNCTION_HASH: usize = 8;
const COUNTERS_ADDRESS: usize = 16;
const COUNTERS_LENGTH: usize = 32;

/// A part of the program's memory.
struct Part<'a> {
    address: u32,
    bytes: &'a [u8],
}

/// Reads what a training program writes: its records, counters and names, each after its address and length.
pub(super) fn read(mut file: &[u8]) -> Result<Vec<Function>> {
    let (records, counters, names) = (part(&mut file)?, part(&mut file)?, part(&mut file)?);
    ensure!(records.bytes.len() % RECORD_BYTES == 0, "records of functions have another length than clang 22's");
    let names = read_names(names.bytes)?;
    let mut functions = Vec::new();
    for (at, record) in (0_u32..).step_by(RECORD_BYTES).zip(records.bytes.chunks_exact(RECORD_BYTES)) {
        let name = names.get(&long(record, 0)?).context("a record's name is not among the names")?;
        // Relative to the record itself.
        let address = records.address.wrapping_add(at).wrapping_add(word(record, COUNTERS_ADDRESS)?);
        let start = address.wrapping_sub(counters.address) as usize;
        let counts = (0..word(record, COUNTERS_LENGTH)? as usize)
            .map(|number| long(counters.bytes, start + number * size_of::<u64>()))
            .collect::<Result<_>>()?;
        functions.push(Function { name: name.clone(), hash: long(record, FUNCTION_HASH)?, counts });
    }
    Ok(functions)
}

/// Takes a part from the front of `file`.
fn part<'a>(file: &mut &'a [u8]) -> Result<Part<'a>> {
    let (address, length) = (word(file, 0)?, word(file, 4)? as usize);
    let bytes = file.get(8..8 + length).context("the file ends too soon")?;
    *file = &file[8 + length..];
    Ok(Part { address, bytes })
}

/// All names by their keys. They lie in groups: the length of the text, zero for that it is not compressed, the text.
fn read_names(mut bytes: &[u8]) -> Result<HashMap<u64, String>> {
    let mut names = HashMap::new();
    while let Some(&first) = bytes.first() {
        if first == 0 {
            // Between groups.
            bytes = &bytes[1..];
            continue;
        }
        let length = leb128(&mut bytes)?;
        ensure!(leb128(&mut bytes)? == 0, "the names are compressed");
        let text = bytes.get(..length).context("the names end too soon")?;
        bytes = &bytes[length..];
        for name in std::str::from_utf8(text)?.split('\u{1}') {
            names.insert(key(name), name.to_owned());
        }
    }
    Ok(names)
}

fn leb128(bytes: &mut &[u8]) -> Result<usize> {
    let mut value = 0;
    for shift in (0..28).step_by(7) {
        let (&byte, rest) = bytes.split_first().context("the names end too soon")?;
        *bytes = rest;
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    anyhow::bail!("a length has too many digits")
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk()).context("a number lies outside")?;
    Ok(u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> Result<u64> {
    let long = bytes.get(at..).and_then(|rest| rest.first_chunk()).context("a number lies outside")?;
    Ok(u64::from_le_bytes(*long))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_relative_to_their_record() {
        let mut records = Vec::new();
        for (name, from, count) in [("f", 0_u32, 1_u32), ("a.c:g", 8, 2)] {
            let address = 5000 + from - (1000 + u32::try_from(records.len()).unwrap());
            let mut record = [0; RECORD_BYTES];
            record[..8].copy_from_slice(&key(name).to_le_bytes());
            record[8..16].copy_from_slice(&77_u64.to_le_bytes());
            record[16..20].copy_from_slice(&address.to_le_bytes());
            record[32..36].copy_from_slice(&count.to_le_bytes());
            records.extend(record);
        }
        let counters: Vec<u8> = [3_u64, 4, 5].iter().flat_map(|count| count.to_le_bytes()).collect();
        let names = b"\x01\x00f\x00\x05\x00a.c:g";
        let mut file = Vec::new();
        for (address, bytes) in [(1000_u32, &records[..]), (5000, &counters), (9000, names)] {
            file.extend(address.to_le_bytes());
            file.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
            file.extend(bytes);
        }
        let functions = read(&file).unwrap();
        assert_eq!(functions.len(), 2);
        assert_eq!((functions[0].name.as_str(), functions[0].hash, &functions[0].counts[..]), ("f", 77, &[3][..]));
        assert_eq!((functions[1].name.as_str(), &functions[1].counts[..]), ("a.c:g", &[4, 5][..]));
        assert!(read(&file[..file.len() - 1]).is_err());
    }
}
