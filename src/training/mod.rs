//! What the workers compute between two aggregations: a small network on a real data set, with stragglers on demand.
//!
//! Pure: data, time and seeds are arguments. On one machine equal arguments give equal bits, which is what lets a run
//! through the switch be compared with one in a single process. Nothing here knows of rounds, packets or strategies.

mod curve;
mod dataset;
mod mlp;
mod stragglers;
mod trainer;

pub use curve::{Curve, Point};
pub use dataset::{Batch, Dataset, DatasetError, Sampler};
pub use mlp::{Mlp, Shape};
pub use stragglers::{Moment, Stragglers};
pub use trainer::{Hyperparameters, Trainer};
