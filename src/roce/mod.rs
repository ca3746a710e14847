//! The hosts: RC queue pairs, DCQCN, ring collectives. Sans-I/O.
//!
//! An [`Endpoint`] is one rank's NIC with the collective on top. A driver hands it the packets that came
//! ([`Endpoint::on_packet`]), sends what it has ([`Endpoint::poll_transmit`]) and comes back when it wants
//! ([`Endpoint::next_timeout`]): over sockets in `backend::host`, over a modelled fabric in the simulator, where thousands
//! of ranks run without payload. Nothing here stores or copies a packet: what must be sent again is known by its range of
//! PSNs.

mod buffer;
mod channel;
mod config;
mod counters;
pub mod dcqcn;
mod endpoint;
mod pacer;
pub mod psn;
mod queue_pair;
mod rate;
mod requester;
mod responder;
mod ring;

use std::net::IpAddr;

pub use buffer::WrongValue;
pub use channel::{CLEAR_TO_SEND_BYTES, SLOTS};
pub use config::{Collective, Config, ConfigError, Immediate, SourcePort};
pub use counters::Counters;
pub use endpoint::{DataRef, Endpoint, Transmit};
pub use queue_pair::{Side, queue_pair_number, source_port};
pub use rate::RateControl;

use crate::dataplane::Nanos;

/// How a rank fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not started, or under way.
    Running,
    /// All steps are complete. The rank still answers its neighbours.
    Finished {
        /// When.
        at: Nanos,
    },
    /// It cannot go on.
    Failed(Failure),
}

/// Why a rank cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing ever came from a neighbour.
    #[error("{peer} never answered: is its rank running, with the same job, ring and run, and is there a path to it?")]
    Silent {
        /// The neighbour.
        peer: IpAddr,
    },
    /// A neighbour stopped answering.
    #[error("{peer} stopped answering: gave up after {retries} retransmission timeouts in a row")]
    RetriesExceeded {
        /// The neighbour.
        peer: IpAddr,
        /// The limit.
        retries: u32,
    },
    /// A neighbour refused a request (IBTA vol. 1 clause 9.7.5.2.8).
    #[error(
        "{peer} refused a request with NAK {syndrome:#04x}: do both ranks have the same step size, requests per step and path MTU?"
    )]
    Rejected {
        /// The neighbour.
        peer: IpAddr,
        /// AETH syndrome.
        syndrome: u8,
    },
    /// A neighbour sent a request that does not fit, and has been told so.
    #[error(
        "{peer} sent a request that does not fit: do both ranks have the same step size, requests per step and path MTU?"
    )]
    Refused {
        /// The neighbour.
        peer: IpAddr,
    },
    /// A collective left a wrong value.
    #[error("a wrong value: {0}")]
    WrongValue(WrongValue),
}
