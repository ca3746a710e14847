//! The configuration file as it is written: one struct a table, one field a key, and every default.
//!
//! What has the same default everywhere gets it here; what depends on other keys is an `Option` that
//! [`File::fill`] fills in, so that printing shows every value in force.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::error::{Key, Wrong, with_guess};
use super::serene::SereneTable;
use crate::control::units::{Bytes, Duration, Idle, Rate};

/// The whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// `[switch]`
    pub switch: SwitchTable,
    /// `[[port]]`
    #[serde(default, rename = "port")]
    pub ports: Vec<PortTable>,
    /// `[forwarding]`
    #[serde(default)]
    pub forwarding: ForwardingTable,
    /// `[[route]]`
    #[serde(default, rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteTable>,
    /// `[symphony]`
    #[serde(default)]
    pub symphony: SymphonyTable,
    /// `[[job]]`: ring collectives that Symphony follows.
    #[serde(default, rename = "job")]
    pub jobs: Vec<JobTable>,
    /// `[serene]`: aggregation in the switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serene: Option<SereneTable>,
}

/// `[switch]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchTable {
    /// For people, and in the default of `control`.
    pub name: String,
    /// Where packets are queued and forwarded.
    #[serde(default)]
    pub datapath: Datapath,
    /// Path of the control socket; `/run/symphony/NAME.sock`.
    pub control: Option<String>,
    /// Limit of all queues together.
    #[serde(default = "defaults::shared_buffer")]
    pub buffer: Bytes,
    /// Of every random stream.
    #[serde(default = "defaults::seed")]
    pub seed: u32,
}

/// Where packets are queued and forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Datapath {
    /// In userspace, behind AF_XDP sockets.
    #[default]
    Afxdp,
    /// In the kernel.
    Xdp,
}

/// `[[port]]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortTable {
    /// For people and for routes; `p1`, `p2`, ..
    pub name: Option<String>,
    /// Network interface; the port's name.
    pub interface: Option<String>,
    /// Emulated line rate; left out: as fast as it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Limit of the port's queues.
    #[serde(default = "defaults::port_buffer")]
    pub buffer: Bytes,
    /// RED/ECN of the data queue.
    #[serde(default)]
    pub ecn: Ecn,
    /// Faults of the link; left out: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<FaultTable>,
}

/// `fault = { .. }`: as `tc netem` has them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultTable {
    /// Which way.
    pub direction: DirectionName,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Probability that it comes twice.
    pub duplicate: f64,
    /// How long packets are held back.
    pub delay: Duration,
    /// By how much it is less or more for a packet.
    pub delay_jitter: Duration,
    /// Probability that a packet is not held back and so overtakes others.
    pub reorder: f64,
    /// Probability that one of its bits is flipped.
    pub corrupt: f64,
}

/// Names of the ways through a link, as the switch sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectionName {
    /// Into the switch.
    In,
    /// Out of the switch.
    Out,
    /// Both, each by itself.
    #[default]
    Both,
}

/// `ecn = { .. }`, or `ecn = "off"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ecn {
    /// No ECN marking by the queue.
    Off,
    /// RED.
    Red(RedTable),
}

/// RED on the instantaneous queue at dequeue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedTable {
    /// No mark below.
    pub kmin: Bytes,
    /// Every packet is marked above.
    pub kmax: Bytes,
    /// Probability at `kmax`.
    pub pmax: f64,
}

/// `[forwarding]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardingTable {
    /// How frames find their port.
    #[serde(default)]
    pub mode: Mode,
}

/// How frames find their port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A learning bridge.
    #[default]
    Learning,
    /// Only by `[[route]]`.
    Static,
}

/// `[[route]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteTable {
    /// A MAC or a prefix.
    #[serde(rename = "match")]
    pub matches: String,
    /// Next hops that share the traffic.
    pub via: Vec<ViaTable>,
}

