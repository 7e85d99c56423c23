//! Flags of limits, as limits are declared.

use cellar_engine::limits::{LIMITS, Limit, LimitSettings, Unit};
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// Limits that were typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitArguments(pub(crate) LimitSettings);

impl LimitArguments {
    /// Flags, without their dashes, and the numbers that were given to them.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        flags().filter_map(|(limit, flag)| Some((flag, limit.in_unit(limit.setting(&self.0)?).to_string())))
    }
}

impl FromArgMatches for LimitArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<LimitArguments, Error> {
        let mut arguments = LimitArguments::default();
        arguments.update_from_arg_matches(matches)?;
        Ok(arguments)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for (limit, flag) in flags() {
            if let Some(number) = matches.get_one(flag) {
                *limit.setting_mut(&mut self.0) = Some(*number);
            }
        }
        Ok(())
    }
}

impl Args for LimitArguments {
    fn augment_args(command: Command) -> Command {
        command.args(flags().map(|(limit, flag)| {
            let name = match limit.unit {
                Unit::Seconds => "S",
                Unit::Milliseconds => "MS",
                Unit::Mib => "MIB",
                Unit::Count => "N",
            };
            let parser = move |text: &str| parse(limit, text);
            Arg::new(flag).long(flag).value_name(name).value_parser(parser).help(help(limit))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        LimitArguments::augment_args(command)
    }
}

fn flags() -> impl Iterator<Item = (&'static Limit, &'static str)> {
    LIMITS.iter().filter_map(|limit| Some((limit, limit.flag?)))
}

/// Units that may stand behind a number, and how many of the limit's own unit each is.
fn units(limit: &Limit) -> &'static [(&'static str, f64)] {
    match limit.unit {
        Unit::Seconds => &[("ms", 0.001), ("s", 1.0), ("sec", 1.0), ("m", 60.0), ("min", 60.0)],
        Unit::Milliseconds => &[("ms", 1.0), ("s", 1_000.0)],
        Unit::Mib => &[("m", 1.0), ("mb", 1.0), ("mib", 1.0), ("g", 1_024.0), ("gb", 1_024.0), ("gib", 1_024.0)],
        Unit::Count => &[("k", 1e3), ("m", 1e6), ("g", 1e9)],
    }
}

/// A number, with or without a unit: `5`, `1.5`, `5s`, `64m`.
fn parse(limit: &Limit, text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = match unit.as_str() {
        "" => Some(1.0),
        unit => units(limit).iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor),
    };
    let whole = number.parse().ok().filter(|number| unit.is_empty() && limit.range.contains(number));
    let number = number.parse::<f64>().ok().zip(factor).map(|(number, factor)| number * factor);
    let setting = match limit.unit {
        // Large counts have no exact floating-point number.
        Unit::Count if whole.is_some() => whole,
        _ => number.and_then(|number| limit.setting_of(number)),
    };
    setting.ok_or_else(|| {
        let names: Vec<&str> = units(limit).iter().map(|(name, _)| *name).collect();
        let range = format!("{} {}", limit.range_in_words(), limit.unit.symbol());
        format!("expected {}, perhaps with a unit behind it: {}", range.trim_end(), names.join(", "))
    })
}

/// Meaning, range and default: `Memory of a kernel, 32 to 4096 MiB [default: 512]`.
fn help(limit: &Limit) -> String {
    let range = format!("{} {}", limit.range_in_words(), limit.unit.symbol());
    let default = limit.default.map_or("unlimited".to_owned(), |default| default.to_string());
    format!("{}, {} [default: {default}]", limit.meaning, range.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<LimitArguments, Error> {
        let command = LimitArguments::augment_args(Command::new("cellar").no_binary_name(true));
        LimitArguments::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn flags_set_limits_within_their_ranges() {
        let LimitArguments(settings) = parsed(&["--memory", "64", "--timeout", "5"]).expect("in range");
        let expected = LimitSettings { memory_mib: Some(64), timeout: Some(5_000), ..LimitSettings::default() };
        assert_eq!(settings, expected);
        for (flag, text, steps) in [
            ("--timeout", "1.5", 1_500),
            ("--timeout", "5s", 5_000),
            ("--timeout", "250ms", 250),
            ("--timeout", "2min", 120_000),
            ("--memory", "64m", 64),
            ("--memory", "1GiB", 1_024),
            ("--fuel", "18446744073709551615", u64::MAX),
            ("--fuel", "2k", 2_000),
        ] {
            let given = parsed(&[flag, text]).expect(text).0;
            assert!([given.timeout, given.memory_mib, given.fuel].contains(&Some(steps)), "{flag} {text}: {given:?}");
        }
        for words in [["--timeout", "5x"], ["--timeout", "0.01"], ["--memory", "64.5"], ["--memory", "64s"]] {
            let fault = parsed(&words).expect_err(words[1]).to_string();
            assert!(fault.contains("perhaps with a unit"), "{fault}");
        }
        for words in [["--memory", "31"], ["--timeout", "601"], ["--fuel", "0"], ["--fuel", "-1"]] {
            assert!(parsed(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn help_tells_range_and_default() {
        let help = LimitArguments::augment_args(Command::new("cellar")).render_help().to_string();
        assert!(help.contains("--memory <MIB>"), "{help}");
        assert!(help.contains("Memory of a kernel, 32 to 4096 MiB [default: 512]"), "{help}");
    }
}
