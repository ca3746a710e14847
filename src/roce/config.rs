//! What one rank of a ring job is told.

use std::net::IpAddr;

use super::dcqcn::{self, ReactionPoint};
use super::rate::RateControl;
use crate::dataplane::Nanos;

/// What the ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Every rank ends with the sum: n-1 reduce-scatter and n-1 all-gather steps.
    AllReduce,
    /// Every rank ends with everybody's chunk: n-1 steps.
    AllGather,
    /// Rank i ends with the sum of chunk i+1: n-1 steps.
    ReduceScatter,
    /// No ring: every even rank sends so many chunks to the next rank, one after the other, waiting for nobody. Two such
    /// pairs in one job are the paper's two-flow testbed.
    Stream {
        /// Chunks to send.
        steps: u32,
    },
}

/// What the immediate of a data request carries (`NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Immediate {
    /// The request's size in bytes (NCCL's BY_INDEX).
    #[default]
    Size,
    /// A counter of requests from 0 (BY_ID).
    RequestId,
}

/// How the UDP source port of data is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourcePort {
    /// From both queue pair numbers, as Linux verbs do for flow label 0.
    #[default]
    Verbs,
    /// 0xC000 plus the low 14 bits of the step, which a switch may read.
    StepTag,
}

/// One rank. Defaults are in [`Config::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Number of the job; ranks of one job agree on it.
    pub job: u32,
    /// This rank, from 0.
    pub rank: u32,
    /// Ranks in the ring, at least 2.
    pub ranks: u32,
    /// Own address.
    pub addr: IpAddr,
    /// Address of rank + 1.
    pub next_addr: IpAddr,
    /// Address of rank - 1.
    pub prev_addr: IpAddr,
    /// Number of this run: queue pair numbers are derived from it, so that packets of an earlier run are strangers.
    pub run: u32,
    /// What to do.
    pub collective: Collective,
    /// How many times, one after the other on the same queue pairs.
    pub iterations: u32,
    /// Time between two collectives, in which the rank computes.
    pub compute_ns: Nanos,
    /// Bytes that go to the next rank in one step, on each channel; a multiple of 4.
    pub chunk_bytes: u32,
    /// Independent rings, each with queue pairs of its own.
    pub channels: u32,
    /// Messages a step (NCCL Simple: 2).
    pub requests_per_step: u32,
    /// Payload bytes a packet: 256, 512, 1024, 2048 or 4096.
    pub path_mtu: u32,
    /// The NIC's rate in bit/s; also DCQCN's ceiling and starting rate.
    pub line_rate_bps: u64,
    /// DCQCN, already scaled; `None` sends at line rate whatever comes.
    pub congestion_control: Option<dcqcn::Parameters>,
    /// PSN of the first packet of every queue pair.
    pub first_psn: u32,
    /// What immediates carry.
    pub immediate: Immediate,
    /// Source ports.
    pub source_port: SourcePort,
    /// IPv4 ToS or IPv6 traffic class of data and acknowledgements.
    pub tos: u8,
    /// The same of CNPs.
    pub cnp_tos: u8,
    /// Nothing acknowledged for so long after the last packet: send again.
    pub retransmit_timeout_ns: Nanos,
    /// So many timeouts in a row and the queue pair fails.
    pub retry_limit: u32,
    /// A neighbour that has not been heard of so long after [`Self::start_at`] fails the run.
    pub connect_timeout_ns: Nanos,
    /// When to begin.
    pub start_at: Nanos,
    /// How many packets a late driver may make up for in one go; keep it below the switch's Kmin.
    pub burst_packets: u32,
    /// Seed of the values; ranks of one job agree on it.
    pub seed: u64,
    /// Whether there is a buffer with values to send, reduce and check. Without it only lengths travel.
    pub data: bool,
}