/// One next hop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViaTable {
    /// Name of the port.
    pub port: String,
    /// MAC of the next hop, for prefixes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
}

/// `[symphony]`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SymphonyTable {
    /// Off: bit-identical to a switch without the function.
    pub enabled: bool,
    /// The lead test.
    pub policy: PolicyName,
    /// Of heads, for `blind`.
    pub blind_probability: f64,
    /// After which `gold` forgets a flow.
    pub gold_idle: Duration,
    /// T, in steps.
    pub threshold: f64,
    /// Mark only while the lead does not shrink.
    pub growing: bool,
    /// QTHR, fraction of kmin; 0 = any non-empty queue.
    pub queue: f64,
    /// Mark only while the queue is not above kmin.
    pub only_below_kmin: bool,
    /// GAP, least time between two extra marks of a flow.
    pub gap: Duration,
    /// After which an unseen minimum is forgotten; rounded down to 2^k ns.
    pub epoch: Duration,
    /// R of the hosts' DCQCN.
    pub recovery: Duration,
    /// Jobs with shorter steps, in recoveries, are never marked; 0: no job is too fast.
    pub min_step: f64,
}

/// Names of the policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// The reference algorithm.
    #[default]
    OwnerMin,
    /// The exact minimum.
    Gold,
    /// Control: never marks.
    Null,
    /// Control: a coin.
    Blind,
}

/// `[[job]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobTable {
    /// Unique; its place in the file from 1.
    pub id: Option<u32>,
    /// For people; `job-ID`.
    pub name: Option<String>,
    /// Addresses in ring order.
    pub ring: Vec<String>,
    /// Where steps come from.
    #[serde(default)]
    pub step_source: StepSourceName,
    /// With-immediate messages a step.
    #[serde(default = "defaults::requests_per_step")]
    pub requests_per_step: u16,
    /// Bytes that a rank sends in one step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_size: Option<Bytes>,
    /// RoCE path MTU.
    #[serde(default = "defaults::path_mtu")]
    pub path_mtu: u32,
    /// Data packets a step; from `step_size` and `path_mtu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_per_step: Option<u32>,
    /// 2(n-1).
    pub steps_per_collective: Option<u32>,
    /// After which the job's counters restart together.
    #[serde(default = "defaults::idle")]
    pub idle: Idle,
    /// Off: as if the job were not there.
    #[serde(default = "defaults::enabled")]
    pub enabled: bool,
}

/// Names of the step sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepSourceName {
    /// With-immediate message ends.
    #[default]
    Message,
    /// A fixed number of packets.
    Psn,
    /// The immediate counts.
    Imm,
    /// A tag in the UDP source port.
    UdpSport,
}

mod defaults {
    use super::{Bytes, Idle};

    pub fn shared_buffer() -> Bytes {
        Bytes(32 << 20)
    }
    pub fn seed() -> u32 {
        1
    }
    pub fn port_buffer() -> Bytes {
        Bytes(1_000_000)
    }
    pub fn requests_per_step() -> u16 {
        1
    }
    pub fn path_mtu() -> u32 {
        1024
    }
    pub fn idle() -> Idle {
        Idle::Steps(10)
    }
    pub fn enabled() -> bool {
        true
    }
}

impl Default for Ecn {
    fn default() -> Self {
        Ecn::Red(RedTable::default())
    }
}

impl Default for RedTable {
    /// 10 and 40 packets of 2 KB, whatever the rate: see DCQCN's 40/160 KB at 10G with 4 KB packets.
    fn default() -> Self {
        RedTable { kmin: Bytes(20_000), kmax: Bytes(80_000), pmax: 0.2 }
    }
}

impl Default for FaultTable {
    fn default() -> Self {
        FaultTable {
            direction: DirectionName::Both,
            loss: 0.0,
            duplicate: 0.0,
            delay: Duration(0),
            delay_jitter: Duration(0),
            reorder: 0.0,
            corrupt: 0.0,
        }
    }
}

