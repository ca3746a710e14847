use super::*;
use crate::backend::sim::{Fabric, Paths, Topology, Transfer};
use crate::dataplane::Red;
use crate::roce::Collective;

const DC55: dcqcn::Parameters = dcqcn::Parameters::DC55;
const GBIT: u64 = 1_000_000_000;

#[track_caller]
fn named(name: &str) -> Scenario {
    Scenario::named(name).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn setup(scenario: &Scenario, seed: u64) -> Setup {
    scenario.setup(seed, DC55).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn with(name: &str, changes: &[&str]) -> Scenario {
    let mut scenario = named(name);
    for change in changes {
        scenario.set(change).unwrap_or_else(|error| panic!("{error}"));
    }
    scenario
}

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(text, "t", "t.toml")
}

#[test]
fn every_file_in_the_scenario_folder_is_built_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/scenarios");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
        .collect();
    let mut names: Vec<&str> = Scenario::names().collect();
    files.sort();
    names.sort_unstable();
    assert_eq!(files, names);
}

#[test]
fn every_built_in_scenario_gives_sound_setups_the_same_for_the_same_seed() {
    for name in Scenario::names() {
        let scenario = named(name);
        assert!(!scenario.description().is_empty() && scenario.description().len() < 120, "{name}");
        for seed in 1..=5 {
            let found = setup(&scenario, seed);
            assert_eq!(found, setup(&scenario, seed), "{name}");
            let hosts = found.fabric.topology.hosts();
            for job in &found.jobs {
                let ranks = job.hosts.len();
                assert!(ranks >= 2 && job.nic_bps.len() == ranks && job.start_at.len() == ranks, "{name}");
                assert!(job.hosts.iter().all(|host| *host < hosts), "{name}");
                assert!(job.nic_bps.iter().all(|bps| (1..=found.fabric.host_bps).contains(bps)), "{name}");
            }
            assert!(found.background.iter().all(|transfer| transfer.from != transfer.to), "{name}");
            assert!(found.symphony.is_none() && found.seed == seed, "{name}");
        }
        let again = parse(&scenario.to_toml()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.file, scenario.file, "{name}: what is printed parses back to the same");
    }
}

#[test]
fn what_is_random_differs_between_seeds() {
    for name in Scenario::names() {
        let scenario = named(name);
        let differ = Setup { seed: 1, ..setup(&scenario, 2) } != setup(&scenario, 1);
        let drawn = !["clean", "rr", "ecmp", "oversub", "rehash", "short", "fresh-qp", "prototype"].contains(&name)
            && !["demo-prototype", "ring-1024"].contains(&name)
            && !name.starts_with("astra-");
        assert_eq!(differ, drawn, "{name}");
    }
}

#[test]
fn in_straggler_3_each_job_has_four_hosts_on_each_leaf_and_three_have_a_slow_nic() {
    let found = setup(&named("straggler-3"), 1);
    assert_eq!(
        found.fabric,
        Fabric {
            topology: Topology::LeafSpine { leaves: 2, hosts_per_leaf: 16, spines: 4 },
            host_bps: 10 * GBIT,
            fabric_bps: 10 * GBIT,
            slow_links: Vec::new(),
            shared_nic: true,
            delay_ns: 1000,
            red: Some(Red { kmin_bytes: 40_000, kmax_bytes: 160_000, pmax: 0.2 }),
            buffer_bytes: 64 << 20,
            pfc: None,
            paths: Paths::CollisionFree,
        }
    );
    let hosts: Vec<&[u32]> = found.jobs.iter().map(|job| &job.hosts[..]).collect();
    assert_eq!(
        hosts,
        [
            [0, 16, 1, 17, 2, 18, 3, 19],
            [4, 20, 5, 21, 6, 22, 7, 23],
            [8, 24, 9, 25, 10, 26, 11, 27],
            [12, 28, 13, 29, 14, 30, 15, 31],
        ]
    );
    let slow: Vec<usize> =
        found.jobs.iter().map(|job| job.nic_bps.iter().filter(|bps| **bps == GBIT / 2).count()).collect();
    assert_eq!(slow, [0, 1, 1, 1]);
    let classes: Vec<&str> = found.jobs.iter().map(|job| &job.class[..]).collect();
    assert_eq!(classes, ["healthy", "straggler", "straggler", "straggler"]);
    for job in &found.jobs {
        assert!(job.start_at.iter().all(|at| *at == job.start_at[0] && *at < 200_000));
        assert_eq!((job.chunk_bytes, job.path_mtu, job.idle_ns), (2_000_000, 4096, 100_000_000));
        assert_eq!((job.collective, job.iterations, job.congestion_control), (Collective::AllReduce, 1, Some(DC55)));
    }
    // Each uplink of a leaf carries one edge of each job.
    for job in &found.jobs {
        let mut uplinks: Vec<(u32, u32)> =
            (0..8).map(|rank| (job.hosts[rank] / 16, job.hosts[(rank + 1) % 8] % 4)).collect();
        uplinks.sort_unstable();
        uplinks.dedup();
        assert_eq!(uplinks.len(), 8);
    }
    assert_eq!(named("straggler-3").classes(), ["healthy", "straggler"]);
}

