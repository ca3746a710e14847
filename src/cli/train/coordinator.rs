//! Starts the worker processes of a job, lets them begin together, and collects what they tell.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender};

use super::order::{Command, Message, Order, Round, Summary};
use crate::backend::clock;
use crate::dataplane::Nanos;
use crate::training::Point;

/// Reading the data set and joining take a second or two; a machine full of other work, more.
const JOIN_LIMIT: Duration = Duration::from_secs(60);
/// A worker that was told to stop evaluates what is left to evaluate.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Where the run has failed, workers that go on have so long to leave the job.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Until the start, for commands to arrive.
const LEAD_IN_NS: Nanos = 50_000_000;
/// How often we look around when no message comes.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// When a run ends, unless its tasks' rounds are over before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Not before so much time has passed.
    pub at_least_ns: Nanos,
    /// After so much time.
    pub at_most_ns: Option<Nanos>,
    /// When the smoothed accuracy is this, 0..=1.
    pub accuracy: Option<f64>,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// In the order of the orders.
    pub workers: Vec<WorkerRecord>,
    /// Evaluations in the order of time.
    pub accuracy: Vec<Point>,
    /// How long it took from the start.
    pub elapsed_ns: Nanos,
    /// Time spent waiting in rounds that were not over at the end.
    pub open_wait_ns: Nanos,
}

/// What came of one worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerRecord {
    /// Its rounds in order.
    pub rounds: Vec<Round>,
    /// Its whole run, once it has left.
    pub summary: Option<Summary>,
}

/// Runs the workers, one for each order. `watch` sees the record grow.
///
/// # Errors
/// What keeps a worker from going on, or from starting.
pub fn run(orders: &[Order], limits: Limits, stop: &AtomicBool, watch: &mut dyn FnMut(&Record)) -> Result<Record> {
    let (tell, told) = channel::unbounded();
    let spawn = |(index, order)| Worker::spawn(index, order, tell.clone());
    let workers = orders.iter().enumerate().map(spawn).collect::<Result<Vec<_>>>()?;
    drop(tell);
    let mut run = Run {
        record: Record { workers: vec![WorkerRecord::default(); orders.len()], ..Record::default() },
        told,
        workers,
    };
    let done = run.join(stop).and_then(|()| {
        let start = clock::now() + LEAD_IN_NS;
        run.command(Command::Start { at_ns: start });
        run.train(start, limits, stop, watch)
    });
    run.command(Command::Stop);
    done.and_then(|()| run.finish())?;
    Ok(run.record)
}

struct Run {
    record: Record,
    told: Receiver<(usize, Told)>,
    workers: Vec<Worker>,
}

enum Told {
    Message(Message),
    /// Its output has ended.
    Gone,
}

impl Run {
    fn join(&mut self, stop: &AtomicBool) -> Result<()> {
        let until = Instant::now() + JOIN_LIMIT;
        let mut missing = self.workers.len();
        while missing > 0 {
            match self.next(until)? {
                Some((_, Message::Joined)) => missing -= 1,
                Some((worker, _)) => bail!("worker {} began before it was told to", self.rank(worker)),
                None if stop.load(Ordering::Relaxed) => bail!("interrupted"),
                None if Instant::now() >= until => bail!("{missing} workers have not joined within {JOIN_LIMIT:?}"),
                None => {}
            }
        }
        Ok(())
    }

