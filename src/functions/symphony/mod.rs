//! Symphony: step alignment of ring collectives (arXiv 2604.16880; our reconstruction).

mod config;

pub use config::{Job, Parameters, Policy, StepSource};
