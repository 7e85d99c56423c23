//! Lengths that a guest claims: rows, indexes and offsets at the ends of what numbers hold. No sum of them wraps, and nothing is made for
//! more than what came.

use super::*;

/// Numbers at which arithmetic of 32 and 64 bits wraps, and their neighbours.
fn edges() -> impl Strategy<Value = i64> {
    let ends = [0_i64, 1, 7, 255, i64::from(i32::MAX), i64::from(u32::MAX), 1 << 53, i64::MAX - 1, i64::MAX];
    prop_oneof![prop::sample::select(ends.to_vec()), any::<i64>(), -4_i64..64]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lengths_that_are_claimed_neither_wrap_nor_make_more_than_came(
        (rows, claimed) in (edges(), edges()),
        (start, stop, step) in (edges(), edges(), edges()),
        ends in prop::collection::vec(prop_oneof![any::<i32>(), Just(i32::MAX), Just(-1), 0_i32..40], 0..6),
        bits in prop::sample::select(vec![0_u64, 8, 16, 64, 255]),
        kind in 0_usize..4,
        body in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let of = match kind {
            0 => json!({"kind": "integer", "bits": bits, "signed": true}),
            1 => json!({"kind": "text", "bytes": claimed}),
            2 => json!({"kind": "binary", "bytes": claimed}),
            _ => json!({"kind": "list", "count": claimed, "item": {"type": {"kind": "float", "bits": 64}}}),
        };
        let head = json!({
            "rows": rows,
            "index": {"kind": "range", "name": null, "start": start, "stop": stop, "step": step},
            "columns": [{"name": "a", "dtype": "object", "type": of}],
        });
        if let Ok(table) = Table::parse(&frame(&head, &[&offsets(&ends), &body])) {
            // An index takes no bytes: so may rows without any, and no others.
            prop_assert_eq!(i64::try_from(table.rows()), Ok(rows));
            prop_assert!(table.rows() <= ends.len() * 4 + body.len() + 1, "{} rows", table.rows());
        }
    }

    #[test]
    fn pages_from_anywhere_are_within_the_table(skip in any::<u64>(), rows in any::<u64>(), bytes in 0_usize..300, chars in 0_usize..4) {
        let file = parquet(&Table::parse(&all_kinds()).expect("a table"));
        let whole = Table::parse(&all_kinds()).expect("a table").rows() as u64;
        let page = Page::read(file, PageRequest { skip, rows, bytes, value_chars: Some(chars) }).expect("a page");
        prop_assert_eq!(page.total, whole);
        prop_assert!(page.rows <= rows.max(1).min(whole.saturating_sub(skip)), "{page:?}");
    }
}
