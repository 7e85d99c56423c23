//! Forms of a limit that all follow from its declaration: a field, a setting, a number in JSON, a row of the manual.

use std::{ops::RangeInclusive, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serializer;

use super::{LIMITS, LimitSettings, Limits};

/// Unit of a limit's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// 1,048,576 bytes.
    Mib,
    /// Number of things.
    Count,
}

impl Unit {
    /// Milliseconds, bytes or things in one of these.
    pub(super) const fn scale(self) -> u64 {
        match self {
            Unit::Seconds => 1_000,
            Unit::Milliseconds | Unit::Count => 1,
            Unit::Mib => 1 << 20,
        }
    }

    /// Milliseconds, bytes or things in one step of a setting: times are set in milliseconds, whatever the unit of their key.
    const fn step(self) -> u64 {
        match self {
            Unit::Seconds => 1,
            unit => unit.scale(),
        }
    }

    /// Steps of a setting in one of these.
    pub(super) const fn steps(self) -> u64 {
        match self {
            Unit::Seconds => 1_000,
            _ => 1,
        }
    }

    /// Symbol of the unit; empty for a count.
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Milliseconds => "ms",
            Unit::Mib => "MiB",
            Unit::Count => "",
        }
    }
}

/// Declaration of a limit.
#[derive(Debug)]
pub struct Limit {
    /// Key in `cellar.toml` and in the grants of a request.
    pub key: &'static str,
    /// Field of [`Limits`].
    pub field: &'static str,
    /// Unit of its settings.
    pub unit: Unit,
    /// Range of its settings, in steps: milliseconds for times.
    pub range: RangeInclusive<u64>,
    /// Setting in force unless another one is made, in its unit; `None` is unlimited.
    pub default: Option<u64>,
    /// Flag of the command line, without its dashes.
    pub flag: Option<&'static str>,
    /// Meaning, in a few words and without a full stop.
    pub meaning: &'static str,
    /// Reason for its default or its range, as a sentence.
    pub reason: &'static str,
    /// Field as it is written in JSON.
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
    /// It may be unlimited.
    pub(super) is_optional: bool,
    /// It is a time, counted in milliseconds.
    pub(super) is_time: bool,
    pub(super) setting: fn(&LimitSettings) -> Option<u64>,
    pub(super) setting_mut: fn(&mut LimitSettings) -> &mut Option<u64>,
    pub(super) number: fn(&Limits) -> Option<u64>,
    pub(super) put: fn(&mut Limits, Option<u64>),
}

impl Limit {
    /// Value in steps of the settings, rounded down; `None` is unlimited.
    pub fn value(&self, limits: &Limits) -> Option<u64> {
        (self.number)(limits).map(|number| number.checked_div(self.unit.step()).unwrap_or(number))
    }

    /// So many steps as a number in the unit of the key: whole where they are.
    pub fn in_unit(&self, value: u64) -> serde_json::Number {
        let steps = self.unit.steps();
        let whole = value.checked_div(steps).unwrap_or(value);
        let rest = value.saturating_sub(whole.saturating_mul(steps));
        let fraction = (rest != 0).then(|| serde_json::Number::from_f64(value as f64 / steps as f64));
        fraction.flatten().unwrap_or_else(|| whole.into())
    }

    /// Setting that a number in the unit of the key makes, if it is within the range. Times may have fractions.
    pub fn setting_of(&self, number: f64) -> Option<u64> {
        let steps = number * self.unit.steps() as f64;
        let is_whole = self.unit == Unit::Seconds || number.fract() == 0.0;
        // Beyond this not every integer has a floating-point number of its own.
        let is_exact = (0.0..=9_007_199_254_740_992.0).contains(&steps);
        (is_whole && is_exact).then(|| steps.round() as u64).filter(|steps| self.range.contains(steps))
    }

    /// Sets the value, which is in milliseconds, bytes or things.
    pub fn set(&self, limits: &mut Limits, number: u64) {
        (self.put)(limits, Some(number));
    }

    /// Setting, if there is one.
    pub fn setting(&self, settings: &LimitSettings) -> Option<u64> {
        (self.setting)(settings)
    }

    /// Place of the setting.
    pub fn setting_mut<'a>(&self, settings: &'a mut LimitSettings) -> &'a mut Option<u64> {
        (self.setting_mut)(settings)
    }

    /// Range in words: `1 to 600`, or `from 1` where nothing but the type bounds it.
    pub fn range_in_words(&self) -> String {
        let least = self.in_unit(*self.range.start());
        match self.range.end() {
            &u64::MAX => format!("from {least}"),
            most => format!("{least} to {}", self.in_unit(*most)),
        }
    }

    /// A value in words, with the unit: `30 s`, `unlimited`.
    pub fn in_words(&self, value: Option<u64>) -> String {
        let number = |value| format!("{} {}", self.in_unit(value), self.unit.symbol());
        let words = value.map_or("unlimited".to_owned(), number);
        words.trim_end().to_owned()
    }
}

