//! Serene: aggregation in the switch, with a synchronisation strategy that changes while training runs.
//!
//! ```text
//! ingress   member -> boundary -> round -> store -> answer      whose, by which rule, counts or not, sums, to whom
//! egress    rewrite                                             each copy of a multicast answer to its worker
//! ```
//!
//! Workers push numbered contributions ([`crate::wire::aggregation`]) to segments of a model and get the sum of everything
//! made visible so far. When that is, and who waits for whom, is one entry of a rule table ([`Rule`]); which entry, the
//! round's number says, so that rules change between two rounds and never within one. The packet itself becomes the answer,
//! and nobody queues in the switch: who has to wait has no answer yet.
//!
//! The control plane ([`controller`]) is told what happens by digests ([`Serene::pop_digest`]) and acts by table writes and by
//! packets that come in at the CPU port.

mod arp;
mod boundary;
mod config;
mod control;
pub mod controller;
mod counters;
mod digest;
mod job;
mod join;
mod lanes;
mod member;
mod push;
mod request;
mod rewrite;
mod round;
mod snapshot;
mod state;
mod store;
mod strategy;
#[cfg(test)]
mod tests;

pub use boundary::{BankCell, BoundaryCell, SWAP_ID_LIMIT, abort_action, arm_action, complete_action};
#[cfg(test)]
pub(crate) use config::Guards;
pub use config::SereneConfig;
pub use controller::Policy;
pub use counters::Counters;
pub use digest::{Digest, DigestKind};
pub use job::{Job, JobError, MAX_SEGMENTS};
pub use member::Link;
pub use round::{CLOSED, Class, SeenCell, clock_action, close_action, count_action, seen_action};
pub use snapshot::{JobView, MemberView, SegmentView};
pub use strategy::{Late, MAX_SLACK, Quorum, RING_DEPTH, Rule, Strategy, UNBOUNDED, Visibility};

use digest::Digests;
use request::Request;
use state::{Around, JobState};

use crate::dataplane::{
    Cx, DropReason, Egress, Function, IpAddress, L3, Nanos, Phv, Replica, Service, Tracer, Verdict,
};
use crate::wire::aggregation::{Notice, Type};
use crate::wire::{AGGREGATION_PORT, Ecn, PROTOCOL_UDP, ethernet};

/// How often the control plane is told that a worker lives.
pub const ALIVE_NS: Nanos = 100_000_000;

/// Digests that may wait to be read.
const DIGESTS: usize = 4096;

/// The function.
#[derive(Clone, Debug)]
pub struct Serene {
    config: SereneConfig,
    /// The service's address as the PHV has it.
    address: IpAddress,
    /// By number on the wire.
    jobs: Box<[Option<Box<JobState>>]>,
    jobs_ever: u32,
    digests: Digests,
}

impl Serene {
    /// Without jobs.
    pub fn new(config: SereneConfig) -> Self {
        Serene {
            config,
            address: config.address.to_ipv6_mapped().octets(),
            jobs: (0..=u8::MAX).map(|_| None).collect(),
            jobs_ever: 0,
            digests: Digests::new(DIGESTS),
        }
    }

    /// What it was made with.
    pub fn config(&self) -> &SereneConfig {
        &self.config
    }

    /// Takes a job in: its start strategy is in force from round 1 on, as version 1, and all its sums are 0.
    ///
    /// # Errors
    /// What [`Job::check`] finds, [`JobError::Exists`].
    pub fn add_job(&mut self, job: &Job) -> Result<(), JobError> {
        job.check()?;
        let place = &mut self.jobs[usize::from(job.id)];
        if place.is_some() {
            return Err(JobError::Exists(job.id));
        }
        let incarnation = self.config.incarnation.wrapping_add(self.jobs_ever);
        *place = Some(Box::new(JobState::new(job, incarnation)));
        self.jobs_ever = self.jobs_ever.wrapping_add(1);
        Ok(())
    }

    /// Forgets a job with all its sums. Says whether it was there.
    pub fn remove_job(&mut self, id: u8) -> bool {
        self.jobs[usize::from(id)].take().is_some()
    }

    /// Writes an entry of the rule table. `bank` is 0 or 1; that in force is not to be changed but for its members, by those
    /// whose rounds the controller closes.
    pub fn set_rule(&mut self, job: u8, bank: usize, rule: Rule) {
        if let Some(state) = &mut self.jobs[usize::from(job)] {
            state.rules[bank & 1] = rule;
        }
    }

    /// The copies that a job's multicast group is to have: one for each worker that has joined and takes part.
    pub fn replicas(&self, job: u8) -> Vec<Replica> {
        self.jobs[usize::from(job)].as_deref().map(JobState::replicas).unwrap_or_default()
    }

    /// The oldest digest that has not been read.
    pub fn pop_digest(&mut self) -> Option<Digest> {
        self.digests.pop()
    }

    /// Digests lost because nobody read them.
    pub fn digests_lost(&self) -> u64 {
        self.digests.lost()
    }

    /// For tests that show what a check is for.
    #[cfg(test)]
    pub(crate) fn set_guards(&mut self, job: u8, guards: Guards) {
        if let Some(state) = &mut self.jobs[usize::from(job)] {
            state.guards = guards;
        }
    }

    /// Whether there is a service at all: it has an address.
    #[inline]
    fn is_on(&self) -> bool {
        !self.config.address.is_unspecified()
    }

    /// Whether a packet is for the service.
    #[inline]
    fn serves(&self, phv: &Phv) -> bool {
        phv.dport == AGGREGATION_PORT
            && phv.l3 == L3::Ipv4
            && phv.protocol == PROTOCOL_UDP
            && !phv.fragment
            && phv.dst == self.address
    }

    fn serve<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Result<Verdict, DropReason> {
        let request = Request::parse(cx.frame.bytes(), phv)?;
        let by_worker = match request.header.kind {
            Type::Push | Type::Pull | Type::Join | Type::Leave => true,
            Type::Arm | Type::Close | Type::Abort | Type::Complete
                if self.config.cpu_port == Some(phv.ingress_port) =>
            {
                false
            }
            _ => return Err(DropReason::NotControl),
        };
        let state = self.jobs[usize::from(request.header.job)].as_deref_mut();
        cx.table("job", state.is_some());
        let state = match state {
            Some(state) => state,
            None if by_worker => return request.notice(cx, phv, &self.config, Notice::UnknownJob),
            None => return Err(DropReason::UnknownJob),
        };
        let mut around = Around { config: &self.config, digests: &mut self.digests };
        if by_worker {
            state.serve(cx, phv, &mut around, &request)
        } else {
            state.control(cx, phv, &mut around, &request)
        }
    }
}

impl Function for Serene {
    #[inline]
    fn ingress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        if !self.is_on() {
            return Verdict::Continue;
        }
        if phv.ethertype == ethernet::ARP {
            return arp::answer(cx, phv, &self.config);
        }
        if !self.serves(phv) {
            return Verdict::Continue;
        }
        cx.stage("ingress", "member");
        phv.bridged.service = Service::Aggregation;
        phv.ecn = Ecn::NotEct;
        self.serve(cx, phv).unwrap_or_else(Verdict::Drop)
    }

    #[inline]
    fn egress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, _: &mut Egress<'_>, phv: &mut Phv) -> Option<DropReason> {
        if phv.bridged.service != Service::Aggregation {
            return None;
        }
        let job = rewrite::multicast_job(cx, phv)?;
        match &self.jobs[usize::from(job)] {
            Some(state) => rewrite::rewrite(cx, phv, &self.config, &state.members),
            None => Some(DropReason::UnknownJob),
        }
    }
}
