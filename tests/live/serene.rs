//! Aggregation over links that lose, double and reorder packets: what is in the sums, and through a thousand swaps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use symphony::backend::aggregation::Error;
use symphony::worker::Report;

use super::job::{BAD_LINKS, Job, SERVICE, in_force, state, swap};
use super::net::{Net, Switch, eventually};

/// Rounds after the last swap, in which what was returned finds its way in.
const LAST_ROUNDS: u32 = 20;

/// Longest time until a worker that died has a successor.
const AWAY: Duration = Duration::from_secs(1);

#[test]
fn bsp_over_bad_links_equals_the_sum_bit_for_bit_for_100_rounds() {
    let Some(last) = bsp_equals_the_sum("bsp", BAD_LINKS, 100) else { return };
    assert!(last["drops"]["fault_loss"].as_u64().unwrap() > 500, "{last}");
}

#[test]
fn contributions_damaged_on_their_way_change_no_sum() {
    let links = "fault = { corrupt = 0.05, direction = \"in\" }";
    let Some(last) = bsp_equals_the_sum("corrupt", links, 50) else { return };
    assert!(last["drops"]["aggregation_corrupted"].as_u64().unwrap() > 50, "{last}");
}

/// Whether every worker has the very sum after each round; the switch's last words.
fn bsp_equals_the_sum(name: &str, links: &str, rounds: u32) -> Option<Value> {
    let net = Net::new(name, 4)?;
    let job = Job { workers: 4, segments: 20 };
    let switch = Switch::start(&net, links, SERVICE);
    job.load(&switch, "bsp", "").unwrap();
    // As large as four workers may contribute, so that sums wrap.
    let contribution = move |worker: u8, round: u32| {
        let mut random = Random(u64::from(round) << 8 | u64::from(worker));
        (0..job.segments as usize * job.lanes()).map(|_| random.next() as i32 >> 5).collect::<Vec<i32>>()
    };
    let work = move |worker: u8| {
        let mut client = job.join(worker).unwrap();
        let mut expected = vec![0i32; job.segments as usize * job.lanes()];
        for round in 1..=rounds {
            for of in 0..job.workers {
                let values = contribution(of, round);
                expected.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
            }
            let report = client.push_quantised(&contribution(worker, round)).unwrap();
            assert_eq!((report.round, report.included, report.clipped), (round, job.segments, 0), "{report:?}");
            assert!(client.sum() == expected, "worker {worker} after round {round}");
        }
        let retransmissions = client.counters().retransmissions;
        client.leave().unwrap();
        retransmissions
    };
    let workers: Vec<_> =
        (0..job.workers).map(|worker| net.spawn(usize::from(worker) + 1, move || work(worker))).collect();
    let retransmissions: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    let last = switch.stop();
    println!("{rounds} rounds: {retransmissions} packets sent again, {}", last["drops"]);
    assert!(retransmissions > 50, "{last}");
    Some(last)
}

#[test]
fn partial_over_bad_links_adds_up_to_what_the_workers_were_told() {
    let Some(net) = Net::new("partial", 4) else { return };
    let job = Job { workers: 4, segments: 6 };
    let switch = Switch::start(&net, BAD_LINKS, SERVICE);
    job.load(&switch, "partial(k = n-1, late = return)", "").unwrap();
    let run = Run::start(&net, job);
    run.wait_for_rounds(&switch, 60);
    swap(&switch, "partial(k = 2, late = drop)");
    run.wait_for_rounds(&switch, 60);
    let workers = run.finish(&switch);
    assert!(workers.iter().all(|books| books.late > 0 && books.returned > 0), "nobody was late: {workers:?}");
    switch.stop();
}

/// 200 swaps, or as many as `SYMPHONY_LIVE_SWAPS` says.
#[test]
fn swaps_at_random_lose_no_contribution_and_count_none_twice() {
    let wanted = std::env::var("SYMPHONY_LIVE_SWAPS").map_or(200, |text| text.parse().unwrap());
    swap_at_random("swaps", wanted, &Turmoil { links: BAD_LINKS, ..Turmoil::default() });
}

