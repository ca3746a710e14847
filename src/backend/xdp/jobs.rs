//! Jobs and their flows in the maps: the control plane's part, done between batches.

use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapFlags};

use super::load::Kernel;
use super::mapped::Plain;
use super::skel::types;
use super::state::{Flow, StateError};
use super::{FlowState, JobConfig, JobState};
use crate::dataplane::{IpAddress, Nanos};

/// One edge of a job's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Sender.
    pub src: IpAddress,
    /// Receiver.
    pub dst: IpAddress,
    /// Of the sender in the ring.
    pub rank: u16,
}

/// Flows that were silent for so long are forgotten.
const FLOW_AGE_TICKS: u32 = (60_000_000_000u64 >> 10) as u32;

/// Time as the registers have it: units of 1024 ns, modulo 2^32.
fn tick(now: Nanos) -> u32 {
    (now >> 10) as u32
}

impl Kernel {
    /// Puts a job into a free slot. It is not armed until it has been idle once.
    ///
    /// # Errors
    /// When an edge belongs to another job, or a map refuses; then nothing of the job stays.
    pub fn install_job(&mut self, slot: u16, job: &JobConfig, edges: &[Edge], now: Nanos) -> Result<(), StateError> {
        self.job_state.write(slot.into(), &JobState { last_tick: tick(now), ..JobState::default() });
        self.write_job(slot, job)?;
        for edge in edges {
            let key = types::edge_key { src: edge.src, dst: edge.dst };
            let value = types::edge { job: slot, rank: edge.rank };
            if let Err(e) = self.skel.maps.edges.update(key.as_bytes(), value.as_bytes(), MapFlags::NO_EXIST) {
                self.remove_job(slot)?;
                return Err(StateError::new("edges", e));
            }
        }
        Ok(())
    }

    /// Replaces the configuration of a job that is installed, its edges apart.
    ///
    /// # Errors
    /// When the map refuses.
    pub fn write_job(&mut self, slot: u16, job: &JobConfig) -> Result<(), StateError> {
        self.skel
            .maps
            .jobs
            .update(&u32::from(slot).to_ne_bytes(), job.as_bytes(), MapFlags::ANY)
            .map_err(|e| StateError::new("jobs", e))
    }

    /// Removes a job: its edges, its flows, its state.
    ///
    /// # Errors
    /// When a map refuses.
    pub fn remove_job(&mut self, slot: u16) -> Result<(), StateError> {
        self.write_job(slot, &JobConfig::default())?; // from here on its packets are not tracked
        let edges = &self.skel.maps.edges;
        let of_job: Vec<Vec<u8>> = edges
            .keys()
            .filter(|key| {
                let edge = edges.lookup(key, MapFlags::ANY).ok().flatten();
                edge.and_then(|e| types::edge::from_bytes(&e)).is_some_and(|e| e.job == slot)
            })
            .collect();
        for key in of_job {
            edges.delete(&key).map_err(|e| StateError::new("edges", e))?;
        }
        for flow in self.flows().into_iter().filter(|flow| flow.state.job == slot) {
            self.forget(&flow)?;
        }
        self.job_state.write(slot.into(), &JobState::default());
        Ok(())
    }

    /// Forgets flows that were silent for 60 s and says how many.
    ///
    /// # Errors
    /// When a map refuses.
    pub fn age(&mut self, now: Nanos) -> Result<usize, StateError> {
        let old = |flow: &Flow| tick(now).wrapping_sub(flow.state.last_tick) as i32 >= FLOW_AGE_TICKS as i32;
        let flows: Vec<Flow> = self.flows().into_iter().filter(old).collect();
        for flow in &flows {
            self.forget(flow)?;
        }
        Ok(flows.len())
    }

    /// Takes a flow out of the tables and gives its slot back.
    fn forget(&mut self, flow: &Flow) -> Result<(), StateError> {
        let key = types::flow_key { src: flow.src, dst: flow.dst, dest_qpn: flow.dest_qpn };
        self.skel.maps.flows.delete(key.as_bytes()).map_err(|e| StateError::new("flows", e))?;
        self.disown(flow);
        self.flow_state.write(flow.slot as usize, &FlowState::default());
        self.skel
            .maps
            .free_slots
            .update(&[], &flow.slot.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| StateError::new("free_slots", e))
    }

    /// The minimum must not name a flow that is gone.
    fn disown(&self, flow: &Flow) {
        const MINIMUM: usize = 1; // word of {min, owner} in struct job_state
        let Some(word) = self.job_state.word(flow.state.job.into(), MINIMUM) else { return };
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |minimum| {
            let mut halves = minimum.to_ne_bytes();
            let (_, owner) = halves.split_at_mut(4);
            let owned = owner == (flow.slot + 1).to_ne_bytes();
            owner.fill(0);
            owned.then(|| u64::from_ne_bytes(halves))
        });
    }
}
