//! Runs the control plane of aggregation jobs beside a switch: digests and answers go in, table writes and packets through
//! the CPU port come out. The live switch and the simulator share it; who calls it owns the switch, so that nothing happens
//! in the pipeline between reading a digest and acting on it.

use crate::dataplane::{Frames, Function, Nanos, PortId, Switch, Tracer};
use crate::functions::serene::controller::{Command, Controller, Event};
use crate::functions::serene::{Job, JobError, Serene};

/// Turns that the control plane takes in one call before packets have theirs again.
const MAX_TURNS: usize = 16;

/// Functions with Serene among them.
pub trait HasSerene: Function {
    /// To read.
    fn serene(&self) -> &Serene;
    /// To change, between packets.
    fn serene_mut(&mut self) -> &mut Serene;
}

impl<F: Function> HasSerene for (Serene, F) {
    fn serene(&self) -> &Serene {
        &self.0
    }
    fn serene_mut(&mut self) -> &mut Serene {
        &mut self.0
    }
}

impl<S: Function, F: Function> HasSerene for (S, Serene, F) {
    fn serene(&self) -> &Serene {
        &self.1
    }
    fn serene_mut(&mut self) -> &mut Serene {
        &mut self.1
    }
}

/// The controllers of all aggregation jobs.
#[derive(Debug, Default)]
pub struct Controllers {
    cpu_port: Option<PortId>,
    jobs: Vec<Controller>,
    commands: Vec<Command>,
    lost: u64,
}

impl Controllers {
    /// Without jobs, behind a port of the switch.
    pub fn new(cpu_port: Option<PortId>) -> Self {
        Controllers { cpu_port, ..Controllers::default() }
    }

    /// Takes a job in, here and in the switch.
    ///
    /// # Errors
    /// As [`Serene::add_job`]; then nothing has changed.
    pub fn load<F: HasSerene, H>(&mut self, job: &Job, switch: &mut Switch<F, H>) -> Result<(), JobError> {
        let serene = switch.functions_mut().serene_mut();
        serene.add_job(job)?;
        self.jobs.push(Controller::new(serene.config(), job));
        Ok(())
    }

    /// Forgets a job, here and in the switch. Says whether it was there.
    pub fn unload<F: HasSerene, H>(&mut self, id: u8, switch: &mut Switch<F, H>) -> bool {
        self.jobs.retain(|controller| controller.job().id != id);
        switch.set_group(id.into(), &[]);
        switch.functions_mut().serene_mut().remove_job(id)
    }

    /// Controllers of the jobs, in the order in which they were loaded.
    pub fn jobs(&self) -> &[Controller] {
        &self.jobs
    }

    /// The controller of a job.
    pub fn job_mut(&mut self, id: u8) -> Option<&mut Controller> {
        self.jobs.iter_mut().find(|controller| controller.job().id == id)
    }

    /// What happened, the oldest first, with its job.
    pub fn pop_event(&mut self) -> Option<(u8, Event)> {
        self.jobs.iter_mut().find_map(|controller| Some((controller.job().id, controller.pop_event()?)))
    }

    /// Packets of the control plane for which the switch had no frame. They are sent again.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Tells the controllers what happened and does what they want. To be called after packets went through the switch, and
    /// at the time that it returns, if nothing happens before.
    pub fn drive<F: HasSerene, S: Frames, T: Tracer>(
        &mut self,
        now: Nanos,
        switch: &mut Switch<F, S::Handle>,
        frames: &mut S,
        trace: &mut T,
    ) -> Option<Nanos> {
        let cpu_port = self.cpu_port.filter(|_| !self.jobs.is_empty())?;
        for _ in 0..MAX_TURNS {
            while let Some(digest) = switch.functions_mut().serene_mut().pop_digest() {
                if let Some(controller) = self.job_mut(digest.job) {
                    controller.handle_digest(now, &digest);
                }
            }
            while let Some(departure) = switch.dequeue(cpu_port, now, frames, trace) {
                for controller in &mut self.jobs {
                    controller.handle_packet(now, frames.bytes(&departure.frame)); // each knows its own
                }
                frames.free(departure.frame);
            }
            let mut commands = std::mem::take(&mut self.commands);
            for controller in &mut self.jobs {
                controller.poll(now, &mut commands);
            }
            let is_quiet = commands.is_empty();
            for command in commands.drain(..) {
                self.execute(now, cpu_port, command, switch, frames, trace);
            }
            self.commands = commands;
            if is_quiet {
                break;
            }
        }
        self.jobs.iter().filter_map(Controller::next_wakeup).min()
    }

    fn execute<F: HasSerene, S: Frames, T: Tracer>(
        &mut self,
        now: Nanos,
        cpu_port: PortId,
        command: Command,
        switch: &mut Switch<F, S::Handle>,
        frames: &mut S,
        trace: &mut T,
    ) {
        match command {
            Command::Rule { job, bank, rule } => switch.functions_mut().serene_mut().set_rule(job, bank, rule),
            Command::Regroup { job } => {
                let replicas = switch.functions().serene().replicas(job);
                switch.set_group(job.into(), &replicas);
            }
            Command::Inject(bytes) => match frames.emit(&bytes) {
                Some(frame) => switch.receive(cpu_port, now, frame, frames, trace),
                None => self.lost += 1,
            },
        }
    }
}
