//! The simulator: the very same switch and endpoints over a modelled fabric, in virtual time.
//!
//! Time is in nanoseconds, because switch and endpoints count in them; lines keep fractions, so that no rate is lost to
//! rounding. Events are ordered by (time, sequence), so that a seed gives the same results byte for byte. Packets travel
//! as parsed headers.
//!
//! ```text
//! setup (fabric, jobs, policy; everything drawn)  ->  run  ->  results (JCT, steps, marks, queues)
//! ```

pub mod astra;
mod engine;
mod hosts;
mod model;
mod node;
mod oracle;
mod packet;
mod queue;
mod results;
mod routes;
mod run;
mod setup;
#[cfg(test)]
mod tests;
mod topology;
pub mod training;

pub use results::{DEPTH_BUCKET_BYTES, DEPTH_BUCKETS, JobResults, LEAD_BUCKETS, Results};
pub use routes::{Hop, Route, routes};
pub use setup::{Discipline, Fabric, Job, Model, NOMINAL_BPS, Paths, Setup, SlowLink, Topology, Transfer};

/// Why a setup can't be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A part of the setup makes no sense.
    #[error("{field}: {reason}")]
    Setup {
        /// Which.
        field: &'static str,
        /// What is wrong with it, and the cure.
        reason: String,
    },
}

fn error(field: &'static str, reason: String) -> Error {
    Error::Setup { field, reason }
}

/// Runs a setup to the end of all its jobs, or to its limit.
///
/// # Errors
/// What makes no sense in it.
pub fn run(setup: &Setup) -> Result<Results, Error> {
    run::check(setup)?;
    match setup.model {
        Model::Roce => run::run(setup, false),
        Model::Astra(parameters) => astra::run(setup, parameters),
    }
}

/// The same with real frames through parser and deparser at every hop. Slow; gives the same results.
///
/// # Errors
/// As [`run`], and a model of hosts whose packets are no real ones.
pub fn run_as_bytes(setup: &Setup) -> Result<Results, Error> {
    run::check(setup)?;
    if setup.model != Model::Roce {
        return Err(error("model", "only roce has packets of bytes".into()));
    }
    run::run(setup, true)
}
