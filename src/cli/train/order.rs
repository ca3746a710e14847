//! What a coordinator and its worker processes say to each other: JSON lines over pipes.
//!
//! Down the worker's standard input: an [`Order`], a [`Command::Start`] when all have joined, a [`Command::Stop`] in the
//! end. Up its standard output: [`Message`]s. A worker whose input ends stops, so none outlives its coordinator.

use std::net::SocketAddrV4;

use serde::{Deserialize, Serialize};

use super::data::Source;
use crate::dataplane::Nanos;
use crate::training::{Dataset, Hyperparameters, Shape, Stragglers};

/// What all workers of a job do, and a single process that does it for all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Job's number at the switch.
    pub job: u8,
    /// Packets of a vector.
    pub segments: u32,
    /// Values of a packet.
    pub lanes: usize,
    /// Values travel times 2 to this.
    pub scale_log2: u32,
    /// Workers of the job.
    pub workers: u8,
    /// Data set.
    pub data: Source,
    /// Hidden layers.
    pub hidden: Vec<usize>,
    /// Samples of a worker's minibatch.
    pub batch: usize,
    /// Learning rate.
    pub learning_rate: f32,
    /// What an iteration's computation takes on a healthy worker: the gradient, and sleep.
    pub padding_ns: Nanos,
    /// Who is slower.
    pub stragglers: Stragglers,
    /// Of network, minibatches and stragglers.
    pub seed: u64,
    /// The last round to take part in; `None`: until told to stop.
    pub rounds: Option<u32>,
    /// Compare every sum with that of a single process, bit for bit.
    pub verify: bool,
}

impl Task {
    /// Sizes of the network on this data.
    pub fn shape(&self, data: &Dataset) -> Shape {
        Shape { inputs: data.features(), hidden: self.hidden.clone(), classes: data.classes() }
    }

    /// The same for training on this data.
    pub fn hyperparameters(&self, data: &Dataset) -> Hyperparameters {
        Hyperparameters {
            shape: self.shape(data),
            seed: self.seed,
            workers: self.workers.into(),
            batch: self.batch,
            learning_rate: self.learning_rate,
        }
    }
}

/// For one worker process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The job's.
    pub task: Task,
    /// Its rank.
    pub worker: u8,
    /// Namespace to be in.
    pub netns: Option<String>,
    /// Its address as the switch knows it.
    pub local: SocketAddrV4,
    /// The switch, or a parameter server.
    pub switch: SocketAddrV4,
    /// Evaluate the model so often, in the background; `None`: not this worker.
    pub evaluate_every_ns: Option<Nanos>,
}

/// What a worker is told after its order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Begin, at this time of `CLOCK_MONOTONIC`.
    Start {
        /// When.
        at_ns: Nanos,
    },
    /// Give up the open round, and leave.
    Stop,
}

/// What a worker tells. Times are since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// It has joined and waits for the start.
    Joined,
    /// A round is over.
    Round(Round),
    /// A model was evaluated, some time after it was what it was.
    Accuracy {
        /// When the model was that.
        at_ns: Nanos,
        /// Share of the test samples, 0..=1.
        accuracy: f64,
    },
    /// It has left.
    Left(Summary),
    /// It cannot go on.
    Failed(String),
}

/// One round as its worker saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Label of the contribution.
    pub round: u32,
    /// Version of the rule that it was pushed under.
    pub rule_version: u16,
    /// Computation began.
    pub began_ns: Nanos,
    /// Computation as the task and its stragglers have it.
    pub compute_ns: Nanos,
    /// What the gradient took of that.
    pub gradient_ns: Nanos,
    /// The vector left so much later than it should: the processor was not there.
    pub overrun_ns: Nanos,
    /// Barrier wait.
    pub wait_ns: Nanos,
    /// The rest of the exchange.
    pub transfer_ns: Nanos,
    /// The last answer came.
    pub done_ns: Nanos,
    /// Share of the segments whose contribution was in time.
    pub included: f32,
    /// Share of the segments whose contribution was late.
    pub late: f32,
    /// Of those, share that goes into the next contribution.
    pub returned: f32,
    /// Packets sent again.
    pub retransmissions: u32,
    /// The sum differs from a single process's.
    pub wrong: bool,
}

/// A worker's whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that came for it.
    pub packets_received: u64,
    /// Values that were too large and clipped.
    pub clipped: u64,
    /// Processor time of the training thread.
    pub cpu_ns: Nanos,
    /// Accuracy on all test samples in the end, where it evaluates.
    pub accuracy: Option<f64>,
}