    fn train(&mut self, start: Nanos, limits: Limits, stop: &AtomicBool, watch: &mut dyn FnMut(&Record)) -> Result<()> {
        let end = limits.at_most_ns.map_or(Nanos::MAX, |at_most| start + at_most);
        loop {
            let wait = end.saturating_sub(clock::now());
            let message = self.next(Instant::now() + LOOK_AROUND.min(Duration::from_nanos(wait)))?;
            if let Some((worker, message)) = message {
                self.keep(worker, message);
                watch(&self.record);
            }
            self.record.elapsed_ns = clock::now().saturating_sub(start);
            let reached =
                |target| self.record.elapsed_ns >= limits.at_least_ns && self.record.curve().reaches(target).is_some();
            let left = self.record.workers.iter().all(|worker| worker.summary.is_some());
            if left || clock::now() >= end || limits.accuracy.is_some_and(reached) || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    /// Waits for what the workers still have to say.
    fn finish(&mut self) -> Result<()> {
        let until = Instant::now() + STOP_LIMIT;
        while let Some(worker) = self.record.workers.iter().position(|worker| worker.summary.is_none()) {
            match self.next(until)? {
                Some((worker, message)) => self.keep(worker, message),
                None => bail!("worker {} was told to stop and has not within {STOP_LIMIT:?}", self.rank(worker)),
            }
        }
        Ok(())
    }

    fn keep(&mut self, worker: usize, message: Message) {
        let Some(worker) = self.record.workers.get_mut(worker) else { return };
        match message {
            Message::Round(round) => worker.rounds.push(round),
            Message::Accuracy { at_ns, accuracy } => self.record.accuracy.push(Point { at_ns, accuracy }),
            Message::Left(summary) => worker.summary = Some(summary),
            Message::Joined | Message::Failed(_) => {} // told before, and an error of `next`
        }
    }

    /// The next message until then; a failure is an error.
    fn next(&mut self, until: Instant) -> Result<Option<(usize, Message)>> {
        loop {
            match self.told.recv_deadline(until) {
                Ok((worker, Told::Message(Message::Failed(error)))) => bail!("worker {}: {error}", self.rank(worker)),
                Ok((worker, Told::Message(message))) => return Ok(Some((worker, message))),
                Ok((worker, Told::Gone)) if self.has_left(worker) => {}
                Ok((worker, Told::Gone)) => {
                    let how = self.workers.get_mut(worker).map(Worker::end).unwrap_or_default();
                    bail!("worker {} ended without a word{how}", self.rank(worker))
                }
                // Disconnected: all are gone.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Of the worker at a place in the record.
    fn rank(&self, worker: usize) -> u8 {
        self.workers.get(worker).map_or(0, |worker| worker.rank)
    }

    fn has_left(&self, worker: usize) -> bool {
        self.record.workers.get(worker).is_some_and(|worker| worker.summary.is_some())
    }

    fn command(&mut self, command: Command) {
        for worker in &mut self.workers {
            worker.command(&command);
        }
    }
}

/// A worker process. Dropping it ends the process.
struct Worker {
    rank: u8,
    process: Child,
    input: ChildStdin,
}

impl Worker {
    fn spawn(index: usize, order: &Order, tell: Sender<(usize, Told)>) -> Result<Self> {
        let command = std::env::current_exe().context("cannot find the symphony command")?;
        let mut process = Process::new(command)
            .args(["train", "--ordered"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0) // the terminal's ^C is for us: workers stop when told to
            .spawn()
            .context("cannot start a worker process")?;
        let input = process.stdin.take().context("the worker has no standard input")?;
        let output = process.stdout.take().context("the worker has no standard output")?;
        let mut worker = Worker { rank: order.worker, process, input };
        if worker.send(&order).is_err() {
            let how = worker.end();
            bail!("worker {} ended before it was told what to do{how}", order.worker);
        }
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line)
                    .unwrap_or_else(|error| Message::Failed(format!("said what is no message ({error}): {line}")));
                let _ = tell.send((index, Told::Message(message))); // nobody listens once the run has failed
            }
            let _ = tell.send((index, Told::Gone));
        });
        Ok(worker)
    }

    /// A worker that is gone tells that otherwise.
    fn command(&mut self, command: &Command) {
        let _ = self.send(command);
    }

    /// How the process ended, in brackets; kills it if it does not.
    fn end(&mut self) -> String {
        let until = Instant::now() + LEAVE_LIMIT;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.kill();
        self.process.wait().map_or(String::new(), |status| format!(" ({status})"))
    }

    fn send(&mut self, line: &impl serde::Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        Ok(self.input.write_all(&line)?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end(); // it has ended already where all is well
    }
}
