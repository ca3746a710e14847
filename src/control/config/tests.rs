use proptest::prelude::*;

use super::*;
use crate::dataplane::{Direction, Fault, PortConfig, Red};
use crate::functions::symphony::{Policy, StepSource};

const FULL: &str = r#"
[switch]
name = "tor1"
datapath = "afxdp"
control = "/run/symphony/tor1.sock"
buffer = "32MiB"
seed = 1

[[port]]
name = "p1"
interface = "sw-h1"
rate = "200Mbit"
buffer = "1MB"
ecn = { kmin = "20KB", kmax = "80KB", pmax = 0.2 }

[forwarding]
mode = "learning"

[symphony]
enabled = true
policy = "owner-min"
threshold = 0.125
growing = true
queue = 0.05
gap = "75us"
epoch = "2ms"
recovery = "275us"
min_step = 2.0

[[job]]
id = 1
name = "train-a"
ring = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
step_source = "message"
requests_per_step = 1
step_size = "64KiB"
path_mtu = 1024
steps_per_collective = 6
idle = "10 steps"
enabled = true
"#;

#[track_caller]
fn live(text: &str) -> Config {
    Config::parse(text, "t.toml", Purpose::Live).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn error(text: &str) -> String {
    Config::parse(text, "t.toml", Purpose::Live).expect_err("it is wrong").to_string()
}

#[test]
fn every_key_comes_out_in_the_units_of_the_core() {
    let config = live(FULL);
    assert_eq!(config.control, Path::new("/run/symphony/tor1.sock"));
    let red = Some(Red { kmin_bytes: 20_000, kmax_bytes: 80_000, pmax: 0.2 });
    let port = PortConfig {
        name: "p1".into(),
        rate_bps: Some(200_000_000),
        buffer_bytes: 1_000_000,
        red,
        pfc: None,
        fault: None,
    };
    assert_eq!(config.switch, SwitchConfig { buffer_bytes: 32 << 20, seed: 1, ports: vec![port] });
    assert_eq!(config.interfaces, ["sw-h1"]);
    assert_eq!(config.forward, ForwardConfig::Learning);
    let epoch_ns = 1 << 20; // the largest power of two in 2 ms
    assert_eq!(config.parameters, Parameters { epoch_ns, ..Parameters::default() });
    let job = Job {
        id: 1,
        name: "train-a".into(),
        ring: (1..=4).map(|rank| std::net::IpAddr::from([10, 0, 0, rank])).collect(),
        step_source: StepSource::Message,
        requests_per_step: 1,
        packets_per_step: Some(64),
        path_mtu: 1024,
        steps_per_collective: 6,
        step_ns: Some(65536 * 8 * 5),
        idle_ns: 10 * (65536 * 8 * 5), // ten times 64 KiB at 200 Mbit/s
        enabled: true,
    };
    assert_eq!(config.jobs, [job]);
}

#[test]
fn the_switch_name_alone_is_enough_and_the_defaults_are_those_of_the_full_example() {
    let short = live(
        "[switch]\nname = 'tor1'\n[[port]]\ninterface = 'sw-h1'\nrate = '200Mbit'\n[[job]]\nstep_size = '64KiB'\nname = 'train-a'\nring = ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4']",
    );
    assert_eq!(short, live(FULL));
    let shortest = live("[switch]\nname = 'x'");
    assert_eq!(shortest.control, Path::new("/run/symphony/x.sock"));
    assert!(shortest.switch.ports.is_empty() && shortest.jobs.is_empty());
}

#[test]
fn faults_come_out_as_written_and_a_replay_has_none() {
    let text = "[switch]\nname = 'x'\n[[port]]\nfault = { loss = 0.05, delay = '2ms', delay_jitter = '1ms', reorder = 0.1, direction = 'in' }\n[[port]]\nfault = {}\n[[port]]";
    let config = live(text);
    let faults: Vec<_> = config.switch.ports.iter().map(|port| port.fault).collect();
    let first = Fault {
        direction: Direction::In,
        loss: 0.05,
        delay_ns: 2_000_000,
        delay_jitter_ns: 1_000_000,
        reorder: 0.1,
        ..Fault::default()
    };
    assert_eq!(faults, [Some(first), Some(Fault::default()), None]);
    let printed = config.to_toml();
    assert!(printed.contains("delay_jitter = \"1ms\"") && printed.contains("corrupt = 0.0"), "{printed}");
    assert_eq!(live(&printed), config);
    let replay = Config::parse(text, "t.toml", Purpose::Replay).expect("it is right");
    assert!(replay.switch.ports.iter().all(|port| port.fault.is_none()));
}

#[test]
fn what_is_printed_parses_back_to_the_same() {
    let other = "[switch]\nname = 'b'\n[[port]]\n[[port]]\necn = 'off'\n[forwarding]\nmode = 'static'\n\
        [[route]]\nmatch = '10.0.0.0/24'\nvia = [{ port = 'p1', mac = '02:00:00:00:00:01' }, { port = 'p2', mac = '02:00:00:00:00:02' }]\n\
        [symphony]\npolicy = 'blind'\nblind_probability = 0.1\nepoch = '3ms'\n[[job]]\nring = ['fd00::1', 'fd00::2']\nidle = '1s'";
    for text in [FULL, other, "[switch]\nname = 'x'"] {
        let config = live(text);
        let again = live(&config.to_toml());
        assert_eq!(again, config, "{}", config.to_toml());
    }
    let printed = live(other).to_toml();
    for part in [
        "control = \"/run/symphony/b.sock\"",
        "interface = \"p1\"",
        "epoch = \"2097152ns\"",
        "steps_per_collective = 2",
    ] {
        assert!(printed.contains(part), "{part} is in force and shown:\n{printed}");
    }
}

#[test]
fn errors_name_the_place_the_key_the_value_and_the_cure() {
    let switch = "[switch]\nname = 'x'\n";
    let job = |keys: &str| format!("{switch}[[job]]\nring = ['10.0.0.1', '10.0.0.2']\n{keys}");
    for (text, expected) in [
        ("[switch]\nname = ".to_owned(), "t.toml:2:"),
        ("[switch]\n".to_owned(), "t.toml:1:1: switch: missing field `name`"),
        ("[[port]]".to_owned(), "missing field `switch`; write [switch] and a name = \"..\""),
        (format!("{switch}name = 'y'"), "t.toml:3:1: duplicate key `name`; leave one of them"),
        (format!("{switch}[port]\nname = 'p1'"), "port: invalid type: map, expected a sequence; write [[port]]"),
        (
            format!("{switch}[[job]]\nring = '10.0.0.1'"),
            "t.toml:4:8: job[0].ring: invalid type: string \"10.0.0.1\", expected a sequence; write [ .., .. ]",
        ),
        (format!("{switch}bufer = '1MB'"), "t.toml:3:1: switch.bufer: unknown field `bufer`, expected one of"),
        (format!("{switch}bufer = '1MB'"), "did you mean `buffer`?"),
        (
            format!("{switch}buffer = '1 MiB/s'"),
            "t.toml:3:10: switch.buffer: `1 MiB/s` is not a number of bytes; write",
        ),
        (
            format!("{switch}[[port]]\nfault = {{ loss = 5 }}"),
            "t.toml:4:18: port[0].fault.loss: 5 is no probability; use 0 to 1",
        ),
        (
            format!("{switch}[[port]]\nfault = {{ delay = '1ms', delay_jitter = '2ms' }}"),
            "delay_jitter: 2ms is more than delay = 1ms; no packet comes before it was sent",
        ),
        (
            format!("{switch}[[port]]\nfault = {{ reorder = 0.1 }}"),
            "reorder: 0.1, but no packet is held back that another could overtake; give a delay",
        ),
        (format!("{switch}[[port]]\nfault = {{ los = 0.1 }}"), "did you mean `loss`?"),
        (
            format!("{switch}buffer = 5"),
            "t.toml:3:10: switch.buffer: invalid type: integer `5`, expected text with a unit",
        ),
        (
            format!("{switch}datapath = 'xdp'"),
            "t.toml:3:12: switch.datapath: the xdp datapath is not built yet; use \"afxdp\"",
        ),
        (
            format!("{switch}[[port]]\nname = 'a'\n[[port]]\nname = 'a'"),
            "t.toml:6:8: port[1].name: two ports are called \"a\"",
        ),
        (
            format!("{switch}[[port]]\n[[port]]\ninterface = 'p1'"),
            "port[1].interface: \"p1\" is the interface of port \"p1\" already",
        ),
        (
            format!("{switch}[[port]]\necn = {{ kmin = '2KB', kmax = '1KB' }}"),
            "t.toml:4:16: port[0].ecn.kmin: 2KB is above kmax = 1KB",
        ),
        (format!("{switch}[[port]]\necn = {{ pmax = 1.5 }}"), "t.toml:4:16: port[0].ecn.pmax: 1.5 is no probability"),
        (format!("{switch}[[port]]\necn = {{ pmax = nan }}"), "NaN is no probability"),
        (
            format!("{switch}[[port]]\necn = {{ kmn = '1KB' }}"),
            "t.toml:4:9: port[0].ecn.kmn: unknown field `kmn`, expected one of `kmin`, `kmax`, `pmax`; did you mean `kmin`?",
        ),
        (format!("{switch}[[route]]\nmatch = '10.0.0.0/24'\nvia = []"), "set [forwarding] mode = \"static\""),
        (format!("{switch}[symphony]\nthreshold = 0"), "t.toml:4:13: symphony.threshold: 0 steps; use 1/256 or more"),
        (format!("{switch}[symphony]\npolicy = 'ownermin'"), "did you mean `owner-min`?"),
        (format!("{switch}[symphony]\nepoch = '1us'"), "symphony.epoch: 512ns; use 1024ns"),
        (job("path_mtu = 4096"), "job[0].path_mtu: packets of path MTU 4096 do not fit an AF_XDP frame"),
        (job("path_mtu = 1500"), "t.toml:5:12: job[0].path_mtu: 1500 is no RoCE path MTU"),
        (job("step_source = 'psn'"), "job[0].packets_per_step: step_source = \"psn\" counts packets"),
        (job("step_source = 'imm'\nrequests_per_step = 3"), "3 is no power of two"),
        (job("step_size = '64KiB'\npackets_per_step = 5"), "5 packets a step, but step_size = 64KiB"),
        (job("idle = '0 steps'"), "job[0].idle: 0ns is too short"),
        (job("name = \"a\\u001b[31m\""), "job[0].name: \"a\\u{1b}[31m\" is no name; use 1 to 64 letters"),
        (job("idle = '4000000000 steps'"), "more than an hour"),
        (job("[[job]]\nid = 1\nring = ['10.0.1.1', '10.0.1.2']"), "job[1].id: 1 is the id of two jobs"),
        (
            job("[[job]]\nring = ['10.0.0.9', '10.0.0.1', '10.0.0.2']"),
            "job[1].ring[1]: jobs 1 and 2 both claim the edge 10.0.0.1 -> 10.0.0.2",
        ),
        (
            job("[[job]]\nring = ['::ffff:10.0.0.1', '::ffff:10.0.0.2']"),
            "job[1].ring[0]: jobs 1 and 2 both claim the edge 10.0.0.1 -> 10.0.0.2",
        ),
        (format!("{switch}[[job]]\nring = ['10.0.0.1']"), "job[0].ring: 1 address(es); a ring has at least 2 ranks"),
        (
            format!("{switch}[[job]]\nring = ['10.0.0.1', '10.0.0.300']"),
            "t.toml:4:21: job[0].ring[1]: \"10.0.0.300\" is no IP address",
        ),
        (format!("{switch}[[job]]\nring = ['10.0.0.1', '10.0.0.1']"), "10.0.0.1 is rank 0 already"),
        (format!("{switch}[[job]]\nring = ['10.0.0.1', 'fd00::1']"), "IPv4 or IPv6, not both"),
        ("[switch]\nname = '../../etc'".to_owned(), "t.toml:2:8: switch.name: \"../../etc\" is no name"),
    ] {
        let error = error(&text);
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
}

#[test]
fn static_routes_become_next_hops() {
    let routes =
        |routes: &str| format!("[switch]\nname = 'x'\n[forwarding]\nmode = 'static'\n[[port]]\n[[port]]\n{routes}");
    let config = live(&routes(
        "[[route]]\nmatch = '02:00:00:00:00:0a'\nvia = [{ port = 'p2' }]\n\
         [[route]]\nmatch = '10.0.0.0/24'\nvia = [{ port = 'p1', mac = '02:00:00:00:00:01' }]",
    ));
    let ForwardConfig::Static(found) = config.forward else { panic!("it is static") };
    assert_eq!(found[0].matches, crate::functions::forward::RouteMatch::Mac([2, 0, 0, 0, 0, 10]));
    assert_eq!(found[0].via[0].port, 1);
    let address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 0];
    let prefix = crate::functions::forward::Prefix { address, bits: 120 };
    assert_eq!(found[1].matches, crate::functions::forward::RouteMatch::Prefix(prefix));
    assert_eq!(found[1].via[0].mac, Some([2, 0, 0, 0, 0, 1]));

    for (text, expected) in [
        ("[[route]]\nmatch = '10.0.0.1/24'\nvia = []", "write 10.0.0.0 in front"),
        ("[[route]]\nmatch = '10.0.0.0/33'\nvia = []", "is no prefix"),
        ("[[route]]\nmatch = '10.0.0.1'\nvia = []", "neither a MAC"),
        ("[[route]]\nmatch = '::/0'\nvia = []", "no next hop"),
        ("[[route]]\nmatch = '::/0'\nvia = [{ port = 'p9' }]", "no port is called \"p9\"; there are: p1, p2"),
        ("[[route]]\nmatch = '::/0'\nvia = [{ port = 'p1' }]", "add mac"),
        ("[[route]]\nmatch = '::/0'\nvia = [{ port = 'p1', mac = 'ff:ff:ff:ff:ff:ff' }]", "no station's MAC"),
    ] {
        let error = error(&routes(text));
        assert!(error.contains(expected), "{error}\nlacks\n{expected}");
    }
}

#[test]
fn a_replay_minds_neither_datapath_nor_frame_size() {
    let text = "[switch]\nname = 'x'\ndatapath = 'xdp'\n[[job]]\nring = ['10.0.0.1', '10.0.0.2']\npath_mtu = 4096";
    assert!(Config::parse(text, "t.toml", Purpose::Live).is_err());
    assert!(Config::parse(text, "t.toml", Purpose::Replay).is_ok());
}

#[test]
fn packets_of_a_step_are_cut_request_by_request() {
    assert_eq!(file::packets_per_step(1_400_000, 1, 2048), Some(684));
    assert_eq!(file::packets_per_step(4097, 2, 1024), Some(6), "2049 bytes are 3 packets, twice");
    assert_eq!(file::packets_per_step(1, 0, 1024), None);
    assert_eq!(file::packets_per_step(u64::MAX, u16::MAX, 256), None);
}

#[test]
fn blind_takes_its_probability() {
    let config = live(
        "[switch]\nname = 'x'\n[symphony]\npolicy = 'blind'\nblind_probability = 0.25\nthreshold = 0.25\nqueue = 0\ngap = 0",
    );
    assert_eq!(config.parameters.policy, Policy::Blind { probability: 0.25 });
    assert_eq!((config.parameters.threshold, config.parameters.queue_fraction, config.parameters.gap_ns), (64, 0.0, 0));
}

proptest! {
    #[test]
    fn no_text_panics(text in "(?s).{0,200}") {
        let _ = Config::parse(&text, "t.toml", Purpose::Live);
    }

    #[test]
    fn no_nearly_right_text_panics(at in 0..FULL.len(), cut in 0..30usize, insert in "(?s).{0,4}") {
        let end = (at + cut).min(FULL.len());
        let text = format!("{}{insert}{}", &FULL[..at], &FULL[end..]);
        if let Ok(config) = Config::parse(&text, "t.toml", Purpose::Live) {
            prop_assert_eq!(live(&config.to_toml()), config);
        }
    }

    #[test]
    fn no_value_panics(key in "(buffer|seed|rate|kmin|pmax|threshold|queue|epoch|gap|step_size|path_mtu|requests_per_step|packets_per_step|steps_per_collective|idle)", value in "(-?[0-9]{1,20}(\\.[0-9]{1,20})?|nan|inf|\"[0-9]{1,20} ?(B|GiB|Tbit|ns|s|steps)\")") {
        let start = FULL.find(&format!("{key} = ")).map(|at| at + key.len() + 3).unwrap_or(FULL.len());
        let end = FULL[start..].find(['\n', ',', '}']).map_or(FULL.len(), |at| start + at);
        let text = format!("{}{value}{}", &FULL[..start], &FULL[end..]);
        if let Ok(config) = Config::parse(&text, "t.toml", Purpose::Live) {
            prop_assert_eq!(live(&config.to_toml()), config);
        }
    }
}

const SERENE: &str = "[switch]\nname = 'x'\n[serene]\naddress = '10.0.0.254'\n";

/// A directory with the job files `1.toml`, `2.toml`, .. and the path of a configuration in it.
fn with_jobs(jobs: &[&str]) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    for (job, number) in jobs.iter().zip(1..) {
        std::fs::write(directory.path().join(format!("{number}.toml")), job).unwrap();
    }
    let path = directory.path().join("switch.toml").display().to_string();
    (directory, path)
}

