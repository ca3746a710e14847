//! What fails while workers aggregate: workers, the switch, links, jobs, people. Each ends with a line in the log and an error
//! that says what to do, and nobody hangs.

use std::net::UdpSocket;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use symphony::backend::aggregation::{Client, Error};
use symphony::control::protocol::Command;
use symphony::worker::Failure;

use super::job::{Job, SERVICE, in_force, push, state, swap};
use super::net::{Net, Switch, eventually, sh};

const JOB: Job = Job { workers: 3, segments: 4 };

const DROP_SILENT: &str = "[[policy]]\nwhen = \"silent(worker) > 1s\"\nthen = \"drop_member(worker)\"\n";

fn start(net: &Net, policies: &str) -> Switch {
    let switch = Switch::start(net, "", SERVICE);
    JOB.load(&switch, "bsp", policies).unwrap();
    switch
}

/// A worker that pushes `rounds` rounds and then leaves; its last round.
fn work(net: &Net, worker: u8, rounds: usize) -> thread::JoinHandle<Result<u32, Error>> {
    net.spawn(usize::from(worker) + 1, move || {
        let mut client = JOB.join(worker)?;
        let last = push(&mut client, JOB, worker, rounds)?;
        client.leave().map(|()| last)
    })
}

/// A worker that pushes for ever; how that ended.
fn work_on(net: &Net, worker: u8) -> thread::JoinHandle<Error> {
    net.spawn(usize::from(worker) + 1, move || {
        JOB.join(worker).and_then(|mut client| push(&mut client, JOB, worker, usize::MAX)).unwrap_err()
    })
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Failed { failure, .. } => failure,
        error => panic!("{error}"),
    }
}

/// The latest round pushed. Under asp none is released once workers are far apart.
fn round(switch: &Switch) -> u64 {
    state(switch)["max_round"].as_u64().unwrap()
}

#[track_caller]
fn goes_on(switch: &Switch) {
    let before = round(switch);
    assert!(eventually(|| round(switch) > before + 20), "stuck: {}", state(switch));
}

#[test]
fn a_dead_worker_is_dropped_after_its_silence_and_may_come_back() {
    let Some(net) = Net::new("dead", 3) else { return };
    let switch = start(&net, DROP_SILENT);
    let others = [0, 1].map(|worker| work_on(&net, worker));
    let dead = net.spawn(3, || push(&mut JOB.join(2).unwrap(), JOB, 2, 50).unwrap());
    assert_eq!(dead.join().unwrap(), 50);
    switch.wait_for("worker 2 dropped: silent for 1");
    switch.wait_for("complete: bsp of 3 workers -> bsp of 2 workers");
    goes_on(&switch);

    let back = work(&net, 2, 50);
    switch.wait_for("worker 2 asks to take part again");
    switch.wait_for("complete: bsp of 2 workers -> bsp of 3 workers");
    assert!(back.join().unwrap().unwrap() > 100);
    switch.wait_for("worker 2 left");
    goes_on(&switch);
    switch.kill();
    for worker in others {
        assert!(matches!(failure(worker.join().unwrap()), Failure::Silent { .. }));
    }
}

#[test]
fn a_worker_that_restarts_during_a_swap_does_not_hold_it_up() {
    let Some(net) = Net::new("swapdead", 3) else { return };
    let switch = start(&net, "");
    let others = [0, 1].map(|worker| work(&net, worker, 60));
    let dead = net.spawn(3, || push(&mut JOB.join(2).unwrap(), JOB, 2, 20).unwrap());
    assert_eq!(dead.join().unwrap(), 20);
    assert!(eventually(|| state(&switch)["max_round"] == 21), "the others wait in round 21");
    swap(&switch, "partial(k = n-1, late = return)");
    switch.wait_for("armed: bsp of 3 workers -> partial(k = n-1, late = return)");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(state(&switch)["strategy"], "bsp", "the swap waits for round 21, and that for worker 2");
    let back = work(&net, 2, 20);
    switch.wait_for("worker 2 joined again: a new process");
    switch.wait_for("complete: bsp of 3 workers -> partial(k = n-1, late = return)");
    for worker in others {
        assert!(worker.join().unwrap().unwrap() >= 60);
    }
    assert!(back.join().unwrap().unwrap() >= 40);
    switch.stop();
}

