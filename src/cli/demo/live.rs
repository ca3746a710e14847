//! One run of one arm: the switch on a thread in its namespace, the hosts on theirs, and what came of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use crossbeam::channel;

use super::lab::Lab;
use super::report::{RankTrace, RunResult, max_lead_steps};
use crate::backend::afxdp::{RunSpec, Runner};
use crate::backend::host::{self, RankReport, ServerSpec, netns};
use crate::backend::live::Snapshot;
use crate::dataplane::{Nanos, SwitchConfig};
use crate::functions::symphony::{Job, Parameters};
use crate::roce::Outcome;

/// Between the moment when all is ready and the start, beyond the idle time that arms the jobs.
const LEAD_IN: Duration = Duration::from_millis(50);

/// What one run needs.
pub struct RunSettings {
    /// Ports and queues.
    pub switch: SwitchConfig,
    /// Symphony's.
    pub parameters: Parameters,
    /// As the switch knows them.
    pub jobs: Vec<Job>,
    /// Ranks; `start_at` counts from the start of the run.
    pub servers: Vec<ServerSpec>,
    /// A rank that has not finished by then never will.
    pub limit: Duration,
}

/// Runs the switch and the ranks once. Job 1 counts as healthy, the others as jobs with a straggler.
///
/// # Errors
/// What keeps the run from taking place. A rank that fails or does not finish in time is no error: the result is then not
/// verified.
pub fn run(lab: &Lab, settings: RunSettings, stop: &AtomicBool) -> Result<RunResult> {
    let RunSettings { switch, parameters, jobs, mut servers, limit } = settings;
    let armed_after = jobs.iter().map(|job| job.idle_ns).max().unwrap_or(0);
    let switch = SwitchThread::start(lab.switch_netns(), lab.switch_spec(switch, parameters, jobs))?;
    let start = host::now() + armed_after + LEAD_IN.as_nanos() as Nanos;
    for rank in servers.iter_mut().flat_map(|server| &mut server.ranks) {
        rank.start_at += start;
    }
    let reports = host::run(&servers, limit, stop).context("the hosts could not run")?;
    let snapshot = switch.finish()?;
    Ok(result(&reports, &snapshot, start, limit))
}

/// A live switch on a thread of its own.
pub struct SwitchThread {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<Snapshot>>,
}

impl SwitchThread {
    /// Returns once the switch forwards.
    ///
    /// # Errors
    /// What keeps it from running.
    pub fn start(netns: String, spec: RunSpec) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel::bounded(1);
        let thread = thread::Builder::new().name("switch".into()).spawn({
            let stop = stop.clone();
            move || {
                netns::enter(&netns).with_context(|| format!("cannot enter the switch's namespace {netns}"))?;
                let mut runner = Runner::new(spec)?;
                let _ = ready.send(());
                let (_requests, requests) = channel::bounded(1);
                Ok(runner.run(&stop, requests)?)
            }
        })?;
        match is_ready.recv() {
            Ok(()) => Ok(SwitchThread { stop, thread }),
            Err(_) => Err(join(thread).err().unwrap_or_else(|| anyhow!("the switch ended before it began"))),
        }
    }

    /// Stops the switch and takes its last snapshot.
    ///
    /// # Errors
    /// If it failed meanwhile.
    pub fn finish(self) -> Result<Snapshot> {
        self.stop.store(true, Ordering::Relaxed);
        join(self.thread).context("the switch failed")
    }
}

fn join<T>(thread: thread::JoinHandle<Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("its thread panicked")))
}

fn result(reports: &[RankReport], snapshot: &Snapshot, start: Nanos, limit: Duration) -> RunResult {
    let since_start_ms = |at: Nanos| at.saturating_sub(start) as f64 / 1e6;
    let jct_ms = |job: u32| {
        let of_job = || reports.iter().filter(|r| r.job == job);
        let began = of_job().map(|r| r.start).min().unwrap_or(start);
        let ended = of_job().map(|r| r.finish).collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
        ended.map_or(limit.as_secs_f64() * 1e3, |ended| ended.saturating_sub(began) as f64 / 1e6)
    };
    let jobs: std::collections::BTreeSet<u32> = reports.iter().map(|r| r.job).collect();
    let mean_of = |healthy: bool| {
        let times: Vec<f64> = jobs.iter().filter(|job| (**job == 1) == healthy).map(|job| jct_ms(*job)).collect();
        times.iter().sum::<f64>() / times.len().max(1) as f64
    };
    let traces: Vec<RankTrace> = reports
        .iter()
        .map(|r| RankTrace {
            job: r.job,
            rank: r.rank as usize,
            completed_ms: r.steps.iter().map(|at| since_start_ms(*at)).collect(),
        })
        .collect();
    RunResult {
        healthy_jct_ms: mean_of(true),
        straggler_jct_ms: mean_of(false),
        marks: snapshot.marks,
        lead_tests: snapshot.jobs.iter().map(|j| j.lead_tests).sum(),
        job_packets: snapshot.jobs.iter().map(|j| j.packets).sum(),
        drops: snapshot.drops.iter().filter(|(_, n)| **n > 0).map(|(reason, n)| (*reason, *n)).collect(),
        retransmissions: reports.iter().map(|r| r.counters.retransmitted_packets).sum(),
        max_lead_steps: max_lead_steps(&traces),
        conservation: snapshot.conservation,
        verified: reports.iter().all(|r| matches!((&r.outcome, &r.verified), (Outcome::Finished { .. }, Some(Ok(()))))),
        host_late_ms: reports.iter().map(|r| r.starvation.late_max_ns).max().unwrap_or(0) as f64 / 1e6,
        host_share_lost: reports.iter().map(|r| r.starvation.share_lost).fold(0.0, f64::max),
        traces,
    }
}
