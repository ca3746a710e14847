//! Drives [`crate::roce::Endpoint`]s over sockets: one thread a server, a server being a network namespace (or the one we
//! are in) that holds any number of ranks, each with an address of its own.
//!
//! Packets are paced in userspace. How late the threads ran is reported, so that a machine too busy is not taken for a
//! congested network.

pub mod netns;
mod server;
mod socket;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

pub use crate::backend::clock::now;
use server::{Server, Shared};

use crate::dataplane::Nanos;
use crate::roce::{Config, ConfigError, Counters, Outcome, WrongValue};

/// One server: a namespace and its ranks.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Name under `/run/netns`; `None`: where we are.
    pub netns: Option<String>,
    /// Its ranks. `start_at` is on `CLOCK_MONOTONIC` ([`now`]).
    pub ranks: Vec<Config>,
}

/// How one rank fared.
#[derive(Clone, Debug)]
pub struct RankReport {
    /// Job.
    pub job: u32,
    /// Rank.
    pub rank: u32,
    /// When it was to start, `CLOCK_MONOTONIC`.
    pub start: Nanos,
    /// When its last step was complete; `None`: never.
    pub finish: Option<Nanos>,
    /// When each step was complete.
    pub steps: Vec<Nanos>,
    /// [`Outcome::Running`] when time was up, the run was stopped or another rank failed.
    pub outcome: Outcome,
    /// The reduced values against the closed form; `None` when the rank did not finish.
    pub verified: Option<Result<(), WrongValue>>,
    /// What it counted.
    pub counters: Counters,
    /// Packets that came for it and were no RoCEv2 packets, or with a wrong ICRC, by reason.
    pub malformed: BTreeMap<String, u64>,
    /// Packets that its server's kernel refused to send.
    pub refused: u64,
    /// Why, the last time.
    pub last_refusal: Option<String>,
    /// How well its server's thread kept time.
    pub starvation: Starvation,
}

/// How well a server's thread kept time. All of it is about the machine that runs the hosts, none about the network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Starvation {
    /// Most that a packet of the rank left late.
    pub late_max_ns: Nanos,
    /// Share of the rank's time that pacing lost because the thread came later than a burst of a few packets makes up for.
    pub share_lost: f64,
    /// Packets that the kernel threw away because they were read too slowly.
    pub receive_overflows: u64,
    /// Processor time that the server's thread used, for all its ranks.
    pub cpu_ns: Nanos,
}

/// Why hosts could not run at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A rank is set up wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The namespace cannot be entered.
    #[error(
        "cannot enter network namespace {name}: {source}. `ip netns list` shows those that exist; entering needs root"
    )]
    Namespace {
        /// Its name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Raw sockets need a capability.
    #[error("cannot open a raw socket: {source}. Run as root or with CAP_NET_RAW")]
    RawSocket {
        /// Why.
        source: io::Error,
    },
    /// Packets are larger than the interface's MTU.
    #[error(
        "packets of path MTU {path_mtu} do not fit the interface's MTU: make it {needed} (`ip link set IF mtu {needed}`), here and all the way, or use a smaller path MTU"
    )]
    PathMtu {
        /// RoCE path MTU.
        path_mtu: u32,
        /// The MTU that the interface must have.
        needed: u32,
    },
    /// The rank's address cannot be listened on.
    #[error(
        "cannot listen on {addr}, UDP port 4791: {source}. Is the address on an interface here, and nobody else (another rank, rdma_rxe) on the port?"
    )]
    Bind {
        /// The address.
        addr: IpAddr,
        /// Why.
        source: io::Error,
    },
}

/// Runs all ranks of all servers until every one has finished, one has failed, `limit` has passed or `stop` is set. Reports
/// are in the order of the specification.
///
/// # Errors
/// What keeps the ranks from running at all: a missing namespace, address or permission.
pub fn run(servers: &[ServerSpec], limit: Duration, stop: &AtomicBool) -> Result<Vec<RankReport>, Error> {
    let ranks = || servers.iter().flat_map(|server| &server.ranks);
    let shared = Shared {
        stop,
        failed: AtomicBool::new(false),
        unfinished: AtomicUsize::new(ranks().count()),
        end: now().saturating_add(limit.as_nanos() as Nanos),
        local: ranks().map(|config| config.addr).collect(),
    };
    let ready = Barrier::new(servers.len());
    let serve = |spec: &ServerSpec| {
        let server = Server::open(spec, &shared);
        if server.is_err() {
            shared.failed.store(true, Ordering::Relaxed);
        }
        // Nobody sends before everybody listens.
        ready.wait();
        server.and_then(|server| server.run(&shared))
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = servers.iter().map(|spec| scope.spawn(|| serve(spec))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut reports = Vec::new();
    for result in results {
        reports.extend(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
    }
    Ok(reports)
}
