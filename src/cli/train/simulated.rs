//! The same training in virtual time: the workers' gradients are real, their hosts and lines are modelled.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use anyhow::{Context, Result, bail};

use super::baseline::Baseline;
use super::coordinator::{Limits, Record, WorkerRecord};
use super::data::Data;
use super::measure::SMOOTHING;
use super::order::{Round, Task};
use super::worker::SAMPLES_ON_THE_WAY;
use crate::backend::sim::training::{self, Flow, Learner, Setup};
use crate::dataplane::Nanos;
use crate::functions::serene::Job;
use crate::functions::serene::controller::SwapRecord;
use crate::training::{Curve, Dataset, Moment, Point, Trainer};
use crate::worker::{Report, Worker};

/// Lines of 1 Gbit/s, 50 us one way: what sockets and veths of a small machine come to, more or less.
const LINE_BPS: u64 = 1_000_000_000;
const DELAY_NS: Nanos = 50_000;
/// Room at each port for the answers of a few rounds.
const BUFFER_BYTES: u64 = 8 << 20;
/// A run without a limit of its own ends after so long.
const LONGEST_NS: Nanos = 3_600_000_000_000;

/// Trains as `task` says with the job's strategies; the last worker evaluates every `evaluate_every_ns`. Returns the swaps
/// too.
///
/// # Errors
/// A job that the switch refuses, and what keeps a worker from going on.
pub fn run(
    service: Ipv4Addr,
    job: Job,
    task: &Task,
    data: &Data,
    evaluate_every_ns: Nanos,
    limits: Limits,
) -> Result<(Record, Vec<SwapRecord>)> {
    let parameters = task.hyperparameters(&data.train);
    let mut test = data.test.clone();
    test.truncate(SAMPLES_ON_THE_WAY);
    let accuracy = Rc::new(RefCell::new(Vec::new()));
    let rank = |rank: u8| Rank {
        task,
        data,
        rank,
        limits,
        trainer: Trainer::new(&parameters, data.train.len(), rank.into()),
        delta: vec![0.0; parameters.shape.parameters()],
        baseline: task.verify.then(|| Baseline::new(task, data)),
        evaluation: (rank + 1 == task.workers).then(|| Evaluation {
            test: test.clone(),
            every_ns: evaluate_every_ns,
            due_ns: 0,
        }),
        accuracy: accuracy.clone(),
        pending: Round::default(),
        rounds: Vec::new(),
    };
    let setup = Setup {
        seed: task.seed,
        job,
        address: service,
        line_bps: LINE_BPS,
        delay_ns: DELAY_NS,
        buffer_bytes: BUFFER_BYTES,
        fault: None,
        control_fault: None,
        limit_ns: limits.at_most_ns.unwrap_or(LONGEST_NS),
    };
    let (results, ranks) = training::run(&setup, (0..task.workers).map(rank).collect())?;
    if let Some(failure) = results.workers.iter().find_map(|worker| worker.failure.clone()) {
        bail!(failure);
    }
    let workers = ranks.into_iter().map(|rank| WorkerRecord { rounds: rank.rounds, summary: None }).collect();
    let accuracy = Rc::into_inner(accuracy).context("a worker outlived its run")?.into_inner();
    Ok((Record { workers, accuracy, elapsed_ns: results.end_ns, open_wait_ns: 0 }, results.swaps))
}

/// What a worker process does.
struct Rank<'a> {
    task: &'a Task,
    data: &'a Data,
    rank: u8,
    limits: Limits,
    trainer: Trainer,
    delta: Vec<f32>,
    baseline: Option<Baseline>,
    evaluation: Option<Evaluation>,
    /// Of all workers, though one writes it: everybody must know when there is enough.
    accuracy: Rc<RefCell<Vec<Point>>>,
    /// The round under way, as far as it is known.
    pending: Round,
    rounds: Vec<Round>,
}

struct Evaluation {
    test: Dataset,
    every_ns: Nanos,
    due_ns: Nanos,
}

impl Learner for Rank<'_> {
    fn step(&mut self, now: Nanos, worker: &Worker, step: &mut [f32]) -> Nanos {
        // The last packet may have room for more than the network's last parameter.
        step.iter_mut().zip(self.trainer.step(&self.data.train)).for_each(|(value, own)| *value = *own);
        let moment = Moment { worker: self.rank.into(), iteration: self.rounds.len() as u64, since_start_ns: now };
        let compute_ns = self.task.stragglers.compute_ns(moment, self.task.padding_ns, self.task.seed);
        self.pending = Round { rule_version: worker.rule_version(), began_ns: now, compute_ns, ..Round::default() };
        compute_ns
    }

    fn after(&mut self, now: Nanos, worker: &Worker, report: &Report) -> Flow {
        worker.read_delta(&mut self.delta);
        self.trainer.set_delta(&self.delta);
        let expected = self.baseline.as_mut().map(|baseline| baseline.round(self.data));
        let share = |segments: u32| segments as f32 / self.task.segments as f32;
        self.rounds.push(Round {
            round: report.round,
            wait_ns: report.wait_ns(),
            transfer_ns: report.transfer_ns(),
            done_ns: now,
            included: share(report.included),
            late: share(report.late),
            returned: share(report.returned),
            retransmissions: report.retransmissions,
            wrong: expected.is_some_and(|expected| worker.sum().get(..expected.len()) != Some(expected)),
            ..self.pending
        });
        if let Some(evaluation) = self.evaluation.as_mut().filter(|evaluation| now >= evaluation.due_ns) {
            evaluation.due_ns = now + evaluation.every_ns;
            let accuracy = self.trainer.mlp().accuracy(&evaluation.test);
            self.accuracy.borrow_mut().push(Point { at_ns: now, accuracy });
        }
        if self.task.rounds.is_some_and(|last| report.next_round > last) {
            Flow::Stop
        } else if self.is_enough(now) {
            Flow::End
        } else {
            Flow::Continue
        }
    }
}

impl Rank<'_> {
    fn is_enough(&self, now: Nanos) -> bool {
        let Limits { at_least_ns, accuracy, .. } = self.limits;
        let reached = |target| Curve::smoothed(&self.accuracy.borrow(), SMOOTHING).reaches(target).is_some();
        now >= at_least_ns && accuracy.is_some_and(reached)
    }
}