#[test]
fn without_its_table_there_is_no_aggregation_and_with_it_a_service_address() {
    assert_eq!(live("[switch]\nname = 'x'").serene, None);
    let serene = live(SERENE).serene.unwrap();
    assert_eq!(serene.address, std::net::Ipv4Addr::new(10, 0, 0, 254));
    assert_eq!(serene.mac, [0x02, 0x5e, 10, 0, 0, 254], "locally administered, and its own");
    assert_eq!(live(&format!("{SERENE}mac = '02:00:00:00:00:09'")).serene.unwrap().mac, [2, 0, 0, 0, 0, 9]);
    assert_eq!(serene.control_fault, None);
    let faulty = live(&format!("{SERENE}fault = {{ loss = 0.3 }}"));
    assert_eq!(faulty.serene.as_ref().unwrap().control_fault, Some(Fault { loss: 0.3, ..Fault::default() }));
    assert_eq!(live(&faulty.to_toml()), faulty);
}

#[test]
fn job_files_are_found_beside_the_configuration_and_the_printed_one_finds_them_from_anywhere() {
    let (directory, path) = with_jobs(&["[job]\nid = 7\nmembers = ['10.0.0.1:7001']\nsegments = 2\n"]);
    let config = Config::parse(&format!("{SERENE}load = ['1.toml']"), &path, Purpose::Live).unwrap();
    assert_eq!(config.serene.as_ref().unwrap().jobs[0].id, 7);
    assert_eq!(live(&config.to_toml()), config);
    drop(directory);
}

