//! What Symphony is told, at start and at run time.

use std::net::IpAddr;

use crate::dataplane::Nanos;

/// Which packets count as "ahead".
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Policy {
    /// Lead over a minimum that knows its owner: the reference algorithm.
    #[default]
    OwnerMin,
    /// Lead over the exact minimum of the job's flows. Not Tofino-shaped; the model for tests and comparisons.
    Gold,
    /// Control: consumes the same random numbers as owner-min's marks, never marks.
    Null,
    /// Control: a coin instead of the lead test, queue test and gap as ever.
    Blind {
        /// Of heads, 0..=1.
        probability: f64,
    },
}

/// Parameters of the function, the same for all jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Off: bit-identical to a switch without the function.
    pub enabled: bool,
    /// The lead test.
    pub policy: Policy,
    /// T: lead from which a packet is marked, in 1/256 steps.
    pub threshold: i32,
    /// Mark only while the lead does not shrink, from one look at the flow to the next, a gap apart. A flow that falls back
    /// already has been slowed enough; one whose job is held up elsewhere does not fall back until it is as slow.
    pub growing: bool,
    /// QTHR as a fraction of the port's Kmin; 0 means any non-empty queue.
    pub queue_fraction: f64,
    /// Optional third condition: mark only while the queue is not above Kmin.
    pub only_below_kmin: bool,
    /// GAP: least time between two extra marks of one flow.
    pub gap_ns: Nanos,
    /// Epoch; rounded down to 2^k ns, k from 10 to 40.
    pub epoch_ns: Nanos,
    /// R of the hosts' DCQCN (F x rate timer).
    pub recovery_ns: Nanos,
    /// Fallback: a job whose steps are shorter than so many R is tracked, but never marked: a flow that is cut would still
    /// be slow when its turn comes. 0: no job is too fast.
    pub min_step: f64,
    /// [`Policy::Gold`] drops flows that were silent for so long.
    pub gold_idle_ns: Nanos,
}

/// Where a packet's step comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepSource {
    /// With-immediate message ends, guarded by PSN.
    #[default]
    Message,
    /// A fixed number of packets a step.
    Psn,
    /// The immediate carries a request counter from 0.
    Imm,
    /// The low 14 bits of the UDP source port carry the step.
    UdpSport,
}

/// A ring job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Number given by the user; unique.
    pub id: u32,
    /// Name, for people.
    pub name: String,
    /// Ranks in ring order; the flow from each to the next (the last to the first) is an edge. At least 2.
    pub ring: Vec<IpAddr>,
    /// Where steps come from.
    pub step_source: StepSource,
    /// With-immediate messages a step (NCCL Simple: 2). A power of two for [`StepSource::Imm`].
    pub requests_per_step: u16,
    /// Data packets a step, when known: progress inside a step.
    pub packets_per_step: Option<u32>,
    /// RoCE path MTU in bytes: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u32,
    /// Ring steps of one collective; 2(n-1) for all-reduce.
    pub steps_per_collective: u32,
    /// How long a step takes with nothing in its way, when known: for the fallback.
    pub step_ns: Option<Nanos>,
    /// Idle time after which the job's counters restart together and marking is armed.
    pub idle_ns: Nanos,
    /// Off: bit-identical to a switch that does not know the job.
    pub enabled: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            enabled: true,
            policy: Policy::OwnerMin,
            threshold: 32,
            growing: true,
            queue_fraction: 0.05, // a packet, not a clear-to-send
            only_below_kmin: false,
            gap_ns: 75_000,
            epoch_ns: 2_000_000,
            recovery_ns: 275_000,
            min_step: 2.0,
            gold_idle_ns: 20_000_000,
        }
    }
}

impl Parameters {
    /// The reference algorithm as first published here: marks whatever leads by T 0.5, also while it falls back.
    pub fn reference() -> Self {
        Parameters {
            threshold: 128,
            growing: false,
            queue_fraction: 0.25,
            gap_ns: 100_000,
            epoch_ns: 20_000_000,
            min_step: 0.0,
            ..Parameters::default()
        }
    }

    /// The same, stronger: more gain beside stragglers, harm on wide shared trunks (T 0.25, QTHR 0, GAP 50 us).
    pub fn bold() -> Self {
        Parameters { threshold: 64, queue_fraction: 0.0, gap_ns: 50_000, ..Parameters::reference() }
    }

    /// The same proportions on links that are `factor` times slower: every time is stretched, nothing else changes.
    pub fn scaled(self, factor: f64) -> Self {
        let stretch = |ns: Nanos| (ns as f64 * factor).round() as Nanos;
        Parameters {
            gap_ns: stretch(self.gap_ns),
            epoch_ns: stretch(self.epoch_ns),
            recovery_ns: stretch(self.recovery_ns),
            gold_idle_ns: stretch(self.gold_idle_ns),
            ..self
        }
    }
}