#[test]
fn a_job_that_all_have_left_is_there_for_who_comes_next() {
    let Some(net) = Net::new("next", 3) else { return };
    let switch = start(&net, "");
    // One after the other, so that the rule in force is in the end one of worker 0 alone.
    let workers = [(0, 90), (1, 60), (2, 30)].map(|(worker, rounds)| work(&net, worker, rounds));
    for worker in workers {
        worker.join().unwrap().unwrap();
    }
    switch.wait_for("complete: bsp of 2 workers -> bsp of 1 workers");
    switch.wait_for("no worker is left");
    for worker in [2, 1, 0] {
        let last = work(&net, worker, 10).join().unwrap().unwrap();
        assert!(last > 99, "worker {worker} went on as if nothing had been before: {last}");
    }
    switch.stop();
}

#[test]
fn a_switch_that_restarts_is_told_by_every_worker_and_the_run_begins_anew() {
    let Some(net) = Net::new("restart", 3) else { return };
    let switch = start(&net, "");
    let workers = [0, 1, 2].map(|worker| work_on(&net, worker));
    goes_on(&switch);
    switch.kill();
    let switch = start(&net, "");
    for worker in workers {
        let failure = failure(worker.join().unwrap());
        assert!(matches!(failure, Failure::StoreLost { job: 1, round } if round > 20), "{failure}");
        assert!(failure.to_string().contains("Start all workers again from a checkpoint"), "{failure}");
    }
    for worker in [0, 1, 2].map(|worker| work(&net, worker, 50)) {
        assert_eq!(worker.join().unwrap().unwrap(), 50);
    }
    switch.stop();
}

#[test]
fn of_two_processes_with_one_rank_the_later_goes_on_and_the_other_is_told() {
    let Some(net) = Net::new("rank", 4) else { return };
    let switch = start(&net, "");
    let first = work_on(&net, 0);
    let others = [1, 2].map(|worker| work(&net, worker, 200));
    goes_on(&switch);

    // At an address that is no member's.
    let stranger = net.spawn(4, || {
        let mut config = JOB.config(0);
        config.local = "10.9.0.4:7001".parse().unwrap();
        config.worker.join_timeout_ns = 300_000_000;
        Client::join(config).map(drop).unwrap_err()
    });
    let stranger = stranger.join().unwrap();
    assert!(stranger.to_string().contains("10.9.0.4:7001") && stranger.to_string().contains("a member"), "{stranger}");
    assert!(matches!(failure(stranger), Failure::JoinTimeout { worker: 0, .. }));
    goes_on(&switch);

    // At the same address, behind another port of the switch.
    sh(&format!("ip -n {} addr add 10.9.0.1/24 dev eth0", net.host(4)));
    let second = net.spawn(4, || {
        let mut client = JOB.join(0)?;
        push(&mut client, JOB, 0, usize::MAX).map(drop)
    });
    switch.wait_for("worker 0 joined again: a new process");
    let failed = failure(first.join().unwrap());
    assert_eq!(failed, Failure::Dropped { job: 1, worker: 0 });
    assert!(failed.to_string().contains("another process has taken its place"), "{failed}");
    for worker in others {
        assert!(worker.join().unwrap().unwrap() >= 200);
    }
    let last = switch.stop();
    assert!(last["drops"]["not_member"].as_u64().unwrap() > 0, "{last}");
    assert!(matches!(failure(second.join().unwrap().unwrap_err()), Failure::Silent { .. }));
}

#[test]
fn a_job_that_is_unloaded_or_loaded_anew_ends_its_workers_and_twice_it_is_not_loaded() {
    let Some(net) = Net::new("unload", 3) else { return };
    let switch = start(&net, "");
    let workers = [0, 1, 2].map(|worker| work_on(&net, worker));
    goes_on(&switch);
    let twice = JOB.load(&switch, "bsp", "").unwrap_err();
    assert!(twice.contains("job 1"), "{twice}");
    goes_on(&switch);

    switch.ask(Command::UnloadAggregation { job: 1 }).unwrap();
    switch.wait_for("aggregation job unloaded");
    thread::sleep(Duration::from_millis(100));
    JOB.load(&switch, "bsp", "").unwrap();
    for worker in workers {
        assert!(matches!(failure(worker.join().unwrap()), Failure::StoreLost { job: 1, .. }));
    }

    let workers = [0, 1, 2].map(|worker| work_on(&net, worker));
    goes_on(&switch);
    switch.ask(Command::UnloadAggregation { job: 1 }).unwrap();
    let unloaded = Instant::now();
    for worker in workers {
        let failure = failure(worker.join().unwrap());
        assert!(matches!(failure, Failure::StoreLost { .. }), "{failure}");
        assert!(failure.to_string().contains("the job was unloaded, or"), "{failure}");
    }
    assert!(unloaded.elapsed() < Duration::from_secs(1), "their patience is 5 s");
    let none = switch.ask(Command::UnloadAggregation { job: 1 }).unwrap_err();
    assert!(none.contains("no aggregation job 1"), "{none}");
    switch.stop();
}