#[test]
fn what_is_wrong_with_aggregation_is_told_where_it_is_written() {
    let job = "[job]\nid = 7\nmembers = ['10.0.0.1:7001']\nsegments = 2\n";
    let (directory, path) = with_jobs(&[job, job, &job.replace("10.0.0.1", "10.0.0.254"), &job.replace("id", "di")]);
    let error = |text: &str| {
        let error = Config::parse(text, &path, Purpose::Live).expect_err(text).to_string();
        error.replace(&directory.path().display().to_string(), "DIR")
    };
    let texts = [
        SERENE.replace("10.0.0.254", "10.0.0.0/24"),
        SERENE.replace("10.0.0.254", "224.0.0.1"),
        format!("{SERENE}mac = '03:00:00:00:00:01'"),
        format!("{SERENE}laod = []"),
        format!("{SERENE}fault = {{ loss = 5 }}"),
        format!("{SERENE}load = ['9.toml']"),
        format!("{SERENE}load = ['1.toml', '2.toml']"),
        format!("{SERENE}load = ['3.toml']"),
        format!("{SERENE}load = ['4.toml']"),
    ];
    insta::assert_snapshot!(texts.map(|text| error(&text)).join("\n"), @r#"
    DIR/switch.toml:4:11: serene.address: "10.0.0.0/24" is no host's IPv4 address; give a free one of the workers' network
    DIR/switch.toml:4:11: serene.address: "224.0.0.1" is no host's IPv4 address; give a free one of the workers' network
    DIR/switch.toml:5:7: serene.mac: "03:00:00:00:00:01" is no station's MAC; write it as 02:00:00:00:00:01
    DIR/switch.toml:5:1: serene.laod: unknown field `laod`, expected one of `address`, `mac`, `load`, `fault`; did you mean `load`?
    DIR/switch.toml:5:18: serene.fault.loss: 5 is no probability; use 0 to 1
    DIR/switch.toml:5:9: serene.load[0]: cannot read DIR/9.toml: No such file or directory (os error 2); paths are relative to this file
    DIR/switch.toml:5:19: serene.load[1]: DIR/2.toml describes job 7, as another one does; give each its own id
    DIR/switch.toml:5:9: serene.load[0]: DIR/3.toml has the member 10.0.0.254:7001, which is the switch's own address
    DIR/4.toml:2:1: job.di: unknown field `di`, expected one of `id`, `members`, `segments`, `lanes`, `scale_log2`, `start`; did you mean `id`?
    "#);
}
