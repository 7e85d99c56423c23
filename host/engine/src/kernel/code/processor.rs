//! Levels of processors: whether this one has what code of a package needs.

use std::path::Path;

use crate::contract::config::Target;

/// Refuses a file of code that its name says is for a level that this processor has not.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(level) = Target::LEVELS.into_iter().find(|level| name.contains(level.name())) else { return Ok(()) };
    refusal(level, &lacking(level)).map_or(Ok(()), Err)
}

/// The message for a processor that lacks something of a level.
fn refusal(level: Target, lacking: &[&str]) -> Option<String> {
    let (name, lacking) = (level.name(), lacking.join(", "));
    (!lacking.is_empty())
        .then(|| format!("the code is for processors of the level {name}, and this one lacks {lacking}"))
}

/// Features of a level that this processor lacks.
#[cfg(target_arch = "x86_64")]
fn lacking(level: Target) -> Vec<&'static str> {
    macro_rules! features {
        ($($name:tt)*) => { [$(($name, std::arch::is_x86_feature_detected!($name))),*] };
    }
    let v2 = features!("sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "cmpxchg16b");
    let v3 = features!("avx" "avx2" "bmi1" "bmi2" "fma" "lzcnt");
    let wanted = match level {
        Target::Native => &[][..],
        Target::X86_64V2 => &v2,
        Target::X86_64V3 => &[v2, v3].concat(),
    };
    wanted.iter().filter(|(_, is_there)| !is_there).map(|(name, _)| *name).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn lacking(level: Target) -> Vec<&'static str> {
    if level == Target::Native { Vec::new() } else { vec!["x86-64"] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_for_another_processor_is_refused_with_what_is_lacking() {
        let refused = refusal(Target::X86_64V3, &["avx2", "fma"]).expect("a refusal");
        assert_eq!(refused, "the code is for processors of the level x86-64-v3, and this one lacks avx2, fma");
        assert_eq!(refusal(Target::X86_64V3, &[]), None);
    }

    #[test]
    fn code_of_this_machine_needs_no_level() {
        check(Path::new("/guests/baked/python-0/epoch-0123456789abcdef.cwasm")).expect("no level is named");
    }
}
