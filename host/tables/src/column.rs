//! Columns: buffers into arrays.
//!
//! A column that may have no value in some rows begins with a byte for each row. Numbers are little-endian, as wide as
//! their type says. Text is one offset more than there are values, each of 32 bits, and then its bytes. A category is a
//! number of 32 bits for each row, -1 where there is none, and then the categories as text is. Lists are one offset more than
//! there are lists, and then their items as a column; structures are their fields, each as a column.

use std::{str::FromStr, sync::Arc};

use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, ListArray,
    NullArray, PrimitiveArray, StringArray, StructArray,
    timezone::Tz,
    types::{
        ArrowTimestampType, Date32Type, Decimal128Type, Decimal256Type, DecimalType, DurationMicrosecondType,
        DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Float64Type,
        Int8Type, Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
        TimestampMillisecondType, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{Field, Fields};
use serde::Deserialize;

use crate::{
    error::TableError,
    frame::{Column, NAME_BYTES_MAX, Rest},
};

const _: () = assert!(cfg!(target_endian = "little"), "buffers are taken as they are");

/// Digits of a decimal that has 16 bytes; others have 32.
const DECIMAL_DIGITS: u8 = 38;
/// Microseconds of a day.
const DAY: i64 = 86_400_000_000;
/// Bytes of a UUID.
const UUID: u8 = 16;

/// Numpy's value for `NaT`, a missing timestamp or duration.
pub(crate) const NOT_A_TIME: i64 = i64::MIN;

/// Type of a column's values.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Kind {
    /// No values at all; a byte each, which says so.
    Null,
    /// A byte each.
    Boolean,
    Integer {
        bits: u8,
        signed: bool,
    },
    Float {
        bits: u8,
    },
    /// Since 1970, with 64 bits; in UTC where there is a time zone.
    Timestamp {
        unit: Unit,
        zone: Option<String>,
    },
    /// With 64 bits.
    Duration {
        unit: Unit,
    },
    /// Days since 1970, with 32 bits.
    Date,
    /// Microseconds since midnight, with 64 bits.
    Time,
    /// Whole numbers of 16 bytes, of 32 from 39 digits on, which are multiples of a power of ten.
    Decimal {
        precision: u8,
        scale: i8,
    },
    /// 16 bytes each.
    Uuid,
    Text {
        bytes: u32,
    },
    Binary {
        bytes: u32,
    },
    /// Values of several types, each as a JSON text.
    Json {
        bytes: u32,
    },
    Category {
        count: u32,
        bytes: u32,
        ordered: bool,
    },
    /// Lists, which have so many items together.
    List {
        count: u32,
        item: Box<Item>,
    },
    /// Fields, each with its name.
    Struct {
        fields: Vec<Member>,
    },
}

/// Type of the items of lists.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    #[serde(default)]
    nullable: bool,
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
}

/// Name and type of a field of structures.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Member {
    name: String,
    #[serde(default)]
    nullable: bool,
    #[serde(rename = "type")]
    kind: Kind,
}

/// Unit of a time.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) enum Unit {
    #[serde(rename = "s")]
    Second,
    #[serde(rename = "ms")]
    Millisecond,
    #[serde(rename = "us")]
    Microsecond,
    #[serde(rename = "ns")]
    Nanosecond,
}

/// Takes a column from the bytes.
pub(crate) fn array(column: &Column, rows: u32, rest: &mut Rest<'_>) -> Result<ArrayRef, TableError> {
    Taking { column, rest }.values(&column.kind, column.nullable, rows)
}

struct Taking<'a, 'b> {
    column: &'a Column,
    rest: &'a mut Rest<'b>,
}