impl Config {
    /// Rank `rank` of `ring`, doing one all-reduce with 64 KiB steps at 200 Mbit/s.
    ///
    /// # Errors
    /// A sentence when the ring has fewer than two ranks or no such rank.
    pub fn new(job: u32, ring: &[IpAddr], rank: u32) -> Result<Self, ConfigError> {
        let n = ring.len();
        let own = rank as usize;
        if n < 2 {
            return Err(ConfigError::RingTooShort(n));
        }
        let Some(&addr) = ring.get(own) else { return Err(ConfigError::NoSuchRank { rank, ranks: n }) };
        Ok(Config {
            job,
            rank,
            ranks: n as u32,
            addr,
            next_addr: ring[(own + 1) % n],
            prev_addr: ring[(own + n - 1) % n],
            run: 0,
            collective: Collective::AllReduce,
            iterations: 1,
            compute_ns: 0,
            chunk_bytes: 64 * 1024,
            channels: 1,
            requests_per_step: 2,
            path_mtu: 1024,
            line_rate_bps: 200_000_000,
            congestion_control: Some(dcqcn::Parameters::DC55.scaled(50.0)),
            first_psn: 0,
            immediate: Immediate::Size,
            source_port: SourcePort::Verbs,
            tos: 0x6a,     // DSCP 26, ECT(0): the usual NCCL_IB_TC=106
            cnp_tos: 0xc2, // DSCP 48, ECT(0), as ConnectX sends it
            retransmit_timeout_ns: 200_000_000,
            retry_limit: 7,
            connect_timeout_ns: 10_000_000_000,
            start_at: 0,
            burst_packets: 4,
            seed: 1,
            data: true,
        })
    }

    /// Checks that the parts fit together.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.ranks < 2 {
            return Err(ConfigError::RingTooShort(self.ranks as usize));
        }
        if self.rank >= self.ranks {
            return Err(ConfigError::NoSuchRank { rank: self.rank, ranks: self.ranks as usize });
        }
        if !matches!(self.path_mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return Err(ConfigError::PathMtu(self.path_mtu));
        }
        if self.chunk_bytes == 0 || !self.chunk_bytes.is_multiple_of(4) || self.chunk_bytes > 1 << 30 {
            return Err(ConfigError::Chunk(self.chunk_bytes));
        }
        for (name, value, most) in [
            ("channels", self.channels, 64),
            ("requests_per_step", self.requests_per_step, 64),
            ("iterations", self.iterations, 1 << 20),
            ("steps", self.collective.steps(self.ranks), 1 << 24),
        ] {
            if value == 0 || value > most {
                return Err(ConfigError::Range { name, value, most });
            }
        }
        if self.line_rate_bps == 0 {
            return Err(ConfigError::LineRate);
        }
        if self.addr.is_ipv4() != self.next_addr.is_ipv4() || self.addr.is_ipv4() != self.prev_addr.is_ipv4() {
            return Err(ConfigError::MixedFamilies);
        }
        Ok(())
    }

    /// What limits the rate of one of its queue pairs; `None`: the line alone.
    pub fn rate_control(&self) -> Option<Box<dyn RateControl>> {
        let line_bps = self.line_rate_bps as f64;
        self.congestion_control.map(|parameters| Box::new(ReactionPoint::new(parameters, line_bps)) as _)
    }

    /// Bytes of request `request` of a step; the last ones may be shorter or empty.
    pub fn request_bytes(&self, request: u32) -> u32 {
        let full = self.request_stride();
        self.chunk_bytes.saturating_sub(full.saturating_mul(request)).min(full)
    }

    /// Bytes between the starts of two requests of a step: a full request, a multiple of 4.
    pub fn request_stride(&self) -> u32 {
        self.chunk_bytes.div_ceil(self.requests_per_step).next_multiple_of(4)
    }

    /// Data packets a step on one channel: what a switch needs to know for progress inside a step.
    pub fn packets_per_step(&self) -> u32 {
        (0..self.requests_per_step).map(|r| self.request_bytes(r).div_ceil(self.path_mtu).max(1)).sum()
    }
}

/// Why a rank cannot be set up so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A ring needs two ranks.
    #[error("a ring needs at least 2 ranks, here are {0}: list the address of every rank")]
    RingTooShort(usize),
    /// The rank is not in the ring.
    #[error("rank {rank} is not in a ring of {ranks}: ranks count from 0 to {}", ranks - 1)]
    NoSuchRank {
        /// The rank wished.
        rank: u32,
        /// Ranks there are.
        ranks: usize,
    },
    /// IBTA knows five path MTUs.
    #[error("path MTU {0}: use 256, 512, 1024, 2048 or 4096")]
    PathMtu(u32),
    /// A chunk must hold whole u32 values and fit one message.
    #[error("a step of {0} bytes: use a multiple of 4 from 4 bytes to 1 GiB")]
    Chunk(u32),
    /// A count out of range.
    #[error("{name} = {value}: use 1 to {most}")]
    Range {
        /// Which.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The most it may be.
        most: u32,
    },
    /// A NIC needs a rate.
    #[error("line rate 0: give the NIC a rate, for example 200Mbit")]
    LineRate,
    /// IPv4 and IPv6 in one ring.
    #[error("the ring mixes IPv4 and IPv6 addresses: use one family")]
    MixedFamilies,
}
