//! The client against the parameter server, over the loopback interface.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;

use super::super::*;
use crate::worker::Failure;

const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

fn server(workers: u8, segments: u32) -> ServerHandle {
    let config = ServerConfig { netns: None, listen: ANY, job: 1, workers, segments, lanes: 16 };
    ParameterServer::spawn(config).expect("loopback can be listened on")
}

fn join(server: &ServerHandle, worker: u8, segments: u32) -> Result<Client, Error> {
    let mut config = ClientConfig::new(server.local(), ANY, 1, worker, segments, 16);
    config.worker.join_timeout_ns = 300_000_000;
    Client::join(config)
}

#[test]
fn every_worker_gets_the_sum_of_all_contributions_in_every_round() {
    let (workers, segments, rounds) = (3, 100, 20);
    let server = server(workers, segments);
    thread::scope(|scope| {
        for worker in 0..workers {
            let server = &server;
            scope.spawn(move || {
                let mut client = join(server, worker, segments).expect("the server answers");
                let len = segments as usize * 16;
                let mut expected = vec![0i32; len];
                let value = |worker: u8, round: i32, i: usize| i32::from(worker + 1) * round * 7 + i as i32;
                for round in 1..=rounds {
                    let mine: Vec<i32> = (0..len).map(|i| value(worker, round, i)).collect();
                    let report = client.push_quantised(&mine).expect("the round ends");
                    assert_eq!(report.included, segments);
                    assert_eq!(report.wait_ns() + report.transfer_ns(), report.exchange_ns());
                    for (i, sum) in expected.iter_mut().enumerate() {
                        *sum += (0..workers).map(|other| value(other, round, i)).sum::<i32>();
                    }
                    assert_eq!(client.sum(), expected);
                }
                client.leave().expect("the server answers");
            });
        }
    });
    let counters = server.stop().expect("it runs");
    assert_eq!(counters.rounds, rounds as u64);
}

#[test]
fn the_model_moves_by_the_mean_of_the_vectors() {
    let server = server(2, 1);
    thread::scope(|scope| {
        for (worker, step) in [(0, 1.0f32), (1, -0.5)] {
            let server = &server;
            scope.spawn(move || {
                let mut client = join(server, worker, 1).expect("the server answers");
                client.push(&[step, 2.0 * step]).expect("the round ends");
                let mut delta = [9.0; 3];
                client.model_delta(&mut delta);
                assert_eq!(delta, [0.25, 0.5, 0.0]);
            });
        }
    });
}

#[test]
fn a_worker_that_leaves_is_not_waited_for() {
    let server = server(2, 3);
    let mut stays = join(&server, 0, 3).expect("the server answers");
    let leaves = join(&server, 1, 3).expect("the server answers");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(std::time::Duration::from_millis(50));
            leaves.leave().expect("the server answers");
        });
        let report = stays.push(&[1.0; 48]).expect("the round ends");
        assert_eq!(report.included, 3);
        assert!(report.wait_ns() > 30_000_000, "it waited: {report:?}");
    });
    let mut delta = [0.0; 48];
    stays.model_delta(&mut delta);
    assert_eq!(delta, [0.5; 48], "divided by two, as there were two when the vector was pushed");
    assert_eq!(stays.worker().norm(), 1);
}

#[test]
fn a_restarted_worker_learns_where_the_model_stands() {
    let server = server(1, 2);
    let mut first = join(&server, 0, 2).expect("the server answers");
    first.push(&[1.0; 32]).expect("the round ends");
    drop(first); // without a word
    let mut second = join(&server, 0, 2).expect("the server answers");
    let mut delta = [0.0; 32];
    second.model_delta(&mut delta);
    assert_eq!(delta, [1.0; 32]);
    assert_eq!(second.push(&[1.0; 32]).expect("the round ends").round, 2);
}

#[test]
fn nobody_at_the_address_is_told_with_address_and_job() {
    let dead = server(1, 1);
    let address = dead.local();
    dead.stop().expect("it runs");
    let mut config = ClientConfig::new(address, ANY, 7, 3, 1, 16);
    config.worker.join_timeout_ns = 100_000_000;
    let Err(error) = Client::join(config) else { panic!("nobody is there") };
    let text = error.to_string();
    assert!(text.contains(&address.to_string()) && text.contains("job 7, worker 3"), "{text}");
}

#[test]
fn a_worker_with_other_segments_is_told_so() {
    let server = server(1, 2);
    let Err(Error::Failed { failure, .. }) = join(&server, 0, 5) else { panic!("2 segments are not 5") };
    assert_eq!(failure, Failure::Shape { job: 1, what: "segments", theirs: 2, ours: 5 });
}

#[test]
fn the_python_example_and_the_client_are_workers_of_one_job() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        return eprintln!("skipped: no python3 here");
    }
    let config = ServerConfig { netns: None, listen: ANY, job: 1, workers: 2, segments: 1, lanes: 8 };
    let server = ParameterServer::spawn(config).expect("loopback can be listened on");
    let address = server.local().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/sum.py");
    let python = std::process::Command::new("python3")
        .args([script, &address, "127.0.0.1:0", "0", "1.5", "2", "3"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("python3 is here");
    let mut client = Client::join(ClientConfig::new(server.local(), ANY, 1, 1, 1, 8)).expect("the server answers");
    client.push(&[0.5, 2.0, -3.0]).expect("the round ends");
    let mut delta = [9.0; 8];
    client.model_delta(&mut delta);
    assert_eq!(delta, [1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], "half of the sum");
    let output = python.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2.0 4.0 0.0 0.0 0.0 0.0 0.0 0.0\n");
}