impl<'b> Taking<'_, 'b> {
    fn values(&mut self, kind: &Kind, nullable: bool, rows: u32) -> Result<ArrayRef, TableError> {
        let nulls = if nullable { Some(NullBuffer::new(self.flags(rows)?)) } else { None };
        self.array(kind, rows, nulls)
    }

    fn array(&mut self, kind: &Kind, rows: u32, nulls: Option<NullBuffer>) -> Result<ArrayRef, TableError> {
        Ok(match kind {
            Kind::Null => Arc::new(NullArray::new(self.take(rows.into())?.len())),
            Kind::Boolean => Arc::new(BooleanArray::new(self.flags(rows)?, nulls)),
            Kind::Integer { bits, signed } => match (signed, bits) {
                (true, 8) => Arc::new(self.numbers::<Int8Type>(rows, nulls)?),
                (true, 16) => Arc::new(self.numbers::<Int16Type>(rows, nulls)?),
                (true, 32) => Arc::new(self.numbers::<Int32Type>(rows, nulls)?),
                (true, 64) => Arc::new(self.numbers::<Int64Type>(rows, nulls)?),
                (false, 8) => Arc::new(self.numbers::<UInt8Type>(rows, nulls)?),
                (false, 16) => Arc::new(self.numbers::<UInt16Type>(rows, nulls)?),
                (false, 32) => Arc::new(self.numbers::<UInt32Type>(rows, nulls)?),
                (false, 64) => Arc::new(self.numbers::<UInt64Type>(rows, nulls)?),
                _ => return Err(self.fault("is of integers with a number of bits that there is not")),
            },
            Kind::Float { bits: 16 } => Arc::new(self.numbers::<Float16Type>(rows, nulls)?),
            Kind::Float { bits: 32 } => Arc::new(self.numbers::<Float32Type>(rows, nulls)?),
            Kind::Float { bits: 64 } => Arc::new(self.numbers::<Float64Type>(rows, nulls)?),
            Kind::Float { .. } => {
                return Err(self.fault("is of floating-point numbers with a number of bits that there is not"));
            }
            Kind::Timestamp { unit, zone } => {
                let zone = self.zone(zone.as_deref())?;
                match unit {
                    // The file has no such type.
                    Unit::Second => self.seconds(rows, nulls, zone)?,
                    Unit::Millisecond => self.moments::<TimestampMillisecondType>(rows, nulls, zone)?,
                    Unit::Microsecond => self.moments::<TimestampMicrosecondType>(rows, nulls, zone)?,
                    Unit::Nanosecond => self.moments::<TimestampNanosecondType>(rows, nulls, zone)?,
                }
            }
            Kind::Duration { unit } => match unit {
                Unit::Second => Arc::new(self.times::<DurationSecondType>(rows, nulls)?),
                Unit::Millisecond => Arc::new(self.times::<DurationMillisecondType>(rows, nulls)?),
                Unit::Microsecond => Arc::new(self.times::<DurationMicrosecondType>(rows, nulls)?),
                Unit::Nanosecond => Arc::new(self.times::<DurationNanosecondType>(rows, nulls)?),
            },
            Kind::Date => Arc::new(self.numbers::<Date32Type>(rows, nulls)?),
            Kind::Time => {
                let times = self.numbers::<Time64MicrosecondType>(rows, nulls)?;
                if !times.iter().flatten().all(|time| (0..DAY).contains(&time)) {
                    return Err(self.fault("has times that no day has"));
                }
                Arc::new(times)
            }
            Kind::Decimal { precision, scale } if *precision <= DECIMAL_DIGITS => {
                self.decimals::<Decimal128Type>(*precision, *scale, rows, nulls)?
            }
            Kind::Decimal { precision, scale } => self.decimals::<Decimal256Type>(*precision, *scale, rows, nulls)?,
            Kind::Uuid => {
                let bytes = Buffer::from(self.take(u64::from(rows).saturating_mul(UUID.into()))?);
                let ids = FixedSizeBinaryArray::try_new(UUID.into(), bytes, nulls);
                Arc::new(ids.map_err(|source| self.refused(source))?)
            }
            Kind::Text { bytes } | Kind::Json { bytes } => Arc::new(self.texts(rows, *bytes, nulls)?),
            Kind::Binary { bytes } => {
                let (offsets, values) = self.pieces(rows, *bytes)?;
                Arc::new(BinaryArray::try_new(offsets, values, nulls).map_err(|source| self.refused(source))?)
            }
            Kind::Category { count, bytes, .. } => self.categories(rows, *count, *bytes, nulls)?,
            Kind::List { count, item } => {
                let offsets = self.offsets(rows)?;
                let reason = "has offsets that do not rise from 0 to the end of its items";
                let offsets = self.risen(offsets, *count, reason)?;
                let items = self.values(&item.kind, item.nullable, *count)?;
                let field = Arc::new(Field::new("element", items.data_type().clone(), true));
                let lists = ListArray::try_new(field, offsets, items, nulls);
                Arc::new(lists.map_err(|source| self.refused(source))?)
            }
            Kind::Struct { fields } if fields.is_empty() => return Err(self.fault("has structures without fields")),
            Kind::Struct { fields } => {
                let member = |member: &Member| self.values(&member.kind, member.nullable, rows);
                let arrays = fields.iter().map(member).collect::<Result<Vec<_>, _>>()?;
                let named = fields.iter().zip(&arrays);
                let fields: Fields =
                    named.map(|(member, array)| Field::new(&member.name, array.data_type().clone(), true)).collect();
                Arc::new(StructArray::try_new(fields, arrays, nulls).map_err(|source| self.refused(source))?)
            }
        })
    }

    /// Whole numbers that are multiples of a power of ten.
    fn decimals<T: DecimalType>(
        &mut self,
        precision: u8,
        scale: i8,
        rows: u32,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, TableError> {
        if scale < 0 {
            return Err(self.fault("has decimals of whole powers of ten"));
        }
        let decimals = self.numbers::<T>(rows, nulls)?.with_precision_and_scale(precision, scale);
        let decimals = decimals.map_err(|source| self.refused(source))?;
        decimals.validate_decimal_precision(precision).map_err(|source| self.refused(source))?;
        Ok(Arc::new(decimals))
    }

    fn fault(&self, reason: &'static str) -> TableError {
        TableError::Column { column: self.column.name.clone(), reason }
    }

    fn refused(&self, source: arrow_schema::ArrowError) -> TableError {
        TableError::Values { column: self.column.name.clone(), source }
    }

    fn take(&mut self, bytes: u64) -> Result<&'b [u8], TableError> {
        let name = &self.column.name;
        self.rest.take(bytes, || format!("column `{name}`"))
    }

    /// A byte for each row.
    fn flags(&mut self, rows: u32) -> Result<BooleanBuffer, TableError> {
        let bytes = self.take(rows.into())?;
        Ok(BooleanBuffer::collect_bool(bytes.len(), |place| bytes[place] != 0))
    }

    /// Numbers of the width that their type has.
    fn buffer<T: ArrowPrimitiveType>(&mut self, rows: u32) -> Result<ScalarBuffer<T::Native>, TableError> {
        let bytes = self.take(u64::from(rows).saturating_mul(size_of::<T::Native>() as u64))?;
        // It is copied to where it is aligned.
        Ok(ScalarBuffer::from(Buffer::from(bytes)))
    }

    fn numbers<T: ArrowPrimitiveType>(
        &mut self,
        rows: u32,
        nulls: Option<NullBuffer>,
    ) -> Result<PrimitiveArray<T>, TableError> {
        let buffer = self.buffer::<T>(rows)?;
        PrimitiveArray::try_new(buffer, nulls).map_err(|source| self.refused(source))
    }

    /// Times, some of which are none.
    fn times<T: ArrowPrimitiveType<Native = i64>>(
        &mut self,
        rows: u32,
        nulls: Option<NullBuffer>,
    ) -> Result<PrimitiveArray<T>, TableError> {
        let buffer = self.buffer::<T>(rows)?;
        let there = BooleanBuffer::collect_bool(buffer.len(), |place| buffer[place] != NOT_A_TIME);
        let nulls = NullBuffer::union(nulls.as_ref(), Some(&NullBuffer::new(there)));
        PrimitiveArray::try_new(buffer, nulls).map_err(|source| self.refused(source))
    }

    fn moments<T: ArrowTimestampType>(
        &mut self,
        rows: u32,
        nulls: Option<NullBuffer>,
        zone: Option<Arc<str>>,
    ) -> Result<ArrayRef, TableError> {
        Ok(Arc::new(self.times::<T>(rows, nulls)?.with_timezone_opt(zone)))
    }

    /// Moments in seconds, as milliseconds.
    fn seconds(
        &mut self,
        rows: u32,
        nulls: Option<NullBuffer>,
        zone: Option<Arc<str>>,
    ) -> Result<ArrayRef, TableError> {
        let seconds = self.times::<DurationSecondType>(rows, nulls)?;
        let moments = seconds.try_unary::<_, TimestampMillisecondType, TableError>(|second| {
            second.checked_mul(1_000).ok_or_else(|| self.fault("has moments that are too far away"))
        })?;
        Ok(Arc::new(moments.with_timezone_opt(zone)))
    }

    fn zone(&self, name: Option<&str>) -> Result<Option<Arc<str>>, TableError> {
        let Some(name) = name else { return Ok(None) };
        if name.len() > NAME_BYTES_MAX {
            return Err(self.fault("is in a time zone whose name is too long"));
        }
        Tz::from_str(name).map_err(|source| self.refused(source))?;
        Ok(Some(name.into()))
    }

    /// Takes the offsets of the values, and the bytes of all values.
    fn pieces(&mut self, count: u32, bytes: u32) -> Result<(OffsetBuffer<i32>, Buffer), TableError> {
        let offsets = self.offsets(count)?;
        let values = Buffer::from(self.take(bytes.into())?);
        let reason = "has offsets that do not rise from 0 to the end of its bytes";
        Ok((self.risen(offsets, bytes, reason)?, values))
    }

    /// Offsets of so many values, and of the end.
    fn offsets(&mut self, count: u32) -> Result<ScalarBuffer<i32>, TableError> {
        let offsets = self.take(u64::from(count).saturating_add(1).saturating_mul(4))?;
        Ok(ScalarBuffer::from(Buffer::from(offsets)))
    }

    /// Checks that offsets rise from 0 to `end`.
    fn risen(
        &self,
        offsets: ScalarBuffer<i32>,
        end: u32,
        reason: &'static str,
    ) -> Result<OffsetBuffer<i32>, TableError> {
        let rises = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
        let last = offsets.last().and_then(|last| u32::try_from(*last).ok());
        if offsets.first() != Some(&0) || !rises || last != Some(end) {
            return Err(self.fault(reason));
        }
        Ok(OffsetBuffer::new(offsets))
    }

    fn texts(&mut self, count: u32, bytes: u32, nulls: Option<NullBuffer>) -> Result<StringArray, TableError> {
        let (offsets, values) = self.pieces(count, bytes)?;
        StringArray::try_new(offsets, values, nulls).map_err(|source| self.refused(source))
    }

    fn categories(
        &mut self,
        rows: u32,
        count: u32,
        bytes: u32,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, TableError> {
        let codes = self.buffer::<Int32Type>(rows)?;
        let there = BooleanBuffer::collect_bool(codes.len(), |place| codes[place] != -1);
        let nulls = NullBuffer::union(nulls.as_ref(), Some(&NullBuffer::new(there)));
        let names = self.texts(count, bytes, None)?;
        let codes = PrimitiveArray::<Int32Type>::try_new(codes, nulls).map_err(|source| self.refused(source))?;
        let categories = DictionaryArray::try_new(codes, Arc::new(names)).map_err(|source| self.refused(source))?;
        Ok(Arc::new(categories))
    }
}