#[test]
fn the_slow_rank_is_another_one_with_another_seed() {
    let scenario = named("straggler-1");
    let slow = |seed| setup(&scenario, seed).jobs[1].nic_bps.iter().position(|bps| *bps == GBIT / 2);
    let ranks: std::collections::BTreeSet<_> = (1..40).map(slow).collect();
    assert_eq!(ranks.len(), 8, "every rank at some time: {ranks:?}");
}

#[test]
fn multi_fills_the_cluster_with_four_jobs_that_share_no_host() {
    let found = setup(&named("multi"), 3);
    assert_eq!(found.jobs.iter().map(|job| job.hosts.len()).collect::<Vec<_>>(), [8; 4]);
    let mut hosts: Vec<u32> = found.jobs.iter().flat_map(|job| job.hosts.clone()).collect();
    assert!(!hosts.is_sorted());
    hosts.sort_unstable();
    assert_eq!(hosts, (0..32).collect::<Vec<_>>());
    assert_eq!(found.fabric.paths, Paths::PerFlow);
    assert!(found.jobs.iter().all(|job| job.start_at == [0; 8] && job.nic_bps == [10 * GBIT; 8] && job.class == "all"));
}

#[test]
fn background_comes_in_bursts_to_one_receiver_about_as_often_as_asked_for() {
    let found = setup(&named("incast"), 1);
    let bursts: Vec<&[Transfer]> = found.background.chunk_by(|a, b| a.start_at == b.start_at).collect();
    assert!((70..130).contains(&bursts.len()), "{} in a second at a mean gap of 10 ms", bursts.len());
    for burst in bursts {
        let mut senders: Vec<u32> = burst.iter().map(|transfer| transfer.from).collect();
        senders.sort_unstable();
        senders.dedup();
        assert_eq!(senders.len(), 6);
        assert!(burst.iter().all(|transfer| transfer.to == burst[0].to && transfer.bytes == 500_000));
        assert!(burst[0].start_at < GBIT);
    }
}

#[test]
fn one_kind_of_randomness_does_not_move_another() {
    let places = |scenario: &Scenario| setup(scenario, 7).jobs.iter().map(|job| job.hosts.clone()).collect::<Vec<_>>();
    assert_eq!(places(&named("multi")), places(&with("multi", &["job.jitter=1ms", "job.straggler.late=1ms"])));
    let jitter = with("rr", &["job.jitter=5ms"]);
    let slow = with("rr", &["job.jitter=5ms", "job.straggler.nic_percent=5"]);
    assert_eq!(setup(&jitter, 7).jobs[0].start_at, setup(&slow, 7).jobs[0].start_at);
}

#[test]
fn values_are_set_everywhere_or_in_one_place_with_or_without_quotes() {
    let chunks = |scenario: &Scenario| setup(scenario, 1).jobs.iter().map(|job| job.chunk_bytes).collect::<Vec<_>>();
    assert_eq!(chunks(&with("straggler-1", &["job.chunk=1MB"])), [1_000_000; 2]);
    assert_eq!(chunks(&with("straggler-1", &["job[1].chunk=\"1MB\""])), [2_000_000, 1_000_000]);
    let scenario =
        with("rr", &["fabric.rate=100Gbit", "fabric.paths = per-flow", "fabric.pfc=true", "fabric.ecn.pmax=1"]);
    let fabric = setup(&scenario, 1).fabric;
    assert_eq!((fabric.host_bps, fabric.fabric_bps, fabric.paths), (100 * GBIT, 100 * GBIT, Paths::PerFlow));
    assert_eq!(fabric.red.map(|red| (red.kmin_bytes, red.pmax)), Some((40_000, 1.0)));
    assert!(fabric.pfc.is_some());
    assert_eq!(setup(&with("rr", &["job.hosts=[3, 1]"]), 1).jobs.len(), 1, "hosts instead of ranks");
}

