//! What the control plane can read of the pipeline.

use std::net::SocketAddrV4;

use serde::Serialize;

use super::counters::Counters;
use super::member::Link;
use super::strategy::Rule;
use super::{JobState, Serene};

/// A worker as the pipeline sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its address.
    pub address: SocketAddrV4,
    /// Where its process is; `None` until it joins.
    pub link: Option<Link>,
    /// The latest round that it pushed to the last segment.
    pub round: u32,
}

/// A job as the pipeline sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    /// Its workers, by number.
    pub members: Vec<MemberView>,
    /// The rule in force.
    pub rule: Rule,
    /// First round that it is in force for.
    pub start: u32,
    /// The swap under way: first round of the other rule, and that rule.
    pub armed: Option<(u32, Rule)>,
    /// A bit for each worker that has pushed for that round or beyond.
    pub reached: u32,
    /// The highest round pushed so far.
    pub max_round: u32,
    /// The last round of the last segment that was released.
    pub frontier: u32,
    /// Counters.
    pub counters: Counters,
}

/// Sums of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentView {
    /// The last round released.
    pub frontier: u32,
    /// What is in the open round, under a deferred rule.
    pub open: Vec<i32>,
    /// Everything made visible so far.
    pub sum: Vec<i32>,
}

impl JobState {
    fn view(&self) -> JobView {
        let last = self.job.segments - 1;
        let generation = self.boundary.peek();
        let members = (0..).zip(&self.job.members).map(|(worker, address)| MemberView {
            address: *address,
            link: self.members.of(worker).and_then(|member| member.link),
            round: self.rounds.clock(last, worker),
        });
        JobView {
            members: members.collect(),
            rule: self.rules[generation.bank],
            start: generation.start,
            armed: generation.armed.map(|armed| (armed.boundary, self.rules[generation.bank ^ 1])),
            reached: generation.armed.map_or(0, |armed| armed.reached),
            max_round: self.boundary.max_round(),
            frontier: self.store.frontier(last),
            counters: self.counters,
        }
    }
}

impl Serene {
    /// A job.
    pub fn job(&self, id: u8) -> Option<JobView> {
        self.jobs[usize::from(id)].as_deref().map(JobState::view)
    }

    /// A segment of a job.
    pub fn segment(&self, job: u8, segment: u32) -> Option<SegmentView> {
        let state = self.jobs[usize::from(job)].as_deref()?;
        let (open, sum) = state.store.peek(segment)?;
        Some(SegmentView { frontier: state.store.frontier(segment), open: open.to_vec(), sum: sum.to_vec() })
    }
}
