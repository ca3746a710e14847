//! Jobs and their flows in the maps: the control plane's part, done between batches.

use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapFlags};

use super::load::Kernel;
use super::mapped::Plain;
use super::skel::types::{self, job_config, job_state};
use super::state::{Flow, StateError};
use crate::dataplane::{IpAddress, Nanos};
use crate::functions::symphony::{CompiledJob, FLOW_AGE_NS, StepSource, UNARMED, tick};

impl From<&CompiledJob> for job_config {
    fn from(job: &CompiledJob) -> Self {
        job_config {
            enabled: job.enabled.into(),
            // In the order of `enum step_source`.
            step_source: match job.step_source {
                StepSource::Message => 0,
                StepSource::Psn => 1,
                StepSource::Imm => 2,
                StepSource::UdpSport => 3,
            },
            epoch_shift: job.epoch_shift,
            path_mtu_shift: job.path_mtu_shift,
            requests_per_step: job.requests_per_step,
            request_shift: job.requests_per_step.max(1).ilog2() as u8,
            reserved: 0,
            steps_per_collective: job.steps_per_collective,
            packets_per_step: job.packets_per_step,
            reciprocal: job.reciprocal,
            idle_ticks: job.idle_ticks,
        }
    }
}

impl Kernel {
    /// Puts a job into a free slot, with the edges of its ring: (source, destination, rank of the source). It is not armed
    /// until it has been idle once.
    ///
    /// # Errors
    /// When an edge belongs to another job, or a map refuses; then nothing of the job stays.
    pub fn install_job(
        &mut self,
        slot: u16,
        job: &CompiledJob,
        edges: impl IntoIterator<Item = (IpAddress, IpAddress, u16)>,
        now: Nanos,
    ) -> Result<(), StateError> {
        self.restart(slot, now)?;
        self.write_config(slot, &job.into())?;
        for (src, dst, rank) in edges {
            let (key, edge) = (types::edge_key { src, dst }, types::edge { job: slot, rank });
            if let Err(e) = self.skel.maps.edges.update(key.as_bytes(), edge.as_bytes(), MapFlags::NO_EXIST) {
                self.remove_job(slot)?;
                return Err(StateError::new("edges", e));
            }
        }
        Ok(())
    }

    /// Replaces the constants of a job that is installed. Switched on by that it starts like a new one; else its state stays.
    ///
    /// # Errors
    /// When a map refuses.
    pub fn configure_job(&mut self, slot: u16, job: &CompiledJob, now: Nanos) -> Result<(), StateError> {
        let key = u32::from(slot).to_ne_bytes();
        let old = self.skel.maps.jobs.lookup(&key, MapFlags::ANY).map_err(|e| StateError::new("jobs", e))?;
        let was_enabled = old.and_then(|bytes| job_config::from_bytes(&bytes)).is_some_and(|old| old.enabled != 0);
        if job.enabled && !was_enabled {
            self.restart(slot, now)?;
        }
        self.write_config(slot, &job.into())
    }

    fn write_config(&mut self, slot: u16, config: &job_config) -> Result<(), StateError> {
        self.skel
            .maps
            .jobs
            .update(&u32::from(slot).to_ne_bytes(), config.as_bytes(), MapFlags::ANY)
            .map_err(|e| StateError::new("jobs", e))
    }

    /// Removes a job: its edges, its flows, its state.
    ///
    /// # Errors
    /// When a map refuses.
    pub fn remove_job(&mut self, slot: u16) -> Result<(), StateError> {
        self.write_config(slot, &job_config::default())?; // from here on its packets are not tracked
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
        self.forget(|flow| flow.job == slot)?;
        self.job_state.write(slot.into(), &job_state::default());
        Ok(())
    }

    /// A job starts without a past, and must be idle before it is marked.
    fn restart(&mut self, slot: u16, now: Nanos) -> Result<(), StateError> {
        self.forget(|flow| flow.job == slot)?;
        let state = job_state { last_tick: tick(now), generation: UNARMED, ..job_state::default() };
        self.job_state.write(slot.into(), &state);
        Ok(())
    }

    /// Forgets flows that were silent for [`FLOW_AGE_NS`] and says how many. Call it every few seconds.
    ///
    /// # Errors
    /// When a map refuses.
    pub fn age(&mut self, now: Nanos) -> Result<usize, StateError> {
        const AGE_TICKS: i32 = (FLOW_AGE_NS >> 10) as i32;
        self.forget(|flow| tick(now).wrapping_sub(flow.last_tick) as i32 >= AGE_TICKS)
    }

    /// Takes flows out of the tables and gives their slots back, in ascending order.
    fn forget(&mut self, gone: impl Fn(&Flow) -> bool) -> Result<usize, StateError> {
        let mut flows = self.flows();
        flows.retain(gone);
        for flow in &flows {
            let edge = types::edge_key { src: flow.src, dst: flow.dst };
            let key = types::flow_key { edge, dest_qpn: flow.dest_qpn };
            self.skel.maps.flows.delete(key.as_bytes()).map_err(|e| StateError::new("flows", e))?;
            self.disown(flow);
            self.flow_state.write(flow.slot as usize, &types::flow_state::default());
            self.skel
                .maps
                .free_slots
                .update(&[], &flow.slot.to_ne_bytes(), MapFlags::ANY)
                .map_err(|e| StateError::new("free_slots", e))?;
        }
        Ok(flows.len())
    }

    /// The minimum must not name a flow that is gone.
    fn disown(&self, flow: &Flow) {
        const MINIMUM: usize = 2; // word of {min, owner} in struct job_state
        let Some(word) = self.job_state.word(flow.job.into(), MINIMUM) else { return };
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |minimum| {
            let mut halves = minimum.to_ne_bytes();
            let (_, owner) = halves.split_at_mut(4);
            let owned = owner == (flow.slot + 1).to_ne_bytes();
            owner.fill(0);
            owned.then(|| u64::from_ne_bytes(halves))
        });
    }
}
