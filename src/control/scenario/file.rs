//! The scenario file as it is written: one struct a table, one field a key, and every default.

use serde::{Deserialize, Serialize};

use crate::control::config::{Key, Wrong};
use crate::control::units::{Bytes, Duration, Idle, Rate};

/// The longest time that a key may have, 11 days: sums of several, and picoseconds of one, stay in 64 bits.
pub(super) const LONGEST: Duration = Duration(1_000_000_000_000_000);
/// The largest ring step: lengths of messages have 31 bits.
pub(super) const MAX_CHUNK: Bytes = Bytes(1 << 30);
/// The longest link: light takes so long through 200 000 km of fibre.
const LONGEST_DELAY: Duration = Duration(1_000_000_000);

/// The whole file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// What it is, in a line.
    pub description: String,
    /// Congestion control set that it is made for.
    #[serde(default = "defaults::cc")]
    pub cc: String,
    /// How much slower than 10 Gbit/s: times of DCQCN and Symphony are multiplied by it, rates of DCQCN divided.
    /// Not for faster links: the sets are meant for 10 and 100 Gbit/s as they are.
    #[serde(default = "defaults::scale")]
    pub scale: f64,
    /// How hosts behave.
    #[serde(default)]
    pub model: ModelName,
    /// With model `astra`: the bytes in flight of a queue pair are bounded by the bandwidth-delay product of its path.
    #[serde(default)]
    pub window: bool,
    /// A run is given up after so long.
    #[serde(default = "defaults::limit")]
    pub limit: Duration,
    /// `[fabric]`
    pub fabric: FabricTable,
    /// `[[slow_link]]`
    #[serde(default, rename = "slow_link", skip_serializing_if = "Vec::is_empty")]
    pub slow_links: Vec<SlowLinkTable>,
    /// A trace of collectives (CSV) whose lines are the jobs, instead of those that are written here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// `[[job]]`
    #[serde(default, rename = "job")]
    pub jobs: Vec<JobTable>,
    /// `[[background]]`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundTable>,
}

/// How hosts behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelName {
    /// As RoCE NICs and NCCL do: a queue pair for each edge, that lives on.
    #[default]
    Roce,
    /// As ASTRA-sim's ns-3 back end does: a fresh queue pair for each step.
    Astra,
}

/// `[fabric]`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FabricTable {
    /// Who is connected to whom.
    pub topology: TopologyName,
    /// Hosts of a single switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<u32>,
    /// Leaf switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaves: Option<u32>,
    /// Hosts on each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts_per_leaf: Option<u32>,
    /// Spine switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spines: Option<u32>,
    /// Ports of a fat tree's switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
    /// Of links between hosts and switches, and of NICs.
    pub rate: Rate,
    /// Of links between switches; `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spine_rate: Option<Rate>,
    /// Propagation delay of each link.
    #[serde(default = "defaults::delay")]
    pub delay: Duration,
    /// Of each switch, shared by its ports.
    #[serde(default = "defaults::buffer")]
    pub buffer: Bytes,
    /// Lossless: pause before the buffer is full, by a dynamic threshold of an eighth of what is left.
    #[serde(default)]
    pub pfc: bool,
    /// RED.
    #[serde(default)]
    pub ecn: EcnTable,
    /// How packets are spread over equal-cost paths.
    #[serde(default)]
    pub paths: PathsName,
    /// A host's ranks share its NIC; if not, each has a line of its own.
    #[serde(default = "defaults::yes")]
    pub shared_nic: bool,
}

/// Who is connected to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyName {
    /// One switch: `hosts`.
    Single,
    /// Two tiers: `leaves`, `hosts_per_leaf`, `spines`.
    LeafSpine,
    /// Three tiers: `k`.
    FatTree,
}

/// RED at 10 Gbit/s; each port scales it with its rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EcnTable {
    /// Off: queues mark nothing.
    pub enabled: bool,
    /// No mark below.
    pub kmin: Bytes,
    /// Every packet is marked above.
    pub kmax: Bytes,
    /// Probability at `kmax`.
    pub pmax: f64,
}

/// How packets are spread over equal-cost paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathsName {
    /// ECMP: a flow keeps its path.
    #[default]
    PerFlow,
    /// A new path each step.
    PerStep,
    /// By the destination's number.
    CollisionFree,
}

/// `[[slow_link]]`: an uplink of a leaf; the way down keeps the fabric's rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowLinkTable {
    /// Its leaf; drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaf: Option<u32>,
    /// Which of the leaf's uplinks; drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uplink: Option<u32>,
    /// Its rate.
    pub rate: Rate,
}

