//! Lists for people: a header, columns that are as wide as their longest cell, and a word where there is nothing.

use chrono::{DateTime, Utc};

use crate::terminal::{escaped, padded, width};

/// Width beyond which a column does not push those behind it.
const COLUMN_MAX: usize = 60;

/// Formats rows below a header; `nothing` if there are none. Cells are escaped here.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]], nothing: &str) -> String {
    if rows.is_empty() {
        return format!("{nothing}\n");
    }
    let header = header.map(str::to_owned);
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| escaped(cell).into_owned())).collect();
    let all = || std::iter::once(&header).chain(&rows);
    let mut widths = [0; N];
    for row in all() {
        for (most, cell) in widths.iter_mut().zip(row) {
            *most = width(cell).clamp(*most, COLUMN_MAX.max(*most));
        }
    }
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, columns)| padded(cell, columns)).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    all().map(line).collect()
}

/// A moment as a date and a time of day, in UTC.
pub(crate) fn date_text(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|seconds| DateTime::<Utc>::from_timestamp(seconds, 0));
    moment.map_or_else(|| format!("{seconds} s"), |moment| moment.format("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [["a".to_owned(), "1\n".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(table(["NAME", "N"], &rows, "none"), "NAME    N\na       1\\u{a}\nlonger\n");
        assert_eq!(table(["NAME"], &[], "no sessions"), "no sessions\n");
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(date_text(1_803_556_541), "2027-02-25 11:55 UTC");
    }
}
