//! What the control plane asks of the worker between batches. A job lives twice, with the same slot: in the kernel side,
//! which tracks, and in Symphony, which aligns.

use std::collections::BTreeMap;

use super::MAX_PATH_MTU;
use super::error::Error;
use super::worker::Worker;
use crate::backend::clock;
use crate::backend::live::{Command, PortSnapshot, Reply, Snapshot};
use crate::backend::xdp::Stats;
use crate::dataplane::{Nanos, PortId};
use crate::functions::symphony::{CompiledJob, FlowView, Job, JobView, edges};

impl Worker {
    /// Does what is asked.
    ///
    /// # Errors
    /// A sentence that says why not; then nothing has changed.
    pub fn command(&mut self, command: Command, name: &str, since: Nanos) -> Result<Reply, String> {
        let now = clock::now();
        match command {
            Command::AddJob(job) => self.add_job(&job, now)?,
            Command::RemoveJob(id) => {
                // The kernel side first: it is the one that may refuse.
                if let Some(slot) = self.switch.functions().0.job_slot(id) {
                    self.kernel.remove_job(slot).map_err(|error| error.to_string())?;
                }
                self.switch.functions_mut().0.remove_job(id).map_err(|error| error.to_string())?;
            }
            Command::EnableJob(id, enabled) => {
                let symphony = &mut self.switch.functions_mut().0;
                symphony.enable_job(id, enabled, now).map_err(|error| error.to_string())?;
                self.configure_jobs(now)?;
            }
            Command::SetParameters(parameters) => {
                self.switch.functions_mut().0.set_parameters(parameters, now);
                self.configure_jobs(now)?;
            }
            Command::LoadAggregation(job) => self.load_job(&job)?,
            Command::UnloadAggregation(id) => self.unload_job(id)?,
            Command::Swap { job, strategy } => self.swap(job, strategy, now)?,
            Command::Aggregation => return Ok(Reply::Aggregation(self.aggregation(now, since))),
            Command::Snapshot => return Ok(Reply::Snapshot(Box::new(self.snapshot(name, since)))),
        }
        Ok(Reply::Done)
    }

