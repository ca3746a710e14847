//! One run of one arm in virtual time.

use anyhow::{Context, Result, bail};

use super::report::{RunResult, Swap};
use super::scenario::{Arm, EVALUATE_EVERY_NS, SERVICE, Scenario};
use crate::cli::train::data::Data;
use crate::cli::train::order::Task;
use crate::cli::train::simulated;
use crate::functions::serene::controller::{Outcome, SwapRecord};

/// Trains on `arm` as `task` says; as live, but for time.
///
/// # Errors
/// The parameter server's arm, which has no model here, and what keeps the run from taking place.
pub fn run(scenario: &Scenario, data: &Data, arm: Arm, task: &Task, target: Option<f64>) -> Result<RunResult> {
    if arm == Arm::Ps {
        bail!("--arms ps: the parameter server is a process, not a model; leave it or --simulate out");
    }
    let aggregation = scenario.aggregation(arm)?.context("the demo has an aggregation service")?;
    let job = aggregation.jobs.into_iter().next().context("the demo has a job")?;
    let (record, swaps) = simulated::run(SERVICE, job, task, data, EVALUATE_EVERY_NS, scenario.limits(target))?;
    let stable = |swap: &SwapRecord| swap.outcome == Outcome::Stable && swap.from.strategy != swap.to.strategy;
    let swaps = swaps
        .into_iter()
        .filter(stable)
        .map(|swap| Swap { boundary: swap.boundary, to: swap.to.strategy.to_string() })
        .collect();
    Ok(RunResult::new(scenario, task, target, record, swaps))
}
