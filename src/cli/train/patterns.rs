//! Straggler patterns as the command line has them.

use crate::control::units::Duration;
use crate::dataplane::Nanos;
use crate::training::Stragglers;

const PERSISTENT_FACTOR: f64 = 3.0;
const PHASE_FACTOR: f64 = 4.0;
const PAUSE_NS: Nanos = 5_000_000_000;

/// For `--help`.
pub const PATTERNS: &str = "none; transient (any worker, 15 % of its iterations, 0.5 to 2 times longer); persistent (worker 0 takes 3 \
                            times as long); phase=8s..22s (worker 0 takes 4 times as long from one time to the other); pause=8s \
                            (worker 0 stops for 5 s)";

/// Worker 0 is always slow.
pub const PERSISTENT: Stragglers = Stragglers::Persistent { factor: PERSISTENT_FACTOR };

/// Worker 0 is slow from one time to another.
pub const fn phase(from_ns: Nanos, to_ns: Nanos) -> Stragglers {
    Stragglers::Phase { factor: PHASE_FACTOR, from_ns, to_ns }
}

/// Worker 0 stops.
pub const fn pause(from_ns: Nanos) -> Stragglers {
    Stragglers::Pause { from_ns, for_ns: PAUSE_NS }
}

/// Reads one.
///
/// # Errors
/// What may be written.
pub fn parse(text: &str) -> Result<Stragglers, String> {
    let (name, times) = text.split_once('=').unwrap_or((text, ""));
    let time = |text: &str| text.parse::<Duration>().map(|Duration(ns)| ns).map_err(|error| error.to_string());
    match (name, times) {
        ("none", "") => Ok(Stragglers::None),
        ("transient", "") => Ok(Stragglers::SERENE),
        ("persistent", "") => Ok(PERSISTENT),
        ("phase", _) => {
            let (from, to) = times.split_once("..").ok_or("write for instance phase=8s..22s")?;
            let (from, to) = (time(from)?, time(to)?);
            if from < to { Ok(phase(from, to)) } else { Err(format!("{times} ends before it begins")) }
        }
        ("pause", _) => Ok(pause(time(times).map_err(|error| format!("write for instance pause=8s: {error}"))?)),
        _ => Err(format!("write one of: {PATTERNS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_with_their_times() {
        assert_eq!(parse("none"), Ok(Stragglers::None));
        assert_eq!(parse("transient"), Ok(Stragglers::SERENE));
        assert_eq!(parse("persistent"), Ok(PERSISTENT));
        assert_eq!(parse("phase=500ms..22s"), Ok(phase(500_000_000, 22_000_000_000)));
        assert_eq!(parse("pause=8s"), Ok(pause(8_000_000_000)));
    }

    #[test]
    fn what_is_no_pattern_is_answered_with_what_is_one() {
        assert!(parse("phase").unwrap_err().contains("phase=8s..22s"));
        assert!(parse("phase=9s..8s").unwrap_err().contains("ends before"));
        assert!(parse("pause").unwrap_err().contains("pause=8s"));
        assert!(parse("none=3").unwrap_err().contains("transient"));
        assert!(parse("slow").unwrap_err().contains("persistent"));
    }
}
