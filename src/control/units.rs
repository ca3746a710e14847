//! Quantities as people write them, `"200Mbit"`, `"32MiB"`, `"100us"`: what the configuration and the command line share.
//!
//! Each parses from text with a unit and prints in the largest unit that is exact, so that printing and parsing again
//! changes nothing. Fractions are allowed (`"1.5MB"`) where they come to a whole number of the smallest unit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::dataplane::Nanos;

/// A text that is no quantity of its kind.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{text}` is not {what}; write {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $what:literal, $example:literal, [$($unit:literal = $factor:expr),* $(,)?]) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(pub $inner);

        impl $name {
            /// From small to large; the first is the one the number counts.
            const UNITS: &'static [(&'static str, u64)] = &[$(($unit, $factor)),*];
        }

        impl FromStr for $name {
            type Err = UnitError;

            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse(text, Self::UNITS).map($name).ok_or_else(|| UnitError {
                    text: text.chars().take(40).collect(),
                    what: $what,
                    example: $example,
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print(f, self.0, Self::UNITS)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Text($example)).and_then(|text| text.parse().map_err(de::Error::custom))
            }
        }
    };
}

quantity! {
    /// A rate in bit/s: `bit`, and `kbit`, `Mbit`, `Gbit`, `Tbit` of 10^3, 10^6, 10^9, 10^12.
    Rate(u64), "a rate", "for instance \"200Mbit\" (bit, kbit, Mbit, Gbit, Tbit)",
    ["bit" = 1, "kbit" = 1_000, "Mbit" = 1_000_000, "Gbit" = 1_000_000_000, "Tbit" = 1_000_000_000_000]
}

quantity! {
    /// A number of bytes: `B`, decimal `KB`, `MB`, `GB` of 10^3, 10^6, 10^9, binary `KiB`, `MiB`, `GiB` of 2^10, 2^20, 2^30.
    Bytes(u64), "a number of bytes", "for instance \"64KiB\" or \"1MB\" (B; KB, MB, GB; KiB, MiB, GiB)",
    [
        "B" = 1, "KB" = 1_000, "KiB" = 1 << 10, "MB" = 1_000_000, "MiB" = 1 << 20, "GB" = 1_000_000_000, "GiB" = 1 << 30,
    ]
}

quantity! {
    /// A time in nanoseconds: `ns`, `us`, `ms`, `s`.
    Duration(Nanos), "a time", "for instance \"100us\" (ns, us, ms, s)",
    ["ns" = 1, "us" = 1_000, "ms" = 1_000_000, "s" = 1_000_000_000]
}

/// An idle time: a number of ring steps, or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// So many steps of the job.
    Steps(u32),
    /// So long.
    Time(Duration),
}

impl FromStr for Idle {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let steps = text.trim().strip_suffix("steps").or_else(|| text.trim().strip_suffix("step"));
        let idle = match steps {
            Some(number) => number.trim().parse().ok().map(Idle::Steps),
            None => text.parse().ok().map(Idle::Time),
        };
        idle.ok_or_else(|| UnitError {
            text: text.chars().take(40).collect(),
            what: "an idle time",
            example: "for instance \"10 steps\" or \"500ms\"",
        })
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Idle::Steps(steps) => write!(f, "{steps} steps"),
            Idle::Time(time) => time.fmt(f),
        }
    }
}

impl Serialize for Idle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Idle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer.deserialize_any(Text("for instance \"10 steps\" or \"500ms\""))?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Takes a string; a bare number is answered with what to write instead.
struct Text(&'static str);

impl de::Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "text with a unit, {}", self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        match number {
            0 => Ok("0".to_owned()), // of whatever unit
            _ => Err(E::invalid_type(de::Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_type(de::Unexpected::Signed(number), &self)),
        }
    }
}

/// `NUMBER[.FRACTION] UNIT`, exactly, in the first of `units`. A bare `0` needs no unit.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    if text == "0" {
        return Some(0);
    }
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(split);
    let factor = u128::from(units.iter().find(|(name, _)| *name == unit.trim_start())?.1);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction = fraction.parse::<u64>().ok().map(u128::from)? * factor;
    if fraction % scale != 0 {
        return None;
    }
    let whole = u128::from(whole.parse::<u64>().ok()?) * factor;
    u64::try_from(whole + fraction / scale).ok()
}

/// In the largest unit that divides the value.
fn print(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    match units.iter().rev().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor)) {
        Some((unit, factor)) => write!(f, "{}{unit}", value / factor),
        None => write!(f, "0{}", units[0].0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_mean_what_people_mean() {
        assert_eq!("200Mbit".parse(), Ok(Rate(200_000_000)));
        assert_eq!("2.5 Gbit".parse(), Ok(Rate(2_500_000_000)));
        assert_eq!("32MiB".parse(), Ok(Bytes(32 << 20)));
        assert_eq!("1MB".parse(), Ok(Bytes(1_000_000)));
        assert_eq!("20KB".parse(), Ok(Bytes(20_000)));
        assert_eq!("100us".parse(), Ok(Duration(100_000)));
        assert_eq!("0".parse(), Ok(Duration(0)));
        assert_eq!("10 steps".parse(), Ok(Idle::Steps(10)));
        assert_eq!("20ms".parse(), Ok(Idle::Time(Duration(20_000_000))));
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_an_example() {
        for text in
            ["", "5", "Mbit", "5 mbit", "-1bit", "1.2.3MB", "1e3B", "0.5bit", "99999999999Gbit", ".5MB", "1.MB", "five"]
        {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("write for instance \"200Mbit\""), "{text}: {error}");
        }
        assert!("1.5ns".parse::<Duration>().is_err(), "a fraction of the smallest unit");
        assert!("-1 steps".parse::<Idle>().is_err());
    }

    proptest! {
        #[test]
        fn printing_and_parsing_again_changes_nothing(value: u64) {
            prop_assert_eq!(Rate(value).to_string().parse(), Ok(Rate(value)));
            prop_assert_eq!(Bytes(value).to_string().parse(), Ok(Bytes(value)));
            prop_assert_eq!(Duration(value).to_string().parse(), Ok(Duration(value)));
        }

        #[test]
        fn no_text_panics(text in ".{0,30}", number in "[0-9.]{0,40}(bit|kbit|B|GiB|s|steps)") {
            for text in [&text, &number] {
                let _ = (text.parse::<Rate>(), text.parse::<Bytes>(), text.parse::<Duration>(), text.parse::<Idle>());
            }
        }
    }
}
