//! The ASTRA-sim compatible mode against what ASTRA-sim with its ns-3 back end itself gave: ASTRA-sim 518bd51, ns-3 back end
//! f764bed27, chakra f37c2bb, its shipped configuration at 100 Gbit/s and 1 us a link. The variants are
//!
//! * `asis`: as shipped, a window and no congestion control (its `CC_MODE 12` is none); `asis_nowin` without the window
//! * `dq_win`, `dq_nowin`: DCQCN with the shipped timers (our set `hpcc900`), with and without the window
//!
//! The same from the command line: `symphony sim astra-os-4 --set window=true --arms fifo` has `dq_win` as base and `asis` as
//! fifo; `--set window=false` has `dq_nowin` and `asis_nowin`.

use symphony::backend::sim::{self, Results};
use symphony::control::scenario::Scenario;
use symphony::functions::symphony::Parameters;
use symphony::roce::dcqcn;

#[derive(Clone, Copy, PartialEq)]
enum Variant {
    Asis,
    AsisNowin,
    DqWin,
    DqNowin,
}

use Variant::{Asis, AsisNowin, DqNowin, DqWin};

fn run(name: &str, changes: &[&str], variant: Variant, seed: u64) -> Results {
    let mut scenario = Scenario::named(name).expect("it is built in");
    for change in changes {
        scenario.set(change).expect("the key exists");
    }
    scenario.set(&format!("window={}", matches!(variant, Asis | DqWin))).expect("the key exists");
    let mut setup = scenario.setup(seed, dcqcn::Parameters::HPCC900).expect("it is sound");
    if matches!(variant, Asis | AsisNowin) {
        setup.jobs.iter_mut().for_each(|job| job.congestion_control = None);
    }
    let results = sim::run(&setup).expect("it runs");
    assert!(results.conservation.holds() && results.drops.is_empty() && results.pfc_pauses == 0, "{results:?}");
    let job = &setup.jobs[0];
    let ranks = job.hosts.len() as u64;
    let messages = u64::from(job.iterations) * ranks * 2 * (ranks - 1);
    assert_eq!(results.delivered_bytes, messages * u64::from(job.chunk_bytes));
    results
}

/// Time to the last rank's finish.
fn cct_us(results: &Results) -> f64 {
    results.jobs[0].jct_ns().expect("it finishes") as f64 / 1e3
}

/// Runs that no random number decides come out the same to the last digit that is known of them.
#[track_caller]
fn holds(name: &str, changes: &[&str], variant: Variant, us: f64) {
    let found = cct_us(&run(name, changes, variant, 1));
    assert!((found - us).abs() < 0.051, "{name}: {found} us, there {us}");
}

const ONE_MIB: &[&str] = &["job.chunk=128KiB"];

#[test]
fn rings_whose_flows_do_not_meet_take_as_long_as_there() {
    holds("astra-single-8", ONE_MIB, DqWin, 217.465);
    holds("astra-single-8", &[], DqNowin, 2637.946);
    holds("astra-single-8", &[], DqWin, 2637.946);
    holds("astra-lsc-8", ONE_MIB, DqWin, 235.9);
    holds("astra-lsc-8", &[], DqWin, 2655.8);
}

#[test]
fn chunks_follow_one_another_as_there() {
    holds("astra-single-8", &["job.chunk=512KiB", "job.iterations=4"], DqWin, 2806.2);
}

#[test]
fn two_flows_on_each_uplink_take_as_long_as_there() {
    holds("astra-os-4", &[], Asis, 4448.7);
    holds("astra-os-4", &[], AsisNowin, 4427.6);
    holds("astra-os-4", &[], DqWin, 4448.7);
}

#[test]
fn collisions_drawn_by_each_step_are_those_of_there() {
    holds("astra-lss-8", ONE_MIB, DqWin, 429.8);
    holds("astra-lss-8", ONE_MIB, DqNowin, 390.2);
    holds("astra-lss-8", &[], Asis, 6093.9);
    holds("astra-lss-8", &[], AsisNowin, 5767.2);
}

fn all(name: &str, variant: Variant, seeds: u64) -> Vec<f64> {
    (1..=seeds).map(|seed| cct_us(&run(name, &[], variant, seed))).collect()
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

#[test]
fn a_window_with_dcqcn_differs_only_by_the_few_marks_that_chance_sets() {
    // There, none: 6093.9. Here one to a few in most seeds, and the same where there is none.
    let found = all("astra-lss-8", DqWin, 10);
    assert!((mean(&found) / 6093.9 - 1.0).abs() < 0.01, "{found:?}");
    assert!(found.iter().any(|us| (us - 6093.9).abs() < 0.051), "{found:?}");
}

/// The mean of ours lies within the spread of theirs, widened by 5 %.
#[track_caller]
fn lies_within(name: &str, theirs: &[f64]) {
    let found = all(name, DqNowin, 12);
    let least = theirs.iter().copied().fold(f64::INFINITY, f64::min) * 0.95;
    let most = theirs.iter().copied().fold(0.0, f64::max) * 1.05;
    assert!((least..most).contains(&mean(&found)), "{name}: {} of {found:?}", mean(&found));
}

#[test]
fn dcqcn_without_a_window_is_as_slow_as_there_where_two_flows_share_uplinks() {
    lies_within("astra-os-4", &[9678.5, 10473.9, 9788.8, 10001.3]);
}

#[test]
fn dcqcn_without_a_window_is_as_slow_as_there_where_paths_collide() {
    lies_within("astra-lss-8", &[9001.8, 8713.7, 8682.9]);
}

#[test]
fn symphony_finds_the_steps_of_fresh_queue_pairs_and_its_fallback_leaves_so_short_ones_alone() {
    let control = dcqcn::Parameters::HPCC900;
    let base = Scenario::named("astra-os-4").expect("it is built in").setup(1, control).expect("it is sound");
    let with = |symphony| sim::run(&sim::Setup { symphony, ..base.clone() }).expect("it runs");
    let marked = with(Some(Parameters::reference()));
    assert!(marked.marks.symphony > 0 && marked.lead_tests > 0, "{:?}", marked.marks);
    let packets = base.jobs[0].hosts.len() as u64 * 6 * u64::from(base.jobs[0].chunk_bytes.div_ceil(1000));
    assert_eq!(marked.job_packets, 3 * packets, "each packet is seen by each switch on its way");
    let left_alone = with(Some(Parameters { recovery_ns: control.recovery_ns(), ..Parameters::default() }));
    assert_eq!((left_alone.jobs, left_alone.marks), (with(None).jobs, with(None).marks));
}

/// Processor time of this thread so far, in seconds.
fn cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says so");
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).expect("its first word is a number") / 1e9
}

/// `cargo test --release --test astra -- --ignored`: there 353.2 s of processor time and 7411.4 us.
#[test]
#[ignore = "21 million packets at a hop: for release builds"]
fn sixty_four_ranks_take_a_twentieth_of_the_time_to_simulate() {
    let started = cpu_s();
    let found = cct_us(&run("astra-lss-64", &[], DqWin, 1));
    let took = cpu_s() - started;
    assert!((found / 7411.4 - 1.0).abs() < 0.05, "{found}");
    assert!(took < 353.2 / 20.0, "{took} s");
}