/// The controller and the switch hear only part of what they say to each other. 100 swaps, or as many as
/// `SYMPHONY_LIVE_SWAPS` says.
#[test]
fn swaps_go_on_although_a_third_of_the_controllers_packets_and_of_their_answers_is_lost() {
    let wanted = std::env::var("SYMPHONY_LIVE_SWAPS").map_or(100, |text| text.parse().unwrap());
    let control = "fault = { loss = 0.33, duplicate = 0.1, delay = \"1ms\", delay_jitter = \"1ms\", reorder = 0.1 }\n";
    let Some((_, last)) = swap_at_random("control", wanted, &Turmoil { control, ..Turmoil::default() }) else { return };
    // Links are sound. An ARM and a COMPLETE each swap, and their answers.
    assert!(last["drops"]["fault_loss"].as_u64().unwrap() > wanted as u64, "{last}");
}

/// 60 swaps, or as many as `SYMPHONY_LIVE_SWAPS` says. Some workers are away for so long that they are dropped.
#[test]
fn workers_that_die_between_push_and_answer_meanwhile_count_at_most_once() {
    let wanted = std::env::var("SYMPHONY_LIVE_SWAPS").map_or(60, |text| text.parse().unwrap());
    let drop = "[[policy]]\nwhen = \"silent(worker) > 500ms\"\nthen = \"drop_member(worker)\"\n";
    let turmoil = Turmoil { links: BAD_LINKS, policies: drop, dying: true, ..Turmoil::default() };
    let Some((workers, _)) = swap_at_random("deaths", wanted, &turmoil) else { return };
    assert!(workers.iter().map(|books| books.deaths).sum::<u64>() > 10, "{workers:?}");
}

/// What swaps at random have to get along with. The first three are TOML: for each port, for `[serene]`, for the job file.
#[derive(Default)]
struct Turmoil {
    links: &'static str,
    control: &'static str,
    policies: &'static str,
    dying: bool,
}

/// What the workers were told, and the switch's last words.
fn swap_at_random(name: &str, wanted: usize, turmoil: &Turmoil) -> Option<(Vec<Books>, Value)> {
    const STRATEGIES: [&str; 9] = [
        "bsp",
        "partial(k = n-1, late = return)",
        "partial(k = 2, late = drop)",
        "ssp(1)",
        "ssp(3)",
        "ssp(15)",
        "asp",
        "timed(5ms, kmin = 1, late = drop)",
        "timed(10ms, kmin = n-1, late = return)",
    ];
    let net = Net::new(name, 4)?;
    let job = Job { workers: 4, segments: 6 };
    let switch = Switch::start(&net, turmoil.links, &format!("{SERVICE}{}", turmoil.control));
    job.load(&switch, "bsp", turmoil.policies).unwrap();
    let run = Run::start(&net, job);
    run.dying.store(turmoil.dying, Ordering::Relaxed);
    let (mut random, mut trace, started) = (Random(7), BTreeMap::new(), Instant::now());
    let (mut asked, mut seen, mut moved_at) = (0, 0, Instant::now());
    while complete(&trace) < wanted {
        for _ in 0..8 {
            let strategy = STRATEGIES[random.next() as usize % STRATEGIES.len()];
            swap(&switch, strategy);
            asked += 1;
            thread::sleep(Duration::from_micros(1_000 + random.next() % 60_000));
        }
        let state = state(&switch);
        remember(&mut trace, &state);
        let round = state["max_round"].as_u64().unwrap();
        if round > seen {
            (seen, moved_at) = (round, Instant::now());
        }
        assert!(moved_at.elapsed() < Duration::from_secs(5), "stuck: {state}");
    }
    let swapped = started.elapsed();
    let workers = run.finish(&switch);
    // Those that the workers began by leaving.
    assert!(eventually(|| state(&switch)["swap"].is_null()), "{}", state(&switch));
    let state = state(&switch);
    remember(&mut trace, &state);
    check_trace(&trace);
    let last = switch.stop();
    let naks: u64 = trace.values().map(|swap| swap["naks"].as_u64().unwrap()).sum();
    let rounds: u64 = workers.iter().map(|books| books.rounds).sum();
    println!(
        "{} swaps of {asked} asked for in {swapped:?}: {naks} refused, {rounds} contributions in {} rounds, {}",
        complete(&trace),
        state["max_round"],
        state["counters"]
    );
    workers.iter().for_each(|books| println!("{books:?}"));
    Some((workers, last))
}

