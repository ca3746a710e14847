//! The seam between a queue pair and its congestion control: whoever limits a sender's rate answers these three.
//!
//! [`super::Config::rate_control`] is where a scheme is chosen. What it needs to hear beyond CNPs (delays, INT) would be
//! more methods here.

use std::fmt;

use super::dcqcn::ReactionPoint;
use crate::dataplane::Nanos;

/// A sender's rate. Pure: time comes with each call and never runs backwards.
pub trait RateControl: fmt::Debug + Send {
    /// The rate at which to send now, bit/s, above 0 and at most the line rate.
    fn rate_bps(&mut self, now: Nanos) -> f64;

    /// A CNP has come.
    fn on_cnp(&mut self, now: Nanos);

    /// `bytes` of frame have been sent.
    fn on_sent(&mut self, now: Nanos, bytes: u64);
}

impl RateControl for ReactionPoint {
    fn rate_bps(&mut self, now: Nanos) -> f64 {
        ReactionPoint::rate_bps(self, now)
    }

    fn on_cnp(&mut self, now: Nanos) {
        ReactionPoint::on_cnp(self, now);
    }

    fn on_sent(&mut self, now: Nanos, bytes: u64) {
        ReactionPoint::on_sent(self, now, bytes);
    }
}
