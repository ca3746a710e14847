//! The worker's side of aggregation in the network: one rank of a job, without socket, clock or thread.
//!
//! A [`Worker`] joins, learns the model, and then pushes one vector a round and gets the sum of everybody's back. A driver
//! hands it the packets that came ([`Worker::handle`]), sends what it has ([`Worker::poll_transmit`]), comes back when it
//! wants ([`Worker::next_timeout`]) and asks what became of it ([`Worker::poll_event`]): over a socket in
//! `backend::aggregation`, over a model of a network in tests. No packet is stored and nothing is allocated per packet: a
//! packet that must be sent again is written again from the vector.
//!
//! What it owes the switch: a contribution is the same in every copy of its packet, which differ by flag, time and the
//! frontier that the worker has learnt of meanwhile; it never contributes twice to a round, nor moves a contribution whose
//! fate it does not know into another one.

mod config;
mod counters;
mod protocol;
mod report;
mod store;
mod transfer;

#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError, JOIN_TIMEOUT_NS, SCALE_LOG2, SILENCE_TIMEOUT_NS, WINDOW};
pub use counters::Counters;
pub use protocol::{PushError, Worker};
pub use report::{Event, Failure, Report};