fn complete(trace: &BTreeMap<u64, Value>) -> usize {
    trace.values().filter(|swap| swap["outcome"] == "stable").count()
}

fn remember(trace: &mut BTreeMap<u64, Value>, state: &Value) {
    let swaps = state["swaps"].as_array().unwrap();
    trace.extend(swaps.iter().map(|swap| (swap["id"].as_u64().unwrap(), swap.clone())));
}

/// Versions and boundaries rise from swap to swap, each begins where the one before ended, and its times are in order.
#[track_caller]
fn check_trace(trace: &BTreeMap<u64, Value>) {
    let number = |swap: &Value, key: &str| swap[key].as_u64().unwrap_or_else(|| panic!("no {key}: {swap}"));
    let (mut version, mut boundary, mut strategy, mut stable_at) = (1, 0, Value::from("bsp"), 0);
    for swap in trace.values().filter(|swap| swap["outcome"] == "stable") {
        let times = ["asked_at_ns", "armed_at_ns", "switching_at_ns", "stable_at_ns"].map(|key| number(swap, key));
        assert!(number(swap, "version") > version, "version {version}, then {swap}");
        assert!(number(swap, "boundary") > boundary, "boundary {boundary}, then {swap}");
        assert_eq!(swap["from"], strategy, "{swap}");
        assert!(times.is_sorted() && times[0] >= stable_at, "{stable_at}, then {swap}");
        (version, boundary) = (number(swap, "version"), number(swap, "boundary"));
        (strategy, stable_at) = (swap["to"].clone(), times[3]);
    }
    let pending: Vec<_> = trace.values().filter(|swap| swap["outcome"] == "pending").collect();
    assert!(pending.is_empty(), "{pending:?}");
}

/// Workers that push ones as fast as they can, with a pause now and then.
struct Run {
    job: Job,
    /// The last round.
    end: Arc<AtomicU32>,
    /// Now and then one dies, and another process takes its place.
    dying: Arc<AtomicBool>,
    workers: Vec<JoinHandle<(Books, Vec<i32>)>>,
}

impl Run {
    fn start(net: &Net, job: Job) -> Run {
        let end = Arc::new(AtomicU32::new(u32::MAX));
        let dying = Arc::new(AtomicBool::new(false));
        let start = |worker: u8| {
            let (end, dying) = (end.clone(), dying.clone());
            net.spawn(usize::from(worker) + 1, move || Books::keep(job, worker, &end, &dying))
        };
        let workers = (0..job.workers).map(start).collect();
        Run { job, end, dying, workers }
    }

