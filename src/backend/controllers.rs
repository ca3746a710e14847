//! Runs the control plane of aggregation jobs beside a switch: what the pipeline tells it goes in, its packets go through the
//! CPU port. Shared by the live switch and the simulator.

use crate::dataplane::{Frames, Nanos, PortId, Switch, Tracer};
use crate::functions::serene::{DigestKind, Job, Serene};

/// A set of functions with Serene in it.
pub trait HasSerene {
    /// It.
    fn serene(&mut self) -> &mut Serene;
}

impl<F> HasSerene for (Serene, F) {
    fn serene(&mut self) -> &mut Serene {
        &mut self.0
    }
}

impl<S, F> HasSerene for (S, Serene, F) {
    fn serene(&mut self) -> &mut Serene {
        &mut self.1
    }
}

/// The control plane.
pub struct Controllers {
    cpu_port: Option<PortId>,
}

impl Controllers {
    /// Without jobs.
    pub fn new(cpu_port: Option<PortId>) -> Self {
        Controllers { cpu_port }
    }

    /// Reads digests and answers, injects packets. Returns when to come again at the latest.
    pub fn drive<F, S, T>(
        &mut self,
        _now: Nanos,
        switch: &mut Switch<F, S::Handle>,
        _frames: &mut S,
        _trace: &mut T,
    ) -> Option<Nanos>
    where
        F: crate::dataplane::Function + HasSerene,
        S: Frames,
        T: Tracer,
    {
        self.cpu_port?;
        while let Some(digest) = switch.functions_mut().serene().pop_digest() {
            if let DigestKind::Joined { .. } = digest.kind {
                let replicas = switch.functions_mut().serene().replicas(digest.job);
                switch.set_group(digest.job.into(), &replicas);
            }
        }
        None
    }

    /// Takes a job in.
    ///
    /// # Errors
    /// Why not.
    pub fn load<F: crate::dataplane::Function + HasSerene, H>(
        &mut self,
        job: &Job,
        switch: &mut Switch<F, H>,
        _now: Nanos,
    ) -> Result<(), String> {
        switch.functions_mut().serene().add_job(job).map_err(|wrong| wrong.to_string())
    }
}
