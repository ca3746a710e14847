//! Aggregation jobs of the live switch: what is asked of them, what is told of them, and what of it goes into the log.

use super::log_limit::Admitted;
use super::worker::Worker;
use crate::backend::live::AggregationSnapshot;
use crate::dataplane::Nanos;
use crate::functions::serene::controller::{Controller, Event};
use crate::functions::serene::{Job, Strategy};

impl Worker {
    /// Takes a job in.
    ///
    /// # Errors
    /// A sentence that says why not.
    pub fn load_job(&mut self, job: &Job) -> Result<(), String> {
        if self.switch.functions().1.config().cpu_port.is_none() {
            return Err("this switch does not aggregate; start it with [serene] address in its configuration".into());
        }
        self.controllers.load(job, &mut self.switch).map_err(|wrong| wrong.to_string())?;
        let (members, segments) = (job.members.len(), job.segments);
        tracing::info!(job = job.id, members, segments, strategy = %job.start, "aggregation job loaded");
        Ok(())
    }

    /// Forgets a job and its sums.
    pub(super) fn unload_job(&mut self, id: u8) -> Result<(), String> {
        if !self.controllers.unload(id, &mut self.switch) {
            return Err(self.unknown_job(id));
        }
        tracing::info!(job = id, "aggregation job unloaded");
        Ok(())
    }

    /// Has a job go over to a strategy, as soon as that is possible.
    pub(super) fn swap(&mut self, id: u8, strategy: Strategy, now: Nanos) -> Result<(), String> {
        let Some(controller) = self.controllers.job_mut(id) else { return Err(self.unknown_job(id)) };
        strategy.check(controller.job().members.len()).map_err(|wrong| format!("{strategy}: {wrong}"))?;
        tracing::info!(job = id, %strategy, "swap asked for");
        controller.swap(now, strategy);
        self.control(now);
        Ok(())
    }

    /// The state of all jobs.
    pub(super) fn aggregation(&self, now: Nanos, since: Nanos) -> Vec<AggregationSnapshot> {
        let serene = &self.switch.functions().1;
        let jobs = self.controllers.jobs().iter();
        jobs.filter_map(|controller| AggregationSnapshot::new(controller, serene, now, since)).collect()
    }

    /// Tells the log what the control plane did.
    pub(super) fn log_events(&mut self, now: Nanos) {
        while let Some((job, event)) = self.controllers.pop_event() {
            match self.log_limit.admit(now) {
                Admitted::Yes { suppressed: 0 } => {}
                Admitted::Yes { suppressed } => tracing::warn!("{suppressed} events of aggregation jobs not shown"),
                Admitted::No => continue,
            }
            match event {
                Event::Dropped { .. } | Event::Silent { .. } => tracing::warn!(job, "{event}"),
                _ => tracing::info!(job, "{event}"),
            }
        }
    }

    fn unknown_job(&self, id: u8) -> String {
        let numbers: Vec<_> = self.controllers.jobs().iter().map(number).collect();
        match numbers.is_empty() {
            true => format!("there is no aggregation job {id}, nor any other; `ctl job load` takes one in"),
            false => format!("there is no aggregation job {id}; there are: {}", numbers.join(", ")),
        }
    }
}

fn number(controller: &Controller) -> String {
    controller.job().id.to_string()
}