    fn wait_for_rounds(&self, switch: &Switch, rounds: u64) {
        let round = || state(switch)["max_round"].as_u64().unwrap();
        let (target, until) = (round() + rounds, Instant::now() + Duration::from_secs(30));
        while round() < target {
            assert!(Instant::now() < until, "stuck: {}", state(switch));
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the run as bsp, in which all end with the same round; checks that all have the same sums, and that the workers
    /// are in them as often as they were told.
    fn finish(self, switch: &Switch) -> Vec<Books> {
        if self.dying.swap(false, Ordering::Relaxed) {
            thread::sleep(AWAY + Duration::from_millis(500)); // who is away comes back, or it would be after the end
        }
        let all_there =
            || state(switch)["members"].as_array().unwrap().iter().all(|member| member["state"] == "joined");
        assert!(eventually(all_there), "{}", state(switch));
        swap(switch, "bsp");
        in_force(switch, "bsp");
        let last = state(switch)["max_round"].as_u64().unwrap() as u32 + LAST_ROUNDS;
        self.end.store(last, Ordering::Relaxed);
        let (books, sums): (Vec<Books>, Vec<Vec<i32>>) =
            self.workers.into_iter().map(|worker| worker.join().unwrap()).unzip();
        assert!(sums.iter().all(|sum| *sum == sums[0]), "workers disagree");
        for (books, worker) in books.iter().zip(0..) {
            let times = self.job.times(&sums[0], worker);
            assert!(times.iter().all(|times| (0..=books.rounds as i64).contains(times)), "{times:?}, {books:?}");
            let total = times.iter().sum();
            assert!((books.least..=books.most).contains(&total), "worker {worker} is in {total} times; {books:?}");
        }
        books
    }
}

/// What a worker was told of its contributions: of how many ones it may say that they are in the sum, over all segments.
#[derive(Debug, Default)]
struct Books {
    /// `least` and `most` differ where the report does not tell which segments of unequal contributions it speaks of, and
    /// by what nothing is known of.
    least: i64,
    most: i64,
    rounds: u64,
    late: u64,
    returned: u64,
    forgotten: u64,
    deaths: u64,
}

impl Books {
    /// Works until the round `end` is over.
    fn keep(job: Job, worker: u8, end: &AtomicU32, dying: &AtomicBool) -> (Books, Vec<i32>) {
        let mut client = job.join(worker).unwrap();
        let (mut books, mut random) = (Books::default(), Random(u64::from(worker) + 1));
        let mut open: Option<(Vec<i64>, Report)> = None;
        while client.worker().round() <= end.load(Ordering::Relaxed) {
            if random.next().is_multiple_of(8) {
                thread::sleep(Duration::from_micros(random.next() % 20_000));
            }
            if dying.load(Ordering::Relaxed) && random.next().is_multiple_of(64) {
                // Between push and answer.
                client.stop_on(Arc::new(AtomicBool::new(true)));
                let died = client.push_quantised(&job.ones(worker));
                assert!(matches!(died, Err(Error::Stopped)), "{died:?}");
                let contribution = job.times(client.worker().contribution(), worker);
                books.close(&mut open, &contribution);
                books.most += contribution.iter().sum::<i64>();
                (books.deaths, books.rounds) = (books.deaths + 1, books.rounds + 1);
                drop(client);
                thread::sleep(AWAY.mul_f64(random.next() as f64 / u64::MAX as f64));
                client = job.join(worker).unwrap();
                continue;
            }
            let report = client.push_quantised(&job.ones(worker)).unwrap();
            let contribution = job.times(client.worker().contribution(), worker);
            books.close(&mut open, &contribution);
            open = Some((contribution, report));
        }
        assert!(open.as_ref().is_none_or(|(_, report)| report.returned == 0), "bsp returns nothing");
        books.close(&mut open, &vec![1; job.segments as usize]);
        let sum = client.sum().to_vec();
        client.leave().unwrap();
        (books, sum)
    }

    /// Enters the round before that of `next`, a contribution. What is more than 1 in it was returned.
    fn close(&mut self, open: &mut Option<(Vec<i64>, Report)>, next: &[i64]) {
        if let Some((contribution, report)) = open.take() {
            self.enter(&contribution, &report, &next.iter().map(|times| *times > 1).collect::<Vec<_>>());
        }
    }

    fn enter(&mut self, contribution: &[i64], report: &Report, returned: &[bool]) {
        assert_eq!(returned.iter().filter(|returned| **returned).count(), report.returned as usize, "{report:?}");
        let segments = report.included + report.late + report.forgotten;
        assert_eq!(segments as usize, contribution.len(), "{report:?}");
        let rest = contribution.iter().zip(returned).filter(|(_, returned)| !**returned);
        let mut rest: Vec<_> = rest.map(|(times, _)| *times).collect();
        rest.sort_unstable();
        let (included, unknown) = (report.included as usize, report.forgotten as usize);
        self.least += rest[..included].iter().sum::<i64>();
        self.most += rest.iter().rev().take(included + unknown).sum::<i64>();
        self.rounds += 1;
        self.late += u64::from(report.late);
        self.returned += u64::from(report.returned);
        self.forgotten += u64::from(report.forgotten);
    }
}

/// SplitMix64: a stream for each number.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
