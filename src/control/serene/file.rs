//! The job file as it is written: one struct a table, one field a key, and every default.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The whole file: one aggregation job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// `[job]`
    pub job: JobTable,
    /// `[[policy]]`, the first that applies and holds acts.
    #[serde(default, rename = "policy", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyTable>,
}

/// `[job]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobTable {
    /// 0 to 255, unique in the switch.
    pub id: u32,
    /// Address and UDP port of each worker, in the order of their numbers.
    pub members: Vec<String>,
    /// Pieces of the vector, one packet each.
    pub segments: u32,
    /// Values of a segment.
    #[serde(default = "defaults::lanes")]
    pub lanes: u16,
    /// Fixed point: a contribution is multiplied by 2^this.
    #[serde(default = "defaults::scale_log2")]
    pub scale_log2: u8,
    /// The strategy at start.
    #[serde(default = "defaults::start")]
    pub start: String,
}

/// `[[policy]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyTable {
    /// Only under this strategy; under any unless given.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// The condition.
    pub when: String,
    /// The action.
    pub then: String,
    /// Rounds after it acted in which it does not act again.
    #[serde(default)]
    pub cooldown: Rounds,
}

/// A number of rounds: `"50 rounds"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds(pub u32);

mod defaults {
    pub fn lanes() -> u16 {
        256
    }
    pub fn scale_log2() -> u8 {
        24
    }
    pub fn start() -> String {
        "bsp".into()
    }
}

impl FromStr for Rounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().strip_suffix("rounds").or_else(|| text.trim().strip_suffix("round"));
        let rounds = number.and_then(|number| number.trim().parse().ok()).map(Rounds);
        rounds.ok_or_else(|| format!("`{text}` is not a number of rounds; write for instance \"50 rounds\""))
    }
}

impl fmt::Display for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rounds", self.0)
    }
}

impl Serialize for Rounds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rounds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