    /// Adds a job to Symphony and to the kernel side, or to none.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub fn add_job(&mut self, job: &Job, now: Nanos) -> Result<(), String> {
        if job.path_mtu > MAX_PATH_MTU {
            return Err(Error::PathMtuTooLarge { job: job.id, path_mtu: job.path_mtu }.to_string());
        }
        let symphony = &mut self.switch.functions_mut().0;
        let slot = symphony.add_job(job, now).map_err(|error| error.to_string())?;
        let compiled = CompiledJob::new(job, symphony.parameters());
        self.kernel.install_job(slot, &compiled, edges(job), now).map_err(|error| {
            let _ = self.switch.functions_mut().0.remove_job(job.id); // it was just added
            error.to_string()
        })
    }

    /// Forgets what has been silent for long. To be called every second or so.
    pub fn forget_old(&mut self, now: Nanos) {
        if let Err(error) = self.kernel.age(now) {
            tracing::warn!("cannot forget old flows: {error}");
        }
        self.switch.functions_mut().2.expire(now);
    }

    /// All that a user may look at.
    pub fn snapshot(&mut self, name: &str, since: Nanos) -> Snapshot {
        let now = clock::now();
        let (jobs, flows) = self.jobs();
        let stats = self.kernel.stats().ok();
        let counters = self.switch.counters();
        let (mut conservation, marks) = (counters.conservation, counters.marks());
        let mut drops: BTreeMap<_, _> = counters.drops.iter().map(|(reason, count)| (reason.label(), count)).collect();
        // What the XDP program dropped came in and was lost like the rest.
        for (reason, count) in stats.iter().flat_map(|stats| &stats.drops) {
            *drops.entry(reason.label()).or_default() += count;
            conservation.rx += count;
            conservation.dropped += count;
        }
        Snapshot {
            version: 1,
            name: name.to_owned(),
            uptime_ns: now.saturating_sub(since),
            conservation,
            drops,
            marks,
            kernel: stats.map(kernel).unwrap_or_default(),
            ports: self.ports(),
            jobs,
            flows,
            aggregation: self.aggregation(now, since),
        }
    }

    /// Gives the kernel side the constants that Symphony has compiled.
    fn configure_jobs(&mut self, now: Nanos) -> Result<(), String> {
        let symphony = &self.switch.functions().0;
        for slot in symphony.jobs().iter().filter_map(|job| symphony.job_slot(job.job)) {
            if let Some((_, compiled)) = symphony.job(slot) {
                self.kernel.configure_job(slot, compiled, now).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Jobs and flows: the kernel side's registers, Symphony's counters.
    fn jobs(&self) -> (Vec<JobView>, Vec<FlowView>) {
        let symphony = &self.switch.functions().0;
        let flows: Vec<FlowView> = self
            .kernel
            .flows()
            .iter()
            .filter_map(|flow| {
                let (job, compiled) = symphony.job(flow.job)?;
                let activity = self.kernel.job_state(flow.job)?.activity;
                let ends = (&flow.src, &flow.dst, flow.dest_qpn);
                Some(FlowView::new(ends, job.id, &flow.state, compiled, activity))
            })
            .collect();
        let mut jobs = symphony.jobs();
        for job in &mut jobs {
            let state = symphony.job_slot(job.job).and_then(|slot| self.kernel.job_state(slot));
            if let Some(state) = state {
                job.observe(state.activity, state.minimum, &flows);
            }
        }
        (jobs, flows)
    }

    fn ports(&mut self) -> Vec<PortSnapshot> {
        let census = self.pool.census();
        let with_kernel = |frames: &BTreeMap<PortId, usize>, id| frames.get(&id).copied().unwrap_or(0) as u64;
        let (switch, ports) = (&self.switch, &mut self.ports);
        let ports = ports.iter_mut().zip(&switch.counters().ports).zip(0..);
        ports
            .map(|((port, counters), id)| {
                let received = port.socket.as_mut().map_or(0, |socket| socket.received() as u64);
                PortSnapshot {
                    name: port.name.clone(),
                    interface: port.interface.clone(),
                    up: port.is_up(),
                    rx_packets: counters.rx_packets,
                    rx_bytes: counters.rx_bytes,
                    tx_packets: counters.tx_packets,
                    tx_bytes: counters.tx_bytes,
                    depth_bytes: switch.depth_bytes(id),
                    max_depth_bytes: switch.max_depth_bytes(id),
                    late_packets: port.late_packets,
                    max_late_ns: port.max_late_ns,
                    not_sent: port.not_sent(),
                    marks: counters.marks,
                    xdp: port.socket.as_ref().map_or_else(BTreeMap::new, |socket| socket.statistics()),
                    frames: [
                        ("fill", with_kernel(&census.receive, id).saturating_sub(received)),
                        ("rx", received),
                        ("tx", with_kernel(&census.transmit, id)),
                    ]
                    .into(),
                }
            })
            .collect()
    }
}

/// The kernel side's counters by name.
fn kernel(stats: Stats) -> BTreeMap<String, u64> {
    let outcomes = stats.outcomes;
    let mut named: BTreeMap<String, u64> = [
        ("redirected", stats.redirected),
        ("cas_lost", stats.cas_lost),
        ("not_roce", outcomes.not_roce),
        ("not_data", outcomes.not_data),
        ("not_of_a_job", outcomes.not_of_a_job),
        ("flows_full", outcomes.flows_full),
        ("in_order", outcomes.in_order),
        ("old", outcomes.old),
        ("gap", outcomes.gap),
        ("resync", outcomes.resync),
    ]
    .into_iter()
    .map(|(name, count)| (name.to_owned(), count))
    .collect();
    named.extend(stats.drops.iter().map(|(reason, count)| (format!("drop_{}", reason.label()), *count)));
    named
}
