//! Hosts as the engine sees them.

use super::packet::Transport;
use super::results::Results;
use crate::dataplane::{Nanos, Phv};

/// A packet leaves a host.
pub(super) struct Sent<H> {
    pub(super) phv: Phv,
    pub(super) frame: H,
    /// When its last bit has left.
    pub(super) ends_at: Nanos,
}

/// All hosts of a fabric, and the lines on which they send into it.
pub(super) trait HostModel<W: Transport> {
    /// How many lines there are.
    fn lines(&self) -> u32;

    /// The host of a line.
    fn host(&self, line: u32) -> u32;

    /// A packet has come to a host. Adds the lines that may have something to send, now or later, to `lines`.
    fn receive(&mut self, now: Nanos, phv: &Phv, frame: W::Handle, wire: &mut W, lines: &mut Vec<u32>);

    /// The packet that leaves on a line now, if it is free and there is one.
    fn send(&mut self, line: u32, now: Nanos, wire: &mut W) -> Option<Sent<W::Handle>>;

    /// When to look at a line again, asked until there is no more to say; `None` when an event for it is on its way, or
    /// nothing is to come.
    fn wake(&mut self, line: u32) -> Option<Nanos>;

    /// An event for a line has come.
    fn woken(&mut self, line: u32);

    /// The switch asks a host to pause its data, or to go on; as [`HostModel::receive`].
    fn pause(&mut self, host: u32, paused: bool, lines: &mut Vec<u32>);

    /// A transfer of the setup begins; as [`HostModel::receive`].
    fn transfer(&mut self, now: Nanos, index: u32, lines: &mut Vec<u32>);

    /// Whether all jobs are done.
    fn is_done(&self) -> bool;

    /// Adds what it has seen to the results.
    fn report(&self, results: &mut Results);
}
