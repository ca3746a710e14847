//! One run of one arm: the switch on a thread in its namespace, a process for each worker in theirs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};

use super::report::{RunResult, Swap};
use super::scenario::{Arm, Scenario};
use crate::backend::aggregation::{ParameterServer, ServerConfig};
use crate::backend::clock;
use crate::cli::demo::lab::Lab;
use crate::cli::demo::live::SwitchThread;
use crate::cli::train::coordinator::{self, Record};
use crate::cli::train::order::Task;
use crate::functions::symphony::Parameters;

/// What all runs have in common.
pub struct Live<'a> {
    /// The namespaces.
    pub lab: &'a Lab,
    /// What is trained.
    pub scenario: &'a Scenario,
    /// Set by ^C.
    pub stop: &'a AtomicBool,
}

impl Live<'_> {
    /// Trains on `arm` as `task` says. Without a target until the task's rounds are over; with one for the length of a run,
    /// and on until the target is reached.
    ///
    /// # Errors
    /// What keeps the run from taking place.
    pub fn run(&self, arm: Arm, task: &Task, target: Option<f64>, watch: &mut dyn FnMut(&Record)) -> Result<RunResult> {
        let Live { lab, scenario, stop } = self;
        let mut spec = lab.switch_spec(scenario.switch(task.seed), Parameters::default(), Vec::new());
        spec.aggregation = scenario.aggregation(arm)?;
        let switch = SwitchThread::start(lab.switch_netns(), spec)?;
        let server = (arm == Arm::Ps).then(|| Server::start(lab, scenario)).transpose()?;
        let record = coordinator::run(&scenario.orders(lab, task, arm), scenario.limits(target), stop, watch)?;
        let snapshot = switch.finish()?;
        drop(server);
        // Workers that leave in the end change the members, and not the strategy.
        let swaps = snapshot.aggregation.into_iter().flat_map(|job| job.swaps);
        let swaps = swaps.filter(|swap| swap.outcome == "stable" && swap.from != swap.to);
        let swaps = swaps.map(|swap| Swap { boundary: swap.boundary, to: swap.to });
        Ok(RunResult::new(scenario, task, target, record, swaps.collect()))
    }
}

/// The parameter server, on a thread as punctual as the switch's.
struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(lab: &Lab, scenario: &Scenario) -> Result<Self> {
        let task = scenario.task(0);
        let config = ServerConfig {
            netns: Some(lab.server_netns(scenario.hosts())),
            listen: scenario.parameter_server(),
            job: task.job,
            workers: task.workers,
            segments: task.segments,
            lanes: task.lanes,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, told) = crossbeam::channel::bounded(1);
        let thread = thread::spawn({
            let stop = stop.clone();
            move || {
                // Bound here, since binding takes the thread into the namespace.
                let bound = ParameterServer::bind(config);
                let server = match bound {
                    Ok(server) => server,
                    Err(error) => return drop(tell.send(Err(error))), // whoever started us waits for it
                };
                let _ = tell.send(Ok(()));
                clock::be_punctual(clock::SWITCH_PRIORITY);
                server.run(&stop);
            }
        });
        told.recv().context("the parameter server ended before it began")??;
        Ok(Server { stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