#[test]
fn workers_that_come_before_their_job_wait_for_it_and_say_in_the_end_that_it_is_not_there() {
    let Some(net) = Net::new("early", 3) else { return };
    let switch = Switch::start(&net, "", SERVICE);
    let workers = [0, 1, 2].map(|worker| work(&net, worker, 20));
    let impatient = net.spawn(1, || {
        let mut config = JOB.config(0);
        config.local.set_port(7002);
        config.worker.join_timeout_ns = 500_000_000;
        Client::join(config).map(drop).unwrap_err()
    });
    let failure = failure(impatient.join().unwrap());
    assert_eq!(failure, Failure::UnknownJob { job: 1, waited_ms: 500 });
    assert!(failure.to_string().contains("symphony ctl job load"), "{failure}");
    JOB.load(&switch, "bsp", "").unwrap();
    for worker in workers {
        assert_eq!(worker.join().unwrap().unwrap(), 20);
    }
    switch.stop();
}

#[test]
fn where_each_worker_is_and_what_became_of_swaps_is_told_and_nobody_waits_for_a_swap_of_nobody() {
    let Some(net) = Net::new("told", 3) else { return };
    let switch = start(&net, DROP_SILENT);
    let states = || {
        let status = switch.ctl("status").unwrap();
        let members = status["jobs"][0]["members"].as_array().unwrap();
        members.iter().map(|member| member["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(states(), ["awaited"; 3]);
    let workers = [(0, 100), (1, 20)].map(|(worker, rounds)| work(&net, worker, rounds));
    let dead = net.spawn(3, || push(&mut JOB.join(2).unwrap(), JOB, 2, 50).unwrap());
    dead.join().unwrap();
    for worker in workers {
        worker.join().unwrap().unwrap();
    }
    assert!(eventually(|| states() == ["left", "left", "dropped"]), "{:?}", states());
    let asked = Instant::now();
    assert!(switch.ctl("swap asp").is_none(), "it says that no worker takes part");
    assert!(asked.elapsed() < Duration::from_secs(5), "it could wait for 30 s");

    // All at once: the swaps that each leads to are taken back for the next one's.
    for worker in [0, 1, 2].map(|worker| work(&net, worker, 10)) {
        worker.join().unwrap().unwrap();
    }
    assert!(eventually(|| states() == ["left"; 3] && state(&switch)["swap"].is_null()), "{}", state(&switch));
    let outcomes = state(&switch)["swaps"].as_array().unwrap().iter().map(|s| s["outcome"].clone()).collect::<Vec<_>>();
    let sound = |outcome: &str| outcome == "stable" || outcome.starts_with("superseded: worker");
    assert!(outcomes.iter().all(|outcome| sound(outcome.as_str().unwrap())), "{outcomes:?}");
    switch.stop();
}

#[test]
fn a_link_that_goes_down_and_up_holds_the_round_up_and_no_longer() {
    let Some(net) = Net::new("link", 3) else { return };
    let switch = start(&net, "");
    let workers = [0, 1, 2].map(|worker| work_on(&net, worker));
    for (namespace, interface) in [(net.switch(), "p2"), (net.host(2), "eth0")] {
        goes_on(&switch);
        sh(&format!("ip -n {namespace} link set {interface} down"));
        switch.wait_for("down");
        assert!(eventually(|| {
            let before = round(&switch);
            thread::sleep(Duration::from_millis(300));
            round(&switch) == before
        }));
        sh(&format!("ip -n {namespace} link set {interface} up"));
        goes_on(&switch);
    }
    switch.kill();
    workers.into_iter().for_each(|worker| drop(worker.join().unwrap()));
}

#[test]
fn a_worker_of_another_shape_is_told_and_garbage_changes_no_sum() {
    const ROUNDS: usize = 300;
    let Some(net) = Net::new("garbage", 4) else { return };
    let switch = start(&net, "");
    let (lanes, segments) = (JOB.lanes(), JOB.segments);
    for (what, ours, theirs) in [("segments", segments + 1, segments), ("lanes", lanes as u32 + 8, lanes as u32)] {
        let joined = net.spawn(1, move || {
            let mut config = JOB.config(0);
            match what {
                "segments" => config.worker.segments = ours,
                _ => config.worker.lanes = ours as usize,
            }
            Client::join(config).map(drop).unwrap_err()
        });
        assert_eq!(failure(joined.join().unwrap()), Failure::Shape { job: 1, what, theirs, ours });
    }

    let workers = [0, 1, 2].map(|worker| {
        net.spawn(usize::from(worker) + 1, move || {
            let mut client = JOB.join(worker).unwrap();
            push(&mut client, JOB, worker, ROUNDS).unwrap();
            (0..JOB.workers).map(|of| JOB.times(client.sum(), of)).collect::<Vec<_>>()
        })
    });
    let (done, until) = channel::<()>();
    let garbage = net.spawn(4, move || {
        let socket = UdpSocket::bind("10.9.0.4:24190").unwrap();
        let mut sent = 0u64;
        let mut byte = 1u8;
        let end = Instant::now() + Duration::from_secs(10);
        while until.try_recv().is_err() && Instant::now() < end {
            for kind in 0..16 {
                // All types, right in length and as a member's, but for what follows.
                let mut packet = vec![0u8; 32 + 4 * JOB.lanes()];
                packet.iter_mut().for_each(|place| {
                    byte = byte.wrapping_mul(37).wrapping_add(11);
                    *place = byte;
                });
                packet[0] = 1 << 4 | kind;
                packet[2] = 1;
                packet[3] %= 3;
                packet[12] = (JOB.lanes() / 8) as u8;
                for len in [0, 7, 32, packet.len()] {
                    sent += u64::from(socket.send_to(&packet[..len], "10.9.0.254:24190").is_ok());
                }
            }
        }
        sent
    });
    for worker in workers {
        let times = worker.join().unwrap();
        assert!(times.iter().flatten().all(|times| *times == ROUNDS as i64), "{times:?}");
    }
    let _ = done.send(());
    let sent = garbage.join().unwrap();
    let last = switch.stop();
    let drops = |reason: &str| last["drops"][reason].as_u64().unwrap();
    println!("{sent} packets of garbage: {}", last["drops"]);
    assert!(drops("aggregation_malformed") > 0 && drops("not_member") > 0 && drops("not_control") > 0, "{last}");
}

#[test]
fn a_policy_that_flaps_is_held_by_its_cooldown_and_refused_without_one() {
    let flapping = |cooldown: &str| {
        format!(
            "[[policy]]\nin = \"bsp\"\nwhen = \"included_min >= 1\"\nthen = \"ssp(2)\"\n{cooldown}\n\
             [[policy]]\nin = \"ssp\"\nwhen = \"included_min >= 1\"\nthen = \"bsp\"\n{cooldown}\n"
        )
    };
    let Some(net) = Net::new("flap", 3) else { return };
    let switch = Switch::start(&net, "", SERVICE);
    let refused = JOB.load(&switch, "bsp", &flapping("")).unwrap_err();
    assert!(refused.contains("they could swap for ever; add cooldown"), "{refused}");
    JOB.load(&switch, "bsp", &flapping("cooldown = \"50 rounds\"")).unwrap();
    let workers = [0, 1, 2].map(|worker| work(&net, worker, 500));
    for worker in workers {
        assert!(worker.join().unwrap().unwrap() >= 500);
    }
    let state = state(&switch);
    let swaps: Vec<_> = state["swaps"].as_array().unwrap().iter().filter(|swap| swap["cause"] != "asked for").collect();
    let by_policy: Vec<_> = swaps.iter().filter(|swap| swap["cause"].as_str().unwrap().starts_with("policy")).collect();
    println!("{} swaps in {} rounds", by_policy.len(), state["max_round"]);
    // Each policy acts at most once in 50 rounds, so both together twice.
    let most = 2 * (state["max_round"].as_u64().unwrap() as usize / 50 + 1);
    assert!((4..=most).contains(&by_policy.len()), "{swaps:?}");
    switch.stop();
}

#[test]
fn a_swap_waits_for_those_who_have_not_come_yet_and_leads_back_from_far_apart() {
    let Some(net) = Net::new("late", 3) else { return };
    let switch = start(&net, "");
    swap(&switch, "asp");
    let workers = [0, 1].map(|worker| work_on(&net, worker));
    switch.wait_for("armed: bsp of 3 workers -> asp");
    assert!(eventually(|| state(&switch)["members"][1]["state"] == "joined"));
    let third = work(&net, 2, 10);
    in_force(&switch, "asp");
    third.join().unwrap().unwrap();
    let apart = || state(&switch)["latest"]["lag_max"].as_u64().is_some_and(|rounds| rounds > 16);
    assert!(eventually(apart), "{}", state(&switch));
    swap(&switch, "bsp");
    in_force(&switch, "bsp");
    goes_on(&switch);
    switch.kill();
    workers.into_iter().for_each(|worker| drop(worker.join().unwrap()));
}
