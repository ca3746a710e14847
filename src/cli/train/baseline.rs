//! Stochastic gradient descent in a single process: what the workers and the switch together must equal, bit for bit.

use super::data::Data;
use super::order::Task;
use crate::training::{Mlp, Trainer};

/// All workers of a BSP job, one after the other. Contributions are quantised as the wire has it, and summed modulo 2^32.
pub struct Baseline {
    workers: Vec<Trainer>,
    scale: f64,
    sum: Vec<i32>,
    delta: Vec<f32>,
}

impl Baseline {
    /// Before the first round.
    pub fn new(task: &Task, data: &Data) -> Self {
        let parameters = task.hyperparameters(&data.train);
        let trainer = |worker| Trainer::new(&parameters, data.train.len(), worker);
        let size = parameters.shape.parameters();
        Baseline {
            workers: (0..task.workers.into()).map(trainer).collect(),
            scale: f64::from(1u32 << task.scale_log2),
            sum: vec![0; size],
            delta: vec![0.0; size],
        }
    }

    /// One round of all workers; returns the sum of all rounds, as it stands at the switch.
    pub fn round(&mut self, data: &Data) -> &[i32] {
        let factor = self.scale / self.workers.len() as f64;
        for worker in &mut self.workers {
            for (sum, value) in self.sum.iter_mut().zip(worker.step(&data.train)) {
                *sum = sum.wrapping_add((f64::from(*value) * factor).round_ties_even() as i32);
            }
        }
        for (delta, sum) in self.delta.iter_mut().zip(&self.sum) {
            *delta = (f64::from(*sum) / self.scale) as f32;
        }
        self.workers.iter_mut().for_each(|worker| worker.set_delta(&self.delta));
        &self.sum
    }

    /// The model.
    pub fn mlp(&self) -> Option<&Mlp> {
        self.workers.first().map(Trainer::mlp)
    }
}