/// `[[job]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobTable {
    /// Results are per class.
    pub class: String,
    /// So many such jobs.
    pub count: u32,
    /// In the ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Where they are put; each rank gets a host that no job before has.
    pub place: Place,
    /// Host of each rank, whatever `ranks` and `place` say; jobs may share hosts so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<u32>>,
    /// What they do.
    pub collective: CollectiveName,
    /// Chunks of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// How many times.
    pub iterations: u32,
    /// Computing between two collectives.
    pub compute: Duration,
    /// Bytes of one ring step on each channel.
    pub chunk: Bytes,
    /// Independent rings.
    pub channels: u32,
    /// Messages a step.
    pub requests_per_step: u32,
    /// Payload bytes of a packet.
    pub path_mtu: u32,
    /// Switches know how many packets a step has.
    pub step_size_known: bool,
    /// Symphony knows the job.
    pub known: bool,
    /// Silent for so long, the job has restarted, as far as Symphony can tell. Steps are of `chunk` at the fabric's `rate`.
    pub idle: Idle,
    /// The job starts so late.
    pub start: Duration,
    /// The whole job starts later by a time drawn from 0 to this.
    pub skew: Duration,
    /// Each rank starts so much later at most, drawn.
    pub jitter: Duration,
    /// `[job.straggler]`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub straggler: Option<StragglerTable>,
}

/// `[job.straggler]`: ranks of the job that hold it up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StragglerTable {
    /// Which; one, drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Vec<u32>>,
    /// Speed of their NIC.
    #[serde(default = "defaults::percent")]
    pub nic_percent: f64,
    /// They begin so much later.
    #[serde(default)]
    pub late: Duration,
}

/// Where ranks are put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Ring order is host order.
    #[default]
    InOrder,
    /// Rank r on leaf r mod leaves: every edge crosses the spine.
    Stride,
    /// Anywhere.
    Random,
}

/// What ranks do together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveName {
    /// 2(n-1) steps.
    #[default]
    AllReduce,
    /// n-1 steps.
    AllGather,
    /// n-1 steps.
    ReduceScatter,
    /// No ring: every even rank sends `steps` chunks to the next.
    Stream,
}

/// `[[background]]`: traffic of nobody's job, at random times between random hosts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundTable {
    /// Hosts that send to one at the same time.
    #[serde(default = "defaults::one")]
    pub senders: u32,
    /// What each sends.
    pub bytes: Bytes,
    /// Mean of the exponential time between two bursts.
    pub mean_gap: Duration,
    /// No burst begins later.
    pub until: Duration,
}

mod defaults {
    use super::{Bytes, Duration};

    pub fn cc() -> String {
        "dc55".into()
    }
    pub fn scale() -> f64 {
        1.0
    }
    pub fn limit() -> Duration {
        Duration(60_000_000_000)
    }
    pub fn delay() -> Duration {
        Duration(1_000)
    }
    pub fn buffer() -> Bytes {
        Bytes(64 << 20)
    }
    pub fn one() -> u32 {
        1
    }
    pub fn percent() -> f64 {
        100.0
    }
    pub fn yes() -> bool {
        true
    }
}

impl Default for EcnTable {
    /// 10 and 40 packets of 4 KB.
    fn default() -> Self {
        EcnTable { enabled: true, kmin: Bytes(40_000), kmax: Bytes(160_000), pmax: 0.2 }
    }
}

impl Default for JobTable {
    fn default() -> Self {
        JobTable {
            class: "all".into(),
            count: 1,
            ranks: None,
            place: Place::default(),
            hosts: None,
            collective: CollectiveName::default(),
            steps: None,
            iterations: 1,
            compute: Duration::default(),
            chunk: Bytes(1_000_000),
            channels: 1,
            requests_per_step: 1,
            path_mtu: 4096,
            step_size_known: true,
            known: true,
            idle: Idle::Steps(10),
            start: Duration::default(),
            skew: Duration::default(),
            jitter: Duration::default(),
            straggler: None,
        }
    }
}

