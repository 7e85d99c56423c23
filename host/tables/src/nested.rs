//! Encoding of lists, structures and maps for a guest: their own buffers, followed by those of their items, as columns.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, cast::AsArray};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field};
use serde_json::{Value, json};

use crate::{
    decode::{encode, plain},
    encoded::{Encoded, rows},
    error::TableError,
};

/// Limit of the nesting of lists and structures.
pub(crate) const DEPTH_MAX: usize = 32;

/// The buffers of one array of lists, structures or maps.
pub(crate) fn nested(array: &ArrayRef, depth: usize) -> Result<Encoded, TableError> {
    if depth > DEPTH_MAX {
        return Err(TableError::TooDeep);
    }
    match array.data_type() {
        DataType::List(item) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.offsets().iter().map(|offset| i64::from(*offset));
            listed("list", array, offsets.collect(), item, lists.values(), depth)
        }
        DataType::LargeList(item) => {
            let lists = array.as_list::<i64>();
            listed("list", array, lists.offsets().to_vec(), item, lists.values(), depth)
        }
        DataType::FixedSizeList(item, size) => {
            let offsets =
                (0..=array.len()).map(|row| i64::try_from(row).unwrap_or(i64::MAX).saturating_mul(i64::from(*size)));
            listed("list", array, offsets.collect(), item, array.as_fixed_size_list().values(), depth)
        }
        DataType::Map(entry, _) => {
            let maps = array.as_map();
            let entries: ArrayRef = Arc::new(maps.entries().clone());
            let offsets = maps.offsets().iter().map(|offset| i64::from(*offset));
            listed("map", array, offsets.collect(), entry, &entries, depth)
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let members = fields.iter().zip(columns).map(|(field, column)| Ok((field, within(field, column, depth)?)));
            let members = members.collect::<Result<Vec<_>, TableError>>()?;
            let said = |(field, member): &(&Arc<Field>, Encoded)| said(Some(field), member);
            let kind = json!({"kind": "struct", "fields": members.iter().map(said).collect::<Vec<_>>()});
            let encoded = Encoded::new(kind).with_mask(std::slice::from_ref(array))?;
            Ok(members.into_iter().fold(encoded, |encoded, (_, member)| encoded.with_all(member)))
        }
        other => Err(TableError::Kind(other.to_string())),
    }
}

/// Offsets of lists, and the items of all of them.
fn listed(
    kind: &str,
    array: &ArrayRef,
    offsets: Vec<i64>,
    field: &Field,
    items: &ArrayRef,
    depth: usize,
) -> Result<Encoded, TableError> {
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return Err(TableError::Damaged) };
    let start = usize::try_from(*first).map_err(|_| TableError::Damaged)?;
    let count = usize::try_from(last.saturating_sub(*first)).map_err(|_| TableError::Damaged)?;
    if start.checked_add(count).is_none_or(|end| end > items.len()) || !offsets.is_sorted() {
        return Err(TableError::Damaged);
    }
    let moved = offsets.iter().map(|offset| i32::try_from(offset.saturating_sub(*first)));
    let moved = moved.collect::<Result<Vec<i32>, _>>().map_err(|_| TableError::TooLarge)?;
    let item = within(field, &items.slice(start, count), depth)?;
    let parts = std::slice::from_ref(array);
    let encoded = Encoded::new(json!({"kind": kind, "count": count, "item": said(None, &item)})).with_mask(parts)?;
    Ok(encoded.with::<i32>(rows(parts).saturating_add(1), vec![Buffer::from_vec(moved)])?.with_all(item))
}

/// Encodes nested values as a column of one part.
fn within(field: &Field, array: &ArrayRef, depth: usize) -> Result<Encoded, TableError> {
    encode(field, &plain(field, vec![Arc::clone(array)])?, depth.saturating_add(1))
}

fn said(field: Option<&Field>, encoded: &Encoded) -> Value {
    let said = json!({"nullable": encoded.nullable, "type": encoded.kind});
    match (said, field) {
        (Value::Object(mut said), Some(field)) => {
            said.insert("name".to_owned(), field.name().clone().into());
            said.into()
        }
        (said, _) => said,
    }
}
