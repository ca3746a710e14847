//! One worker's share of stochastic gradient descent.

use super::dataset::{Dataset, Sampler};
use super::mlp::{Mlp, Shape};

/// What all workers of a job agree on.
#[derive(Clone, Debug, PartialEq)]
pub struct Hyperparameters {
    /// Sizes of the network.
    pub shape: Shape,
    /// Of the initial network, which is the same on all workers, and of the minibatches.
    pub seed: u64,
    /// Workers that share the data.
    pub workers: u32,
    /// Samples of one worker's minibatch.
    pub batch: usize,
    /// Learning rate.
    pub learning_rate: f32,
}

/// Gradients of one worker's minibatches, at whatever the model is.
#[derive(Clone, Debug)]
pub struct Trainer {
    mlp: Mlp,
    initial: Vec<f32>,
    sampler: Sampler,
    batch: usize,
    learning_rate: f32,
    step: Vec<f32>,
}

impl Trainer {
    /// Worker `worker` with its share of `samples`.
    ///
    /// # Panics
    /// As [`Sampler::new`].
    pub fn new(parameters: &Hyperparameters, samples: usize, worker: u32) -> Self {
        let Hyperparameters { shape, seed, workers, batch, learning_rate } = parameters;
        let mlp = Mlp::new(shape.clone(), *seed);
        let initial = mlp.parameters().to_vec();
        Trainer {
            step: vec![0.0; initial.len()],
            sampler: Sampler::new(samples, *seed, worker, *workers),
            batch: *batch,
            learning_rate: *learning_rate,
            mlp,
            initial,
        }
    }

    /// Minus learning rate times gradient of the next minibatch: by how much this worker alone would move the model.
    ///
    /// # Panics
    /// If `data` is not what the trainer was made for.
    pub fn step(&mut self, data: &Dataset) -> &[f32] {
        let batch = data.batch(self.sampler.next(self.batch));
        self.mlp.gradient(&batch, &mut self.step);
        self.step.iter_mut().for_each(|value| *value *= -self.learning_rate);
        &self.step
    }

    /// Puts the model `delta` away from where it began.
    pub fn set_delta(&mut self, delta: &[f32]) {
        let parameters = self.mlp.parameters_mut().iter_mut();
        parameters
            .zip(self.initial.iter().zip(delta))
            .for_each(|(parameter, (initial, delta))| *parameter = initial + delta);
    }

    /// The model.
    pub fn mlp(&self) -> &Mlp {
        &self.mlp
    }
}