impl File {
    /// What is wrong with single values.
    pub fn check(&self) -> Result<(), Wrong> {
        let positive = |value: f64, key: Key| match value > 0.0 && value.is_finite() {
            true => Ok(()),
            false => Err(key.wrong(format!("{value}; use more than 0"))),
        };
        let within = |value: u64, least: u64, most: u64, key: Key| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(key.wrong(format!("{value}; use {least} to {most}"))),
        };
        let at_most = |value: Duration, most: Duration, key: Key| match value <= most {
            true => Ok(()),
            false => Err(key.wrong(format!("{value}; use at most {most}"))),
        };
        positive(self.scale, Key::new("scale"))?;
        positive(self.limit.0 as f64, Key::new("limit"))?;
        at_most(self.limit, LONGEST, Key::new("limit"))?;
        let fabric = Key::new("fabric");
        at_most(self.fabric.delay, LONGEST_DELAY, fabric.name("delay"))?;
        positive(self.fabric.rate.0 as f64, fabric.name("rate"))?;
        if let Some(rate) = self.fabric.spine_rate {
            positive(rate.0 as f64, fabric.name("spine_rate"))?;
        }
        positive(self.fabric.buffer.0 as f64, fabric.name("buffer"))?;
        let (ecn, key) = (&self.fabric.ecn, fabric.name("ecn"));
        if ecn.kmin > ecn.kmax {
            return Err(key.name("kmin").wrong(format!("{} is above kmax = {}; kmin <= kmax", ecn.kmin, ecn.kmax)));
        }
        if !(0.0..=1.0).contains(&ecn.pmax) {
            return Err(key.name("pmax").wrong(format!("{} is no probability; use 0 to 1", ecn.pmax)));
        }
        if self.jobs.is_empty() {
            return Err(Key::new("job").wrong("no job; add a [[job]] with ranks = 8"));
        }
        for (index, job) in self.jobs.iter().enumerate() {
            let key = Key::new("job").index(index);
            if job.class.is_empty() {
                return Err(key.name("class").wrong("is empty; results go by this name"));
            }
            within(job.count.into(), 1, 1024, key.name("count"))?;
            within(job.iterations.into(), 1, 1 << 20, key.name("iterations"))?;
            within(job.channels.into(), 1, 64, key.name("channels"))?;
            within(job.requests_per_step.into(), 1, 64, key.name("requests_per_step"))?;
            within(job.chunk.0, 4, MAX_CHUNK.0, key.name("chunk"))?;
            if !job.chunk.0.is_multiple_of(4) {
                return Err(key.name("chunk").wrong(format!("{}; use a multiple of 4 bytes", job.chunk)));
            }
            if !matches!(job.path_mtu, 256 | 512 | 1024 | 2048 | 4096) {
                let wrong = format!("{} is no RoCE path MTU; use 256, 512, 1024, 2048 or 4096", job.path_mtu);
                return Err(key.name("path_mtu").wrong(wrong));
            }
            match (job.collective, job.steps) {
                (CollectiveName::Stream, None) => {
                    return Err(key.name("steps").wrong("a stream has no end by itself; say how many chunks it sends"));
                }
                (CollectiveName::Stream, Some(steps)) => within(steps.into(), 1, 1 << 24, key.name("steps"))?,
                (_, Some(_)) => {
                    return Err(key.name("steps").wrong("a ring's steps follow from its ranks; leave it out"));
                }
                (_, None) => {}
            }
            let times = [
                ("compute", job.compute),
                ("start", job.start),
                ("skew", job.skew),
                ("jitter", job.jitter),
                ("idle", if let Idle::Time(time) = job.idle { time } else { Duration(0) }),
            ];
            times.into_iter().try_for_each(|(name, time)| at_most(time, LONGEST, key.name(name)))?;
            if let Some(straggler) = &job.straggler {
                let (key, percent) = (key.name("straggler"), straggler.nic_percent);
                if !(percent > 0.0 && percent <= 100.0) {
                    return Err(key.name("nic_percent").wrong(format!("{percent}; use more than 0, at most 100")));
                }
                at_most(straggler.late, LONGEST, key.name("late"))?;
            }
        }
        if !self.fabric.shared_nic && !self.background.is_empty() {
            let wrong = "needs hosts with one NIC each; leave it out, or say fabric.shared_nic = true";
            return Err(Key::new("background").index(0).wrong(wrong));
        }
        for (index, background) in self.background.iter().enumerate() {
            let key = Key::new("background").index(index);
            within(background.bytes.0, 1, 1 << 30, key.name("bytes"))?;
            let key_of_gap = key.name("mean_gap");
            if background.mean_gap.0 < 1_000 {
                return Err(key_of_gap.wrong(format!("{}; use at least 1us", background.mean_gap)));
            }
            at_most(background.mean_gap, LONGEST, key_of_gap)?;
            at_most(background.until, LONGEST, key.name("until"))?;
        }
        Ok(())
    }
}