#[test]
fn errors_of_set_name_the_key_and_the_cure_and_change_nothing() {
    for (change, expected) in [
        ("chunk=1MB", "--set chunk=1MB: chunk: unknown field `chunk`, expected one of `description`"),
        ("job.chnk=1MB", "did you mean `chunk`?"),
        ("job.chunk=2 apples", "job.chunk: `2 apples` is not a number of bytes; write"),
        ("job.chunk", "write key=value, for instance job.chunk=2MB"),
        ("job[2].chunk=1MB", "job[2].chunk: there is no [2]; there are 2, counted from 0"),
        ("job[.chunk=1MB", "is no key"),
        ("fabric.rate.bits=1", "the path goes through a value that has no keys"),
        ("fabric.topology=ring", "unknown variant `ring`, expected one of `single`, `leaf-spine`, `fat-tree`"),
        ("fabric.leaves=1", "job[1].ranks: 8: no host is left for rank"),
        ("job.ranks=1", "job[0].ranks: 1; a ring has at least 2"),
        ("cc=reno", "cc: \"reno\" is no set; there are dc55"),
        ("job.class=", "job[0].class: is empty"),
        ("job.start=18446744073s", "job[0].start: 18446744073s; use at most 1000000s"),
        ("job.idle=18446744073s", "job[0].idle: 18446744073s; use at most 1000000s"),
        ("job[1].straggler.late=18446744073s", "job[1].straggler.late: 18446744073s; use at most 1000000s"),
        ("job.straggler.nic_percent=101", "nic_percent: 101; use more than 0, at most 100"),
        ("limit=1000001s", "limit: 1000001s; use at most 1000000s"),
        ("fabric.delay=2s", "fabric.delay: 2s; use at most 1s"),
        ("fabric={topology=\"fat-tree\", k=26, rate=\"10Gbit\"}", "fabric.k: 26; use 1 to 24"),
        ("job.hosts=[0, 8, 8, 1]", "job[0].hosts: ranks 1 and 2 are neighbours on host 8"),
        ("job.hosts=[0, 8, 0]", "job[0].hosts: ranks 2 and 0 are neighbours on host 0"),
    ] {
        let mut scenario = with("straggler-1", &["fabric.hosts_per_leaf=8"]);
        let before = scenario.clone();
        let error = scenario.set(change).expect_err(change).to_string();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
        assert_eq!(scenario, before);
    }
}

#[test]
fn errors_of_a_file_name_the_line_and_the_cure() {
    let fabric = "description = 'x'\n[fabric]\ntopology = 'single'\nhosts = 4\nrate = '10Gbit'\n";
    for (text, expected) in [
        (format!("{fabric}rat = 1"), "t.toml:6:1: fabric.rat: unknown field `rat`, expected one of"),
        (format!("{fabric}rat = 1"), "did you mean `rate`?"),
        (
            format!("{fabric}leaves = 2\n[[job]]\nranks = 4"),
            "t.toml:6:10: fabric.leaves: this topology has none; leave it out",
        ),
        (fabric.to_owned(), "job: no job; add a [[job]] with ranks = 8"),
        (format!("{fabric}[[job]]\nranks = 5"), "t.toml:7:9: job[0].ranks: 5: no host is left for rank 4"),
        (format!("{fabric}[[job]]\nrnks = 5"), "t.toml:7:1: job[0].rnks: unknown field `rnks`"),
        (format!("{fabric}[[job]]\nchunk = 5"), "job[0].chunk: invalid type: integer `5`, expected text with a unit"),
        (format!("{fabric}[[job]]\nranks = 4\nchunk = '5B'"), "t.toml:8:9: job[0].chunk: 5B; use a multiple of 4"),
        (format!("{fabric}[[job]]\nranks = 4\npath_mtu = 1500"), "1500 is no RoCE path MTU; use 256"),
        (format!("{fabric}[[job]]\nhosts = [0, 4]"), "job[0].hosts[1]: there is no host 4; there are 4"),
        (format!("{fabric}[[job]]\nranks = 4\nsteps = 9"), "a ring's steps follow from its ranks"),
        (format!("{fabric}[[job]]\nranks = 4\ncollective = 'stream'"), "say how many chunks it sends"),
        (format!("{fabric}[[job]]\nranks = 4\nstraggler = {{ ranks = [4] }}"), "there is no rank 4; there are 4"),
        (
            format!("{fabric}[[slow_link]]\nrate = '1Gbit'\n[[job]]\nranks = 4"),
            "slow_link[0]: a single switch has no uplinks",
        ),
        (
            format!(
                "{fabric}[[background]]\nsenders = 4\nbytes = '1MB'\nmean_gap = '1ms'\nuntil = '1s'\n[[job]]\nranks = 4"
            ),
            "background[0].senders: 4; use 1 to 3",
        ),
        (
            format!("{fabric}[[job]]\nranks = 4\ncollective = 'stream'\nsteps = 32\niterations = 1048576"),
            "t.toml:10:14: job[0].iterations: 1048576 of 32 steps; all together at most 16777216",
        ),
        (fabric.replace("description = 'x'\n", ""), "t.toml:1:1: missing field `description`"),
        (
            format!("{fabric}[[background]]\nbytes = '1KB'\nmean_gap = '1us'\nuntil = '9000s'\n[[job]]\nranks = 4"),
            "t.toml:9:9: background[0].until: 9000s: more than 262144 transfers until then",
        ),
        (
            format!(
                "{fabric}shared_nic = false\n[[background]]\nbytes = '1KB'\nmean_gap = '1ms'\nuntil = '1s'\n[[job]]\nranks = 4"
            ),
            "background[0]: needs hosts with one NIC each; leave it out, or say fabric.shared_nic = true",
        ),
    ] {
        let error = parse(&text).expect_err(&text).to_string();
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
    let error = Scenario::named("stragler-3").expect_err("there is none").to_string();
    assert!(error.contains("no scenario `stragler-3`; there are clean, ") && error.contains("straggler-3"), "{error}");
    let error = Scenario::find("no/such.toml").expect_err("there is none").to_string();
    assert!(error.contains("cannot read no/such.toml"), "{error}");
}
