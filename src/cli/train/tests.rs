//! Workers in threads, through a parameter server on loopback.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use crossbeam::channel;

use super::data::Source;
use super::order::{Message, Order, Task};
use super::worker;
use crate::backend::aggregation::{ParameterServer, ServerConfig};
use crate::backend::clock;
use crate::training::Stragglers;

const LANES: usize = 64;

fn task(workers: u8, rounds: u32) -> Task {
    Task {
        job: 1,
        segments: 11, // 64 * 10 + 10 parameters
        lanes: LANES,
        scale_log2: 24,
        workers,
        data: Source::Digits,
        hidden: vec![],
        batch: 32,
        learning_rate: 0.5,
        padding_ns: 0,
        stragglers: Stragglers::None,
        seed: 1,
        rounds: Some(rounds),
        verify: true,
    }
}

/// What each worker tells.
fn run(task: &Task) -> Vec<Vec<Message>> {
    let loopback = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let config = ServerConfig {
        netns: None,
        listen: loopback,
        job: task.job,
        workers: task.workers,
        segments: 11,
        lanes: LANES,
    };
    let server = ParameterServer::spawn(config).expect("loopback");
    let stop = Arc::new(AtomicBool::new(false));
    let order = |worker| Order {
        task: task.clone(),
        worker,
        netns: None,
        local: loopback,
        switch: server.local(),
        evaluate_every_ns: (worker == 0).then_some(1_000_000),
    };
    let (begin, start) = channel::unbounded();
    (0..task.workers).for_each(|_| begin.send(clock::now()).expect("it is open"));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..task.workers)
            .map(|worker| {
                let (order, start, stop) = (order(worker), &start, &stop);
                scope.spawn(move || {
                    let (tell, told) = channel::unbounded();
                    if let Err(error) = worker::run(&order, start, stop, &tell) {
                        tell.send(Message::Failed(format!("{error:#}"))).expect("it is open");
                    }
                    drop(tell);
                    told.iter().collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn workers_together_equal_a_single_process_bit_for_bit_and_learn() {
    let told = run(&task(3, 100));
    for messages in &told {
        let rounds: Vec<_> = messages
            .iter()
            .filter_map(|message| match message {
                Message::Round(round) => Some(round),
                _ => None,
            })
            .collect();
        assert_eq!(rounds.len(), 100, "{:?}", messages.last());
        assert_eq!(rounds.iter().filter(|round| round.wrong).count(), 0);
        assert!(rounds.iter().all(|round| round.included == 1.0 && round.late == 0.0));
    }
    let accuracy = told[0].iter().find_map(|message| match message {
        Message::Left(summary) => summary.accuracy,
        _ => None,
    });
    assert!(accuracy > Some(0.8), "{accuracy:?}");
    assert!(told[0].iter().any(|message| matches!(message, Message::Accuracy { .. })));
}

#[test]
fn a_worker_that_computes_something_else_is_found_by_the_comparison() {
    // All three take the same straggler pattern; what differs is the seed that one of them draws its minibatches by.
    let mut baseline = super::baseline::Baseline::new(&task(3, 1), &Source::Digits.load().expect("built in"));
    let data = Source::Digits.load().expect("built in");
    let right = baseline.round(&data).to_vec();
    let other = Task { seed: 2, ..task(3, 1) };
    assert_ne!(super::baseline::Baseline::new(&other, &data).round(&data), right);
}

#[test]
fn a_job_of_another_size_is_refused_with_the_size_that_fits() {
    let told = run(&Task { segments: 12, ..task(1, 1) });
    let Some(Message::Failed(error)) = told[0].last() else { panic!("{told:?}") };
    assert!(error.contains("650 parameters takes segments = 11 of 64 lanes, and the job has 12"), "{error}");
}