impl LimitSettings {
    /// Limits with these settings, and the defaults for the rest.
    pub fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for limit in LIMITS {
            if let Some(value) = limit.setting(self) {
                limit.set(&mut limits, value.saturating_mul(limit.unit.step()));
            }
        }
        limits
    }

    /// These settings, and those of `others` for what is not set.
    #[must_use]
    pub fn or(mut self, others: &LimitSettings) -> LimitSettings {
        for limit in LIMITS {
            let setting = limit.setting_mut(&mut self);
            *setting = setting.or(limit.setting(others));
        }
        self
    }
}

/// Type of a field of [`Limits`], as a number of milliseconds, bytes or things.
pub(super) trait Value: Sized {
    /// Type of the number in JSON.
    type Json: JsonSchema;
    const IS_OPTIONAL: bool = false;
    const IS_TIME: bool = false;

    /// `None` for what is unlimited.
    fn number(&self) -> Option<u64>;

    /// The largest value for a number that is larger. `None` makes the largest value of a type that always has a limit.
    fn of(number: Option<u64>) -> Self;
}

impl Value for Duration {
    type Json = u64;
    const IS_TIME: bool = true;

    fn number(&self) -> Option<u64> {
        Some(u64::try_from(self.as_millis()).unwrap_or(u64::MAX))
    }

    fn of(number: Option<u64>) -> Duration {
        Duration::from_millis(number.unwrap_or(u64::MAX))
    }
}

impl Value for Option<u64> {
    type Json = Option<u64>;
    const IS_OPTIONAL: bool = true;

    fn number(&self) -> Option<u64> {
        *self
    }

    fn of(number: Option<u64>) -> Option<u64> {
        number
    }
}

macro_rules! integers {
    ($($type:ty),+) => { $(
        impl Value for $type {
            type Json = $type;

            fn number(&self) -> Option<u64> {
                Some(u64::try_from(*self).unwrap_or(u64::MAX))
            }

            fn of(number: Option<u64>) -> $type {
                number.and_then(|number| <$type>::try_from(number).ok()).unwrap_or(<$type>::MAX)
            }
        }
    )+ };
}

integers!(u64, usize, u32);

/// Makes [`Limits`], [`LimitSettings`] and [`LIMITS`] of one table. Each row has its meaning and its reason, a line each; the
/// field and its type; the key; the unit, the range and the default of its settings; and the flag, if it has one.
macro_rules! limits {
    ($(
        #[doc = $meaning:literal]
        #[doc = $reason:literal]
        $field:ident: $type:ty {
            $key:ident: $unit:ident, $range:expr, $default:expr $(, --$flag:ident)?
        }
    )+) => {
        /// Limits of a cell, its kernel and its session. A cell may tighten `timeout`; nothing widens.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Limits {
            $( #[doc = concat!($meaning, ".")] #[doc = ""] #[doc = $reason] pub $field: $type, )+
        }

        impl Default for Limits {
            fn default() -> Limits {
                let scaled = |unit: Unit, default: Option<u64>| default.map(|value| value.saturating_mul(unit.scale()));
                Limits { $( $field: Value::of(scaled(Unit::$unit, $default)), )+ }
            }
        }

        /// Limits as a `cellar.toml`, a request or a command line sets them: times in milliseconds, the others in the unit of
        /// their key. What is absent keeps its default.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct LimitSettings {
            $( #[doc = concat!($meaning, ".")] pub $key: Option<u64>, )+
        }

        /// Declarations of all limits, in the order of every form.
        pub static LIMITS: &[Limit] = &[ $( Limit {
            key: stringify!($key),
            field: stringify!($field),
            unit: Unit::$unit,
            range: $range,
            default: $default,
            flag: limits!(@flag $($flag)?),
            meaning: $meaning.trim_ascii(),
            reason: $reason.trim_ascii(),
            schema: SchemaGenerator::subschema_for::<<$type as Value>::Json>,
            is_optional: <$type as Value>::IS_OPTIONAL,
            is_time: <$type as Value>::IS_TIME,
            setting: |settings| settings.$key,
            setting_mut: |settings| &mut settings.$key,
            number: |limits| limits.$field.number(),
            put: |limits, number| limits.$field = Value::of(number),
        }, )+ ];
    };
    (@flag $flag:ident) => { Some(stringify!($flag)) };
    (@flag) => { None };
}

pub(super) use limits;

/// Form of limits in JSON. Members are in camel case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Fields in milliseconds, bytes and things; what is unlimited is absent.
    Exact,
    /// Keys and their units; what is unlimited is null.
    Settings,
}

