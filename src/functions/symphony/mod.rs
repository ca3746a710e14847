//! Symphony: step alignment of ring collectives (arXiv 2604.16880; our reconstruction).

mod compiled;
mod config;

pub use compiled::{CompiledJob, edges, mapped, tick};
pub use config::{Job, Parameters, Policy, StepSource};
