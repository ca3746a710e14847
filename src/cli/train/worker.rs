//! One worker process: trains, and reports.
//!
//! The training thread computes, sleeps and exchanges. What it finds goes to others through channels: to one that writes
//! lines, so that a full pipe never delays a round, and to one that evaluates models in the background.

use std::io::{self, BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use crossbeam::channel::{self, Receiver, Sender};

use super::baseline::Baseline;
use super::data::Data;
use super::order::{Command, Message, Order, Round, Summary};
use crate::backend::aggregation::{Client, ClientConfig, Error};
use crate::backend::clock;
use crate::backend::host::netns;
use crate::dataplane::Nanos;
use crate::training::{Dataset, Mlp, Moment, Trainer};

/// Test samples that an evaluation on the way takes: 0.8 points of standard error at most, in a few milliseconds.
pub const SAMPLES_ON_THE_WAY: usize = 2000;

/// Obeys a coordinator on standard input. Errors are told to it.
///
/// # Errors
/// Nobody is there to be told.
pub fn obey() -> Result<()> {
    let mut lines = BufReader::new(io::stdin()).lines();
    let order = lines.next().context("no order on standard input")??;
    let order: Order = serde_json::from_str(&order).context("the order on standard input is not one of ours")?;
    let (commands, obeyed) = channel::unbounded();
    let stop = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let stop = stop.clone();
        move || listen(lines, &commands, &stop)
    });
    let (tell, told) = channel::unbounded::<Message>();
    let writer = thread::spawn(move || write(&told));
    if let Err(error) = run(&order, &obeyed, &stop, &tell) {
        let _ = tell.send(Message::Failed(format!("{error:#}"))); // else nobody listens any more
    }
    drop(tell);
    let written = writer.join().map_err(|_| anyhow!("the thread that writes panicked"))?;
    let Order { worker, task, .. } = &order;
    ensure!(
        written.is_ok(),
        "worker {worker} of job {} stopped, as `symphony train` that started it is gone",
        task.job
    );
    Ok(())
}

/// Until the coordinator closes the pipe, or is gone.
fn listen(lines: impl Iterator<Item = io::Result<String>>, commands: &Sender<Nanos>, stop: &AtomicBool) {
    for line in lines.map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Command::Start { at_ns }) => drop(commands.send(at_ns)), // the trainer is gone: nothing to start
            Ok(Command::Stop) | Err(_) => break,
        }
    }
    stop.store(true, Ordering::Relaxed);
}

fn write(messages: &Receiver<Message>) -> Result<()> {
    let mut stdout = io::stdout().lock();
    for message in messages {
        serde_json::to_writer(&mut stdout, &message)?;
        stdout.write_all(b"\n")?;
        if messages.is_empty() {
            stdout.flush()?;
        }
    }
    Ok(stdout.flush()?)
}

/// Joins, waits for the start, trains until told to stop.
///
/// # Errors
/// What keeps the worker from going on.
pub fn run(order: &Order, start: &Receiver<Nanos>, stop: &Arc<AtomicBool>, tell: &Sender<Message>) -> Result<()> {
    let Order { task, worker, .. } = order;
    let data = task.data.load()?;
    let parameters = task.hyperparameters(&data.train);
    let needed = parameters.shape.parameters();
    let fits = task.segments as usize * task.lanes;
    ensure!(
        (fits - task.lanes + 1..=fits).contains(&needed),
        "a network of {needed} parameters takes segments = {} of {} lanes, and the job has {}",
        needed.div_ceil(task.lanes),
        task.lanes,
        task.segments
    );
    if let Some(name) = &order.netns {
        netns::enter(name)
            .with_context(|| format!("cannot enter network namespace {name}; `ip netns list` shows them"))?;
    }
    let mut config = ClientConfig::new(order.switch, order.local, task.job, *worker, task.segments, task.lanes);
    config.worker.scale_log2 = task.scale_log2;
    let mut client = Client::join(config)?;
    client.stop_on(stop.clone());
    let evaluator = order.evaluate_every_ns.map(|every| Evaluator::start(every, data.test.clone(), tell.clone()));
    let mut training = Training {
        order,
        trainer: Trainer::new(&parameters, data.train.len(), (*worker).into()),
        baseline: task.verify.then(|| Baseline::new(task, &data)),
        data,
        client,
        delta: vec![0.0; needed],
        iteration: 0,
        start: 0,
    };
    // Where the coordinator is gone there is nobody to be told, and no start; the job is left in good order all the same.
    let _ = tell.send(Message::Joined);
    if let Ok(at) = start.recv() {
        training.start = at;
        clock::be_punctual(clock::HOST_PRIORITY);
        training.train(stop, tell, evaluator.as_ref())?;
    }
    let Training { trainer, client, data, .. } = training;
    let counters = *client.counters();
    client.leave()?;
    let accuracy = evaluator.map(|evaluator| {
        evaluator.finish();
        trainer.mlp().accuracy(&data.test)
    });
    let _ = tell.send(Message::Left(Summary {
        packets_sent: counters.packets_sent,
        packets_received: counters.packets_received,
        clipped: counters.clipped,
        cpu_ns: clock::thread_cpu(),
        accuracy,
    }));
    Ok(())
}