impl Form {
    fn member(self, limit: &Limit) -> String {
        let name = if self == Form::Settings { limit.key } else { limit.field };
        let suffix = if self == Form::Exact && limit.is_time { "_ms" } else { "" };
        let mut words = name.split('_').chain(suffix.split('_')).filter(|word| !word.is_empty());
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |name, word| {
            let (initial, rest) = word.split_at_checked(1).unwrap_or((word, ""));
            name + &initial.to_ascii_uppercase() + rest
        })
    }

    fn number(self, limit: &Limit, limits: &Limits) -> Option<serde_json::Number> {
        match self {
            Form::Settings => limit.value(limits).map(|value| limit.in_unit(value)),
            Form::Exact => (limit.number)(limits).map(Into::into),
        }
    }

    fn serialize<S: Serializer>(self, limits: &Limits, serializer: S) -> Result<S::Ok, S::Error> {
        let members = LIMITS.iter().map(|limit| (self.member(limit), self.number(limit, limits)));
        serializer.collect_map(members.filter(|(_, number)| self == Form::Settings || number.is_some()))
    }

    fn schema(self, generator: &mut SchemaGenerator) -> Schema {
        let mut properties = serde_json::Map::new();
        let mut required = Vec::new();
        for limit in LIMITS {
            let member = self.member(limit);
            let mut schema = (limit.schema)(generator);
            if self == Form::Settings && limit.unit == Unit::Seconds {
                schema = schemars::json_schema!({"type": "number", "minimum": 0});
            }
            if self == Form::Exact {
                let absent = if limit.is_optional { "; absent when they are not counted" } else { "" };
                schema.insert("description".to_owned(), format!("{}{absent}.", limit.meaning).into());
            }
            if self == Form::Settings || !limit.is_optional {
                required.push(member.clone());
            }
            properties.insert(member, schema.into());
        }
        let mut schema = schemars::json_schema!({"type": "object", "properties": properties, "required": required});
        if self == Form::Exact {
            schema.insert("description".to_owned(), "Bounds of a session.".into());
        }
        schema
    }
}

/// Limits in the audit log: times in milliseconds, sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitGrants(pub Limits);

/// Limits in the report of `cellar doctor`: settings in the units of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsJson(pub Limits);

macro_rules! json {
    ($($type:ident: $form:ident),+) => { $(
        impl serde::Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                Form::$form.serialize(&self.0, serializer)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                Form::$form.schema(generator)
            }
        }
    )+ };
}

json!(LimitGrants: Exact, LimitsJson: Settings);

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// With `CELLAR_BLESS=1` the table is rewritten.
    #[test]
    fn the_manual_has_the_declared_limits() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/README.md");
        let page = fs::read_to_string(&path).expect("the manual");
        let (_, rest) = page.split_once("**`[limits]`**\n\n").expect("the table of limits");
        let (found, _) = rest.split_once("\n\n").expect("what follows");
        let mut table = "| key | meaning | range | default |\n|---|---|---|---|".to_owned();
        for limit in LIMITS {
            let unit =
                if limit.unit.symbol().is_empty() { String::new() } else { format!(", in {}", limit.unit.symbol()) };
            let default = limit.default.map_or("unlimited".to_owned(), |default| default.to_string());
            let flag = limit.flag.map(|flag| format!("; `--{flag}`")).unwrap_or_default();
            let Limit { key, meaning, reason, .. } = limit;
            table +=
                &format!("\n| `{key}` | {meaning}{unit}{flag}. {reason} | {} | {default} |", limit.range_in_words());
        }
        if std::env::var_os("CELLAR_BLESS").is_some() {
            fs::write(&path, page.replace(found, &table)).expect("written");
        } else {
            assert_eq!(found, table, "`make bless` accepts it");
        }
    }

    #[test]
    fn every_default_is_within_its_range() {
        for limit in LIMITS {
            let default = limit.default.map(|default| default.saturating_mul(limit.unit.steps()));
            assert!(default.is_none_or(|default| limit.range.contains(&default)), "{}", limit.key);
            assert_eq!(limit.value(&Limits::default()), default, "{}", limit.key);
        }
    }

    #[test]
    fn times_may_have_fractions_and_nothing_else() {
        let of = |key: &str, number| LIMITS.iter().find(|limit| limit.key == key).expect(key).setting_of(number);
        assert_eq!([of("timeout", 1.5), of("timeout", 0.1), of("timeout", 600.0)], [1_500, 100, 600_000].map(Some));
        let refused = [of("timeout", 0.05), of("timeout", 600.5), of("timeout", f64::NAN), of("memory_mib", 64.5)];
        assert_eq!(refused, [None; 4]);
        let timeout = &LIMITS[0];
        assert_eq!([timeout.in_words(Some(1_500)), timeout.in_words(Some(30_000))], ["1.5 s", "30 s"]);
    }

    #[test]
    fn settings_are_times_in_milliseconds_and_other_numbers_in_the_units_of_their_keys() {
        let flags = LimitSettings { timeout: Some(5_000), ..LimitSettings::default() };
        let file = LimitSettings {
            timeout: Some(7_000),
            grace_ms: Some(20),
            memory_mib: Some(64),
            ..LimitSettings::default()
        };
        let limits = flags.or(&file).limits();
        assert_eq!((limits.timeout, limits.grace), (Duration::from_secs(5), Duration::from_millis(20)));
        assert_eq!((limits.memory_bytes, limits.fuel), (64 << 20, None));
        assert_eq!(limits.disk_bytes, Limits::default().disk_bytes);
    }
}
