//! Values in PostgreSQL's binary format.
//!
//! The formats are those of the functions `…send` and `…recv` in PostgreSQL's sources (`src/backend/utils/adt`).

use std::ops::Range;

use bytes::BytesMut;
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use serde_json::Value as Json;
use tokio_postgres::types::{Kind, Type};

use super::put;
use crate::{
    rows::{ColumnKind, DAY_MICROS, Value, clock, json},
    tool::as_text,
};

/// Days and microseconds from 1970 to 2000, from which PostgreSQL counts.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = 946_684_800_000_000;
const A_SECOND: i64 = 1_000_000;
/// Days since 1970 of the years 1 to 9999, which readers of dates have.
const PLAIN_DAYS: Range<i64> = -719_162..2_932_897;
/// Maximum number of dimensions of an array.
const DIMENSIONS_MAX: i32 = 6;

/// Returns the kind of a column of this type. Returns `None` for types without one, such as ranges, which are fetched as
/// text.
pub(super) fn kind(of: &Type) -> Option<ColumnKind> {
    Some(match *of {
        Type::BOOL => ColumnKind::Boolean,
        Type::INT2 => ColumnKind::Int16,
        Type::INT4 => ColumnKind::Int32,
        Type::INT8 | Type::OID => ColumnKind::Int64,
        Type::FLOAT4 => ColumnKind::Float32,
        Type::FLOAT8 => ColumnKind::Float64,
        Type::NUMERIC | Type::MONEY => ColumnKind::Decimal,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::CHAR | Type::XML => {
            ColumnKind::Text
        }
        Type::UUID | Type::INET | Type::CIDR | Type::MACADDR | Type::INTERVAL | Type::TIMETZ | Type::VOID => {
            ColumnKind::Text
        }
        Type::BYTEA => ColumnKind::Binary,
        Type::DATE => ColumnKind::Date,
        Type::TIME => ColumnKind::Time,
        Type::TIMESTAMP => ColumnKind::Timestamp(None),
        Type::TIMESTAMPTZ => ColumnKind::Timestamp(Some("UTC")),
        Type::JSON | Type::JSONB => ColumnKind::Json,
        _ => match of.kind() {
            Kind::Enum(_) => ColumnKind::Text,
            Kind::Domain(inner) => return kind(inner),
            Kind::Array(item) => match kind(item)? {
                // JSON has no words for these, or other ones.
                ColumnKind::Decimal => ColumnKind::List(&ColumnKind::Decimal),
                ColumnKind::Float32 => ColumnKind::List(&ColumnKind::Float32),
                ColumnKind::Float64 => ColumnKind::List(&ColumnKind::Float64),
                ColumnKind::Binary => ColumnKind::List(&ColumnKind::Binary),
                ColumnKind::Date => ColumnKind::List(&ColumnKind::Date),
                ColumnKind::Time => ColumnKind::List(&ColumnKind::Time),
                ColumnKind::Timestamp(None) => ColumnKind::List(&ColumnKind::Timestamp(None)),
                ColumnKind::Timestamp(Some(_)) => ColumnKind::List(&ColumnKind::Timestamp(Some("UTC"))),
                _ => ColumnKind::Json,
            },
            _ if matches!(of.name(), "citext" | "ltree" | "regclass") => ColumnKind::Text,
            _ => return None,
        },
    })
}

/// A value that is sent as JSON.
fn json_of(text: &[u8]) -> Result<Value, String> {
    crate::json::read("a value", text).map(Value::Json).map_err(|error| error.message)
}