/// The training thread's own.
struct Training<'a> {
    order: &'a Order,
    data: Data,
    trainer: Trainer,
    baseline: Option<Baseline>,
    client: Client,
    delta: Vec<f32>,
    iteration: u64,
    start: Nanos,
}

impl Training<'_> {
    fn train(&mut self, stop: &AtomicBool, tell: &Sender<Message>, evaluator: Option<&Evaluator>) -> Result<()> {
        clock::sleep(self.start.saturating_sub(clock::now()));
        let last = self.order.task.rounds.unwrap_or(u32::MAX);
        let mut evaluated_at = 0;
        while !stop.load(Ordering::Relaxed) && self.client.worker().round() <= last {
            let Some(round) = self.round()? else { break };
            if let Some(evaluator) = evaluator.filter(|e| round.done_ns >= evaluated_at + e.every_ns) {
                evaluated_at = round.done_ns;
                evaluator.evaluate(round.done_ns, self.trainer.mlp());
            }
            if tell.send(Message::Round(round)).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// One iteration; `None`: stopped in the middle.
    fn round(&mut self) -> Result<Option<Round>> {
        let task = &self.order.task;
        let began = clock::now();
        let moment = Moment {
            worker: self.order.worker.into(),
            iteration: self.iteration,
            since_start_ns: began.saturating_sub(self.start),
        };
        let step = self.trainer.step(&self.data.train);
        let computed = clock::now();
        let compute_ns = task.stragglers.compute_ns(moment, task.padding_ns, task.seed);
        let due = began + compute_ns;
        clock::sleep(due.saturating_sub(computed));
        let rule_version = self.client.worker().rule_version();
        let report = match self.client.push(step) {
            Err(Error::Stopped) => return Ok(None),
            report => report?,
        };
        self.client.model_delta(&mut self.delta);
        self.trainer.set_delta(&self.delta);
        self.iteration += 1;
        let share = |segments: u32| segments as f32 / task.segments as f32;
        let expected = self.baseline.as_mut().map(|baseline| baseline.round(&self.data));
        Ok(Some(Round {
            round: report.round,
            rule_version,
            began_ns: moment.since_start_ns,
            compute_ns,
            gradient_ns: computed - began,
            overrun_ns: report.begun_at.saturating_sub(due),
            wait_ns: report.wait_ns(),
            transfer_ns: report.transfer_ns(),
            done_ns: report.done_at.saturating_sub(self.start),
            included: share(report.included),
            late: share(report.late),
            returned: share(report.returned),
            retransmissions: report.retransmissions,
            wrong: expected.is_some_and(|expected| self.client.sum().get(..expected.len()) != Some(expected)),
        }))
    }
}

/// Takes the accuracy of models, on a thread that runs when nobody else wants the processor.
struct Evaluator {
    every_ns: Nanos,
    models: Sender<(Nanos, Mlp)>,
    thread: thread::JoinHandle<()>,
}

impl Evaluator {
    fn start(every_ns: Nanos, mut test: Dataset, tell: Sender<Message>) -> Self {
        test.truncate(SAMPLES_ON_THE_WAY);
        let (models, given) = channel::unbounded::<(Nanos, Mlp)>();
        let thread = thread::spawn(move || {
            clock::be_background();
            for (at_ns, mlp) in given {
                // The training thread learns itself that nobody listens.
                let _ = tell.send(Message::Accuracy { at_ns, accuracy: mlp.accuracy(&test) });
            }
        });
        Evaluator { every_ns, models, thread }
    }

    fn evaluate(&self, at_ns: Nanos, mlp: &Mlp) {
        let _ = self.models.send((at_ns, mlp.clone())); // the thread lives as long as we do
    }

    /// Returns when all models are evaluated.
    fn finish(self) {
        drop(self.models);
        let _ = self.thread.join();
    }
}
