//! What `symphony train` says in the end.

use serde::Serialize;
use serde_json::{Value, json};

use super::coordinator::{Record, WorkerRecord};
use super::measure::{MOST_OVERRUN, percentile};
use super::order::{Order, Task};
use crate::cli::table::Table;
use crate::dataplane::Nanos;

/// `symphony train --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Schema version, 1.
    pub version: u32,
    /// The job.
    pub job: u8,
    /// Data set.
    pub data: String,
    /// Weights and biases fit so many packets.
    pub segments: u32,
    /// From the start to the end.
    pub elapsed_s: f64,
    /// Last round that a worker here completed; a job counts on from one run to the next.
    pub rounds: u32,
    /// Of all workers here together.
    pub cumulative_wait_s: f64,
    /// The same with the transfer in it.
    pub wait_and_transfer_s: f64,
    /// On all test samples in the end.
    pub accuracy: Option<f64>,
    /// Sums that differ from a single process's; 0 where none was compared.
    pub wrong_sums: usize,
    /// By rank.
    pub workers: Vec<Value>,
    /// (seconds, accuracy) on the way, not smoothed.
    pub curve: Vec<(f64, f64)>,
    /// What makes the figures doubtful.
    pub warnings: Vec<String>,
}

impl Report {
    /// Of a whole run.
    pub fn new(task: &Task, orders: &[Order], record: &Record) -> Self {
        let mut warnings = Vec::new();
        let overrun = record.overrun_p99(task.padding_ns);
        if overrun > MOST_OVERRUN && task.padding_ns > 0 {
            warnings.push(format!(
                "computation ended late by {:.0} % of --padding, or more, in one round of a hundred: this machine is too busy \
                 for so many workers, or the gradient takes longer than the padding",
                100.0 * overrun
            ));
        }
        let clipped: u64 =
            record.workers.iter().filter_map(|worker| worker.summary).map(|summary| summary.clipped).sum();
        if clipped > 0 {
            warnings.push(format!(
                "{clipped} values were too large for a contribution and were clipped: use a lower --learning-rate"
            ));
        }
        Report {
            version: 1,
            job: task.job,
            data: task.data.to_string(),
            segments: task.segments,
            elapsed_s: record.elapsed_ns as f64 / 1e9,
            rounds: record.last_round(),
            cumulative_wait_s: record.wait_ns() as f64 / 1e9,
            wait_and_transfer_s: record.exchange_ns() as f64 / 1e9,
            accuracy: record.workers.iter().find_map(|worker| worker.summary?.accuracy),
            wrong_sums: record.wrong(),
            workers: orders.iter().zip(&record.workers).map(|(order, record)| worker(order, record)).collect(),
            curve: record.accuracy.iter().map(|point| (point.at_ns as f64 / 1e9, point.accuracy)).collect(),
            warnings,
        }
    }

    /// For people.
    pub fn table(&self) -> String {
        let columns = [
            ("worker", "/worker"),
            ("address", "/address"),
            ("rounds", "/rounds"),
            ("late", "/late"),
            ("wait, s", "/wait_s"),
            ("transfer, ms", "/transfer_ms"),
            ("gradient, ms", "/gradient_ms"),
            ("late start p99, ms", "/overrun_p99_ms"),
            ("sent again", "/retransmissions"),
            ("CPU, s", "/cpu_s"),
        ];
        let table = Table::of_objects(&json!(self.workers), &columns);
        let accuracy =
            self.accuracy.map_or(String::new(), |accuracy| format!(", test accuracy {:.1} %", 100.0 * accuracy));
        let wrong = match self.wrong_sums {
            0 => String::new(),
            wrong => format!("\n{wrong} SUMS DIFFER from those of a single process"),
        };
        let rounds = self.workers.iter().filter_map(|worker| worker["rounds"].as_u64()).max().unwrap_or(0);
        format!(
            "{table}\n{rounds} rounds in {:.1} s, {:.1} s waited in all{accuracy}{wrong}",
            self.elapsed_s, self.cumulative_wait_s
        )
    }
}

fn worker(order: &Order, record: &WorkerRecord) -> Value {
    let rounds = &record.rounds;
    let of = |time: fn(&super::order::Round) -> Nanos, share| {
        percentile(rounds.iter().map(time).collect(), share) as f64 / 1e6
    };
    let summary = record.summary.unwrap_or_default();
    json!({
        "worker": order.worker,
        "address": order.local,
        "rounds": rounds.len(),
        "late": rounds.iter().map(|round| f64::from(round.late)).sum::<f64>().round() as u64,
        "wait_s": rounds.iter().map(|round| round.wait_ns).sum::<Nanos>() as f64 / 1e9,
        "transfer_ms": of(|round| round.transfer_ns, 0.5),
        "gradient_ms": of(|round| round.gradient_ns, 0.5),
        "overrun_p99_ms": of(|round| round.overrun_ns, 0.99),
        "retransmissions": rounds.iter().map(|round| u64::from(round.retransmissions)).sum::<u64>(),
        "cpu_s": summary.cpu_ns as f64 / 1e9,
        "packets_sent": summary.packets_sent,
        "packets_received": summary.packets_received,
    })
}