/// Decodes a value. The error describes an invalid value in words.
pub(super) fn value(of: &Type, raw: Option<&[u8]>) -> Result<Value, String> {
    let Some(raw) = raw else { return Ok(Value::Null) };
    if let Kind::Domain(inner) = of.kind() {
        return value(inner, Some(raw));
    }
    let broken = || format!("the database sent a `{}` that is none", of.name());
    let mut rest = Reader(raw);
    let found = match *of {
        Type::BOOL => rest.u8().map(|byte| Value::Boolean(byte != 0)),
        Type::INT2 => rest.i16().map(|number| Value::Integer(number.into())),
        Type::INT4 => rest.i32().map(|number| Value::Integer(number.into())),
        Type::INT8 => rest.i64().map(Value::Integer),
        Type::OID => rest.i32().map(|number| Value::Integer(i64::from(number.cast_unsigned()))),
        Type::FLOAT4 => rest.i32().map(|bits| Value::Float(f32::from_bits(bits.cast_unsigned()).into())),
        Type::FLOAT8 => rest.i64().map(|bits| Value::Float(f64::from_bits(bits.cast_unsigned()))),
        Type::NUMERIC => {
            return numeric(&mut rest).ok_or_else(broken);
        }
        Type::MONEY => rest.i64().map(|cents| Value::Decimal(cents.into(), 2)),
        Type::BYTEA => Some(Value::Binary(raw.to_vec())),
        // The ends of the calendar stand for no end.
        Type::DATE => rest.i32().map(|day| match day {
            i32::MIN => Value::Text("-infinity".to_owned()),
            i32::MAX => Value::Text("infinity".to_owned()),
            day => match i64::from(day).saturating_add(EPOCH_DAYS.into()) {
                days if PLAIN_DAYS.contains(&days) => Value::Date(day.saturating_add(EPOCH_DAYS)),
                days => Value::Text(far_day(days, "")),
            },
        }),
        Type::TIME => rest.i64().map(|micros| match micros {
            DAY_MICROS => Value::Text("24:00:00".to_owned()),
            micros => Value::Time(micros),
        }),
        Type::TIMESTAMP | Type::TIMESTAMPTZ => rest.i64().map(|moment| match moment {
            i64::MIN => Value::Text("-infinity".to_owned()),
            i64::MAX => Value::Text("infinity".to_owned()),
            moment => {
                let moment = moment.saturating_add(EPOCH_MICROS);
                match moment.div_euclid(DAY_MICROS) {
                    days if PLAIN_DAYS.contains(&days) => Value::Timestamp(moment),
                    days => {
                        let zone = if *of == Type::TIMESTAMPTZ { "+00" } else { "" };
                        Value::Text(far_day(days, &format!(" {}{zone}", clock(moment.rem_euclid(DAY_MICROS)))))
                    }
                }
            }
        }),
        Type::JSON => return json_of(raw),
        // Its first byte is its version.
        Type::JSONB => return json_of(raw.get(1..).unwrap_or_default()),
        Type::UUID => uuid(raw).map(Value::Text),
        Type::INET | Type::CIDR => address(&mut rest).map(Value::Text),
        Type::MACADDR => Some(Value::Text(raw.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))),
        Type::INTERVAL => interval(&mut rest).map(Value::Text),
        Type::TIMETZ => time_with_zone(&mut rest).map(Value::Text),
        _ => match of.kind() {
            Kind::Array(item) => {
                let list = array(item, &mut rest)?.ok_or_else(broken)?;
                return Ok(if matches!(kind(of), Some(ColumnKind::List(_))) { list } else { Value::Json(json(list)) });
            }
            _ => Some(Value::Text(String::from_utf8_lossy(raw).into_owned())),
        },
    };
    found.ok_or_else(broken)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn i16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn i32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn i64(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// Formats a day outside of [`PLAIN_DAYS`] as PostgreSQL does, followed by `behind`.
#[allow(clippy::arithmetic_side_effects, reason = "days have 32 bits, or are moments of 64 bits divided")]
fn far_day(days: i64, behind: &str) -> String {
    // The calendar in eras of 400 years, each of which begins in March; see Hinnant, "chrono-compatible low-level date algorithms".
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (shown, before) = if year < 1 { (1 - year, " BC") } else { (year, "") };
    format!("{shown:04}-{month:02}-{day:02}{behind}{before}")
}

/// Decodes groups of four digits, of which the first stands `weight` groups before the point. A value that is no decimal,
/// or has more than 38 digits, becomes text.
fn numeric(rest: &mut Reader<'_>) -> Option<Value> {
    let (count, weight, sign, scale) = (rest.i16()?, rest.i16()?, rest.i16()?.cast_unsigned(), rest.i16()?);
    let word = match sign {
        0xc000 => Some("NaN"),
        0xd000 => Some("Infinity"),
        0xf000 => Some("-Infinity"),
        _ => None,
    };
    if let Some(word) = word {
        return Some(Value::Text(word.to_owned()));
    }
    let (mut again, is_negative) = (Reader(rest.0), sign == 0x4000);
    let mut digits = Some(0_i128);
    for _ in 0..count {
        let group = rest.i16()?;
        digits = digits.and_then(|digits| digits.checked_mul(10_000)?.checked_add(group.into()));
    }
    let behind = i32::from(count).saturating_sub(1).saturating_sub(weight.into()).saturating_mul(4);
    let decimal = digits.zip(u8::try_from(scale).ok()).and_then(|(digits, scale)| {
        let digits = if is_negative { digits.checked_neg()? } else { digits };
        let missing = i32::from(scale).saturating_sub(behind);
        let power = 10_i128.checked_pow(missing.unsigned_abs())?;
        let digits = if missing >= 0 { digits.checked_mul(power)? } else { digits.checked_div(power)? };
        (digits.unsigned_abs() < 10_u128.pow(38)).then_some(Value::Decimal(digits, scale))
    });
    if decimal.is_some() {
        return decimal;
    }
    let groups = (0..count).map(|_| again.i16()).collect::<Option<Vec<_>>>()?;
    Some(Value::Text(long(&groups, weight.into(), is_negative, scale.into())))
}

/// A number of any length.
fn long(groups: &[i16], weight: i32, is_negative: bool, scale: i32) -> String {
    let group = |place: i32| usize::try_from(place).ok().and_then(|place| groups.get(place)).copied().unwrap_or(0);
    let whole: String =
        (0..=weight.max(0)).map(|place| format!("{:04}", group(place.saturating_sub(weight.min(0))))).collect();
    let whole = if weight < 0 { "" } else { whole.trim_start_matches('0') };
    let scale = usize::try_from(scale).unwrap_or_default();
    let first = weight.saturating_add(1);
    let count = i32::try_from(scale.div_ceil(4)).unwrap_or(i32::MAX);
    let mut behind: String = (0..count).map(|place| format!("{:04}", group(first.saturating_add(place)))).collect();
    behind.truncate(scale);
    let sign = if is_negative { "-" } else { "" };
    let point = if scale == 0 { "" } else { "." };
    format!("{sign}{}{point}{behind}", if whole.is_empty() { "0" } else { whole })
}

fn uuid(raw: &[u8]) -> Option<String> {
    let hex: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
    (hex.len() == 32).then(|| [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

fn address(rest: &mut Reader<'_>) -> Option<String> {
    let (family, bits, is_network, length) = (rest.u8()?, rest.u8()?, rest.u8()?, rest.u8()?);
    let bytes = rest.take(length.into())?;
    let (address, whole) = match family {
        2 => (std::net::IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?), 32),
        _ => (std::net::IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?), 128),
    };
    Some(if is_network == 0 && bits == whole { address.to_string() } else { format!("{address}/{bits}") })
}

/// As ISO 8601 has it: `P1Y2M3DT4H5M6.5S`.
fn interval(rest: &mut Reader<'_>) -> Option<String> {
    let (micros, days, months) = (rest.i64()?, rest.i32()?, rest.i32()?);
    let mut text = "P".to_owned();
    let mut add = |count: i64, unit: char| {
        if count != 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    };
    add((months / 12).into(), 'Y');
    add((months % 12).into(), 'M');
    add(days.into(), 'D');
    if micros != 0 {
        text.push('T');
        let (hours, minutes) = (micros / (3_600 * A_SECOND), micros / (60 * A_SECOND) % 60);
        let mut add = |count: i64, unit: char| {
            if count != 0 {
                text.push_str(&format!("{count}{unit}"));
            }
        };
        add(hours, 'H');
        add(minutes, 'M');
        let seconds = micros % (60 * A_SECOND);
        if seconds != 0 {
            let sign = if seconds < 0 { "-" } else { "" };
            let whole = seconds.abs() / A_SECOND;
            let rest = format!("{:06}", seconds.abs() % A_SECOND);
            let rest = rest.trim_end_matches('0');
            let point = if rest.is_empty() { "" } else { "." };
            text.push_str(&format!("{sign}{whole}{point}{rest}S"));
        }
    }
    Some(if text == "P" { "PT0S".to_owned() } else { text })
}

fn time_with_zone(rest: &mut Reader<'_>) -> Option<String> {
    let (micros, west) = (rest.i64()?, rest.i32()?);
    let (seconds, sub) = (micros / A_SECOND, micros % A_SECOND);
    let east = west.checked_neg()?;
    let sign = if east < 0 { '-' } else { '+' };
    let east = east.unsigned_abs();
    let sub = if sub == 0 { String::new() } else { format!(".{sub:06}") };
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    Some(format!("{hours:02}:{minutes:02}:{seconds:02}{sub}{sign}{:02}:{:02}", east / 3_600, east / 60 % 60))
}

/// Decodes an array, including nested ones.
fn array(item: &Type, rest: &mut Reader<'_>) -> Result<Option<Value>, String> {
    let header = |rest: &mut Reader<'_>| {
        let dimensions = rest.i32()?;
        rest.i32()?;
        rest.i32()?;
        if !(0..=DIMENSIONS_MAX).contains(&dimensions) {
            return None;
        }
        let mut sizes = Vec::new();
        for _ in 0..dimensions {
            sizes.push(usize::try_from(rest.i32()?).ok()?);
            rest.i32()?;
        }
        Some(sizes)
    };
    let Some(sizes) = header(rest) else { return Ok(None) };
    if sizes.is_empty() {
        return Ok(Some(Value::List(Vec::new())));
    }
    items(item, &sizes, rest)
}

fn items(item: &Type, sizes: &[usize], rest: &mut Reader<'_>) -> Result<Option<Value>, String> {
    let Some((count, inner)) = sizes.split_first() else {
        let Some(length) = rest.i32() else { return Ok(None) };
        let Ok(length) = usize::try_from(length) else { return Ok(Some(Value::Null)) };
        let Some(raw) = rest.take(length) else { return Ok(None) };
        return value(item, Some(raw)).map(Some);
    };
    let mut list = Vec::new();
    for _ in 0..*count {
        let Some(one) = items(item, inner, rest)? else { return Ok(None) };
        list.push(one);
    }
    Ok(Some(Value::List(list)))
}

/// Returns true if values of this type are sent and received as plain text.
fn is_text(of: &Type) -> bool {
    let known = [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME, Type::UNKNOWN, Type::CHAR, Type::XML];
    known.contains(of) || matches!(of.kind(), Kind::Enum(_)) || of.name() == "citext"
}

type Refusal = Box<dyn std::error::Error + Sync + Send>;

/// Writes an argument as a parameter of this type takes it.
pub(super) fn write(of: &Type, value: &Json, out: &mut BytesMut) -> Result<(), Refusal> {
    if let Kind::Domain(inner) = of.kind() {
        return write(inner, value, out);
    }
    if let (Kind::Array(item), Json::Array(items)) = (of.kind(), value) {
        return write_array(item, items, out);
    }
    let unfit = || Refusal::from(format!("{value} is no `{}`", of.name()));
    let integer = || value.as_i64().or_else(|| value.as_str()?.parse().ok()).ok_or_else(unfit);
    let float = || value.as_f64().or_else(|| value.as_str()?.parse().ok()).ok_or_else(unfit);
    let text = as_text(value);
    let moment = || {
        let zoned = DateTime::parse_from_rfc3339(&text).map(|moment| moment.timestamp_micros());
        let formats = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
        let local = || formats.iter().find_map(|format| NaiveDateTime::parse_from_str(&text, format).ok());
        let day = || NaiveDate::parse_from_str(&text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0);
        zoned.ok().or_else(|| Some(local().or_else(day)?.and_utc().timestamp_micros())).ok_or_else(unfit)
    };
    match *of {
        Type::BOOL => put(out, &[u8::from(value.as_bool().ok_or_else(unfit)?)]),
        Type::INT2 => put(out, &i16::try_from(integer()?).map_err(|_| unfit())?.to_be_bytes()),
        Type::INT4 => put(out, &i32::try_from(integer()?).map_err(|_| unfit())?.to_be_bytes()),
        Type::INT8 => put(out, &integer()?.to_be_bytes()),
        #[allow(clippy::cast_possible_truncation, reason = "the parameter has as many bits")]
        Type::FLOAT4 => put(out, &(float()? as f32).to_be_bytes()),
        Type::FLOAT8 => put(out, &float()?.to_be_bytes()),
        Type::NUMERIC => put(out, &numeric_bytes(&text).ok_or_else(unfit)?),
        Type::DATE => {
            let micros = moment()?;
            let day = i32::try_from(micros.div_euclid(86_400 * A_SECOND)).map_err(|_| unfit())?;
            put(out, &day.saturating_sub(EPOCH_DAYS).to_be_bytes());
        }
        Type::TIMESTAMP | Type::TIMESTAMPTZ => put(out, &moment()?.saturating_sub(EPOCH_MICROS).to_be_bytes()),
        Type::JSON => put(out, value.to_string().as_bytes()),
        Type::JSONB => {
            put(out, &[1]);
            put(out, value.to_string().as_bytes());
        }
        Type::UUID => {
            let hex: String = text.chars().filter(|c| *c != '-').collect();
            let byte =
                |place: usize| hex.get(place..place.checked_add(2)?).and_then(|pair| u8::from_str_radix(pair, 16).ok());
            let bytes: Option<Vec<u8>> = (0..32).step_by(2).map(byte).collect();
            put(out, &bytes.filter(|_| hex.len() == 32).ok_or_else(unfit)?);
        }
        _ if is_text(of) => put(out, text.as_bytes()),
        _ => {
            return Err(format!(
                "a parameter of the type `{0}` takes no argument here: write `:name::text::{0}`",
                of.name()
            )
            .into());
        }
    }
    Ok(())
}

/// An array of one dimension.
fn write_array(item: &Type, items: &[Json], out: &mut BytesMut) -> Result<(), Refusal> {
    let count = i32::try_from(items.len()).map_err(|_| Refusal::from("the list is too long"))?;
    put(out, &i32::from(count > 0).to_be_bytes());
    put(out, &i32::from(items.iter().any(Json::is_null)).to_be_bytes());
    put(out, &item.oid().to_be_bytes());
    if count > 0 {
        put(out, &count.to_be_bytes());
        put(out, &1_i32.to_be_bytes());
    }
    for value in items {
        if value.is_null() {
            put(out, &(-1_i32).to_be_bytes());
            continue;
        }
        let mut bytes = BytesMut::new();
        write(item, value, &mut bytes)?;
        put(out, &i32::try_from(bytes.len()).map_err(|_| Refusal::from("a value is too long"))?.to_be_bytes());
        put(out, &bytes);
    }
    Ok(())
}

/// A decimal number in groups of four digits.
fn numeric_bytes(text: &str) -> Option<Vec<u8>> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (0x4000_u16, digits),
        None => (0, text),
    };
    let (digits, exponent) = match digits.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok().filter(|exponent| exponent.abs() < 400)?),
        None => (digits, 0),
    };
    let (whole, behind) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{behind}");
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Where the point stands in all digits; then zeros, so that groups begin there.
    let point = i32::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let before = point.rem_euclid(4);
    let before = 4_i32.saturating_sub(before).rem_euclid(4);
    let mut padded = "0".repeat(usize::try_from(before).ok()?);
    padded.push_str(&all);
    while !padded.len().is_multiple_of(4) {
        padded.push('0');
    }
    let weight = (point.checked_add(before)? / 4).checked_sub(1)?;
    let scale = i32::try_from(all.len()).ok()?.checked_sub(point)?.max(0);
    let groups: Vec<i16> =
        padded.as_bytes().chunks(4).map(|group| str::from_utf8(group).ok()?.parse().ok()).collect::<Option<_>>()?;
    let mut bytes = Vec::new();
    bytes.extend(i16::try_from(groups.len()).ok()?.to_be_bytes());
    bytes.extend(i16::try_from(weight).ok()?.to_be_bytes());
    bytes.extend(sign.to_be_bytes());
    bytes.extend(i16::try_from(scale).ok()?.to_be_bytes());
    groups.into_iter().for_each(|group| bytes.extend(group.to_be_bytes()));
    Some(bytes)
}
