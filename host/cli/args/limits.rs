//! Flags of limits, as limits are declared.

use cellar_engine::limits::{LIMITS, Limit, LimitSettings, Unit};
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, builder::RangedU64ValueParser};

/// Limits that were typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitArguments(pub(crate) LimitSettings);

impl LimitArguments {
    /// Flags, without their dashes, and the numbers that were given to them.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, u64)> {
        flags().filter_map(|(limit, flag)| Some((flag, limit.setting(&self.0)?)))
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
            let range = RangedU64ValueParser::<u64>::new().range(limit.range.clone());
            Arg::new(flag).long(flag).value_name(name).value_parser(range).help(help(limit))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        LimitArguments::augment_args(command)
    }
}

fn flags() -> impl Iterator<Item = (&'static Limit, &'static str)> {
    LIMITS.iter().filter_map(|limit| Some((limit, limit.flag?)))
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

    fn parse(words: &[&str]) -> Result<LimitArguments, Error> {
        let command = LimitArguments::augment_args(Command::new("cellar").no_binary_name(true));
        LimitArguments::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn flags_set_limits_within_their_ranges() {
        let LimitArguments(settings) = parse(&["--memory", "64", "--timeout", "5"]).expect("in range");
        let expected = LimitSettings { memory_mib: Some(64), timeout: Some(5), ..LimitSettings::default() };
        assert_eq!(settings, expected);
        for words in [["--memory", "31"], ["--timeout", "601"], ["--fuel", "0"], ["--fuel", "-1"]] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn help_tells_range_and_default() {
        let help = LimitArguments::augment_args(Command::new("cellar")).render_help().to_string();
        assert!(help.contains("--memory <MIB>"), "{help}");
        assert!(help.contains("Memory of a kernel, 32 to 4096 MiB [default: 512]"), "{help}");
    }
}