impl Default for SymphonyTable {
    fn default() -> Self {
        SymphonyTable {
            enabled: true,
            policy: PolicyName::OwnerMin,
            blind_probability: 0.5,
            gold_idle: Duration(20_000_000),
            threshold: 0.125,
            growing: true,
            queue: 0.05,
            only_below_kmin: false,
            gap: Duration(75_000),
            epoch: Duration(2_000_000),
            recovery: Duration(275_000),
            min_step: 2.0,
        }
    }
}

impl Serialize for Ecn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Ecn::Off => serializer.serialize_str("off"),
            Ecn::Red(red) => red.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Ecn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Ecn;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("{ kmin = \"20KB\", kmax = \"80KB\", pmax = 0.2 } or \"off\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ecn, E> {
                if text == "off" { Ok(Ecn::Off) } else { Err(E::invalid_value(de::Unexpected::Str(text), &self)) }
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Ecn, A::Error> {
                RedTable::deserialize(de::value::MapAccessDeserializer::new(map)).map(Ecn::Red)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl File {
    /// Fills in the defaults that depend on other keys; `path` is where the file is, for what is relative to it.
    pub fn fill(&mut self, path: &Path) {
        let name = &self.switch.name;
        self.switch.control.get_or_insert_with(|| format!("/run/symphony/{name}.sock"));
        for (index, port) in self.ports.iter_mut().enumerate() {
            let name = port.name.get_or_insert_with(|| format!("p{}", index + 1));
            port.interface.get_or_insert_with(|| name.clone());
        }
        for (index, job) in self.jobs.iter_mut().enumerate() {
            job.fill(index);
        }
        self.symphony.fill();
        if let Some(serene) = &mut self.serene {
            serene.fill(path);
        }
    }
}

impl SymphonyTable {
    /// The same with some keys changed, named and written as in the file.
    ///
    /// # Errors
    /// Unknown keys, and values of another type.
    pub fn with(&self, changes: serde_json::Map<String, serde_json::Value>) -> Result<Self, Wrong> {
        let whole = |error: serde_json::Error| Key::default().wrong(error.to_string());
        let mut table = serde_json::to_value(self).map_err(whole)?;
        for (name, value) in changes {
            table[&name] = value;
            // One by one, so that an error is about this key.
            SymphonyTable::deserialize(&table)
                .map_err(|error| Key::new(&name).wrong(with_guess(&error.to_string())))?;
        }
        let mut table = SymphonyTable::deserialize(&table).map_err(whole)?;
        table.fill();
        Ok(table)
    }

    /// Rounds the epoch down to the 2^k ns in force.
    pub fn fill(&mut self) {
        if let Some(k) = self.epoch.0.checked_ilog2() {
            self.epoch = Duration(1 << k);
        }
    }
}

impl JobTable {
    /// Fills in the defaults that depend on other keys; `index` is the job's place in the file.
    pub fn fill(&mut self, index: usize) {
        let id = *self.id.get_or_insert(u32::try_from(index + 1).unwrap_or(u32::MAX));
        self.name.get_or_insert_with(|| format!("job-{id}"));
        let steps = u32::try_from(self.ring.len().saturating_sub(1).saturating_mul(2)).unwrap_or(u32::MAX);
        self.steps_per_collective.get_or_insert(steps);
        if let (Some(Bytes(step)), None) = (self.step_size, self.packets_per_step) {
            self.packets_per_step = packets_per_step(step, self.requests_per_step, self.path_mtu);
        }
    }
}

/// Data packets of one step: each request is cut into path-MTU packets by itself. `None` where a divisor is 0 or the
/// number passes 32 bits.
pub fn packets_per_step(step_bytes: u64, requests: u16, path_mtu: u32) -> Option<u32> {
    if requests == 0 || path_mtu == 0 {
        return None;
    }
    let request = step_bytes.div_ceil(requests.into());
    request.div_ceil(path_mtu.into()).checked_mul(requests.into())?.try_into().ok()
}
