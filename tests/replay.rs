//! `symphony replay` on captures of Linux soft-RoCE, held against tshark.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{captures, config, data, frames, read, replay, report, text};
use serde_json::{Value, json};
use symphony::capture::{Direction, Packet, Writer};
use symphony::wire::{Ecn, Opcode, bth, ethernet, icrc, ipv4, ipv6, roce, udp};
use tempfile::TempDir;

/// Flows by "source destination queue-pair".
fn flows(report: &Value) -> BTreeMap<String, &Value> {
    let flows = report["flows"].as_array().expect("an array").iter();
    flows.map(|flow| (format!("{} {} {}", text(&flow["src"]), text(&flow["dst"]), flow["qpn"]), flow)).collect()
}

/// Runs tshark and splits its lines into fields; `None`, with a notice, where it is not installed.
fn tshark(capture: &Path, options: &[&str], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-T", "fields", "-E", "occurrence=f"]).args(options);
    for field in fields {
        command.args(["-e", field]);
    }
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: tshark is not installed");
        return None;
    };
    assert!(output.status.success(), "tshark: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).expect("text");
    Some(lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

#[test]
fn every_packet_of_every_capture_is_rocev2_with_a_right_icrc_and_a_known_opcode() {
    for name in captures() {
        let report = report(&data(&name), &[]);
        let packets = frames(&name).len();
        assert_eq!(report["packets"], packets, "{name}");
        assert_eq!(report["rocev2"], packets, "{name}");
        assert_eq!(report["icrc"], json!({ "ok": packets, "bad": 0 }), "{name}");
        assert_eq!(report["malformed"], 0, "{name}");
        assert_eq!((&report["drops"], &report["marks"]), (&json!({}), &json!({ "red": 0, "symphony": 0 })), "{name}");
        for opcode in report["by_opcode"].as_object().expect("an object").keys() {
            let opcode = Opcode(u8::from_str_radix(opcode, 16).expect("two hexadecimal digits"));
            assert!(opcode.is_known(), "{name}: {opcode}");
        }
    }
}

#[test]
fn the_report_of_a_ring_says_everything_about_it() {
    let flow = |src: u8, dst: u8, qpn: u32| {
        json!({ "src": format!("fd99::{src}"), "dst": format!("fd99::{dst}"), "qpn": qpn, "packets": 96,
                "retransmitted": 0, "messages": 6, "step": 6 })
    };
    let config = config("ring4_v6.toml");
    assert_eq!(
        report(&data("ring4_v6_16k_bridge.pcap"), &config.each_ref().map(String::as_str)),
        json!({
            "version": 1, "packets": 408, "rocev2": 408, "malformed": 0,
            "by_opcode": { "06": 24, "07": 336, "09": 24, "11": 24 },
            "icrc": { "ok": 408, "bad": 0 },
            "ecn": { "not_ect": 0, "ect0": 408, "ect1": 0, "ce": 0 },
            "flows": [flow(1, 2, 42), flow(2, 3, 34), flow(3, 4, 34), flow(4, 1, 41 + 1)],
            "jobs": [{ "job": 1, "min_step": 6, "max_step": 6 }],
            "marks": { "red": 0, "symphony": 0 }, "drops": {},
        })
    );
}

#[test]
fn rings_and_rings_with_loss_are_tracked_to_six_steps() {
    for name in ["ring4_v4_16k_bridge", "loss_mid_sender", "loss_mid_receiver", "rnr_nak"] {
        let config = config("ring4_v4.toml");
        let report = report(&data(&format!("{name}.pcap")), &config.each_ref().map(String::as_str));
        assert_eq!(report["jobs"], json!([{ "job": 1, "min_step": 6, "max_step": 6 }]), "{name}");
        for (flow, view) in flows(&report) {
            assert_eq!((&view["step"], &view["messages"]), (&json!(6), &json!(6)), "{name}: {flow}");
        }
    }
}

/// Flows as tshark sees them: packets, retransmissions, distinct with-immediate ends.
fn flows_by_tshark(capture: &Path) -> Option<BTreeMap<String, [usize; 3]>> {
    const DATA: [u8; 26] = [
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x16, 0x17, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29,
        0x2a, 0x2b,
    ];
    let fields = ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "infiniband.bth.destqp", "infiniband.bth.opcode"];
    let lines = tshark(capture, &[], &[&fields[..], &["infiniband.bth.psn"]].concat())?;
    let mut flows: BTreeMap<String, Vec<(u8, u32)>> = BTreeMap::new();
    for line in lines {
        let opcode: u8 = line[5].parse().expect("an opcode");
        let qpn = u32::from_str_radix(line[4].trim_start_matches("0x"), 16).expect("a queue pair");
        if DATA.contains(&opcode) {
            let packets = flows.entry(format!("{}{} {}{} {qpn}", line[0], line[2], line[1], line[3])).or_default();
            packets.push((opcode, line[6].parse().expect("a PSN")));
        }
    }
    let count = |packets: Vec<(u8, u32)>| {
        // No capture here wraps its PSNs in a flow, so plain numbers do.
        let is_old = |i: usize| packets[..i].iter().any(|(_, psn)| *psn >= packets[i].1);
        let retransmitted = (0..packets.len()).filter(|i| is_old(*i)).count();
        let mut ends: Vec<u32> =
            packets.iter().filter(|(op, _)| matches!(op & 0xf, 3 | 5 | 9 | 11)).map(|p| p.1).collect();
        ends.sort_unstable();
        ends.dedup();
        [packets.len(), retransmitted, ends.len()]
    };
    Some(flows.into_iter().map(|(name, packets)| (name, count(packets))).collect())
}

#[test]
fn flows_of_every_capture_are_counted_as_by_tshark() {
    for name in captures() {
        let Some(expected) = flows_by_tshark(&data(&name)) else { return };
        let report = report(&data(&name), &[]);
        let seen = flows(&report).into_iter().map(|(flow, view)| {
            let number = |field: &str| view[field].as_u64().expect("a number") as usize;
            (flow, ["packets", "retransmitted", "messages"].map(number))
        });
        assert_eq!(seen.collect::<BTreeMap<_, _>>(), expected, "{name}");
    }
}

#[test]
fn without_ports_the_frames_are_written_as_they_came() {
    let dir = TempDir::new().expect("a directory");
    let out = dir.path().join("out.pcapng");
    for name in captures() {
        report(&data(&name), &["--write", out.to_str().expect("UTF-8")]);
        let written: Vec<Vec<u8>> = read(&out).into_iter().map(|packet| packet.data).collect();
        assert!(written == frames(&name), "{name}");
        let Some(lines) = tshark(&out, &[], &["frame.packet_flags_direction", "frame.comment"]) else { return };
        assert_eq!(lines.len(), written.len(), "{name}");
        for (line, number) in lines.iter().zip(1..) {
            assert_eq!(line[0], "0x00000001", "{name}: inbound");
            assert!(line[1].starts_with(&format!("packet {number}")), "{name}: {}", line[1]);
        }
    }
}

/// What a test wants to know of a RoCEv2 frame.
struct Seen {
    opcode: Opcode,
    ecn: Ecn,
}

/// Reads a frame and checks what must hold for every frame that leaves: header checksum and ICRC.
#[track_caller]
fn sound(frame: &[u8]) -> Seen {
    let eth = ethernet::Frame::new_checked(frame).expect("an Ethernet header");
    icrc::verify(eth.payload()).expect("the ICRC is right");
    let (ecn, datagram) = match eth.ethertype() {
        ethernet::IPV4 => {
            let ip = ipv4::Packet::new_checked(eth.payload()).expect("IPv4");
            assert!(ip.checksum_is_valid());
            (ip.ecn(), ip.payload())
        }
        _ => {
            let ip = ipv6::Packet::new_checked(eth.payload()).expect("IPv6");
            (ip.ecn(), ip.payload())
        }
    };
    let payload = udp::Packet::new_checked(datagram).expect("UDP").payload();
    Seen { opcode: bth::Packet::new_checked(payload).expect("BTH").opcode(), ecn }
}

/// Sets the ToS byte of an IPv4 frame and its checksum.
fn with_tos(frame: &[u8], tos: u8) -> Vec<u8> {
    let (repr, payload) = roce::Repr::parse_frame(frame).expect("RoCEv2");
    let eth = ethernet::Frame::new_checked(frame).expect("whole");
    let repr = roce::Repr { tos, ..repr };
    let mut again = vec![0; repr.frame_len()];
    repr.emit_frame(eth.src(), eth.dst(), payload, &mut again).expect("it fits");
    again
}

/// The ring's capture twice, with a rest between, so that the job is armed the second time; in the second half also a
/// CNP after each acknowledgement, and every eighth data packet is not ECN-capable.
fn busy_ring(path: &Path) {
    const REST_NS: u64 = 3_000_000_000; // longer than the queues of the first half take to drain, and than `idle`
    let packets = read(&data("ring4_v4_16k_bridge.pcap"));
    let mut writer = Writer::new(std::fs::File::create(path).expect("a file"), ["wire"]).expect("written");
    let mut write = |at, frame: &[u8]| {
        writer.packet(at, 0, Direction::Inbound, frame.len() as u32, frame, "").expect("written");
    };
    for packet in &packets {
        write(packet.timestamp_ns, &packet.data);
    }
    for packet in &packets {
        let at = packet.timestamp_ns + REST_NS;
        let Seen { opcode, .. } = sound(&packet.data);
        if opcode.is_acknowledge() {
            write(at, &packet.data);
            let (ack, _) = roce::Repr::parse_frame(&packet.data).expect("RoCEv2");
            let cnp = roce::Repr { tos: 0xc2, ..roce::Repr::cnp(ack.src, ack.dst, ack.dest_qpn) };
            let eth = ethernet::Frame::new_checked(&packet.data[..]).expect("whole");
            let mut frame = vec![0; cnp.frame_len()];
            cnp.emit_frame(eth.src(), eth.dst(), &roce::CNP_RESERVED, &mut frame).expect("it fits");
            write(at, &frame);
        } else {
            let tos = if packet.number % 8 == 0 { 0x68 } else { 0x6a };
            write(at, &with_tos(&packet.data, tos));
        }
    }
    writer.finish().expect("written");
}

#[test]
fn queues_mark_data_that_is_ecn_capable_and_nothing_else() {
    let dir = TempDir::new().expect("a directory");
    let (input, out) = (dir.path().join("in.pcapng"), dir.path().join("out.pcapng"));
    busy_ring(&input);
    let config = config("ring4_v4_slow.toml");
    let options = [&config.each_ref().map(String::as_str)[..], &["--write", out.to_str().expect("UTF-8")]].concat();
    let report = report(&input, &options);
    let (red, symphony) = (&report["marks"]["red"], &report["marks"]["symphony"]);
    assert!(red.as_u64() > Some(20) && symphony.as_u64() > Some(5), "{}", report["marks"]);
    assert_eq!(report["drops"], json!({}));
    assert_eq!(report["jobs"], json!([{ "job": 1, "min_step": 6, "max_step": 6 }]), "counted anew after the rest");

    let mut by_ecn = BTreeMap::new();
    for packet in read(&out) {
        let Seen { opcode, ecn } = sound(&packet.data);
        assert!(ecn != Ecn::Ce || opcode.is_request_data(), "{opcode} was marked");
        *by_ecn.entry((opcode.is_request_data(), ecn as u8)).or_insert(0u64) += 1;
    }
    let marks = [red, symphony].iter().filter_map(|marks| marks.as_u64()).sum::<u64>();
    assert_eq!(by_ecn[&(true, Ecn::Ce as u8)], marks);
    let not_capable = |packet: &&Packet| sound(&packet.data).ecn == Ecn::NotEct;
    assert_eq!(by_ecn[&(true, Ecn::NotEct as u8)], read(&input).iter().filter(not_capable).count() as u64);

    let by_comment = |by: &str| {
        let filter = format!("frame.comment contains \"CE set by {by}\" and ip.dsfield.ecn == 3");
        tshark(&out, &["-Y", &filter], &["frame.number"]).map(|lines| lines.len() as u64)
    };
    let Some(by_symphony) = by_comment("symphony") else { return };
    assert_eq!(Some(by_symphony), symphony.as_u64());
    assert_eq!(by_comment("red").zip(by_comment("both")).map(|(red, both)| red + both), red.as_u64());
}

/// Two flows of the ring at ports that are too slow for both: one does its six steps at an even pace, the other only two,
/// in bursts and always behind. No RED.
#[test]
fn the_flow_that_is_ahead_is_marked_and_the_one_behind_is_not() {
    const MS: u64 = 1_000_000;
    let dir = TempDir::new().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (input, out, config) = (path("in.pcapng"), path("out.pcapng"), path("c.toml"));
    let text = std::fs::read_to_string(data("ring4_v4_slow.toml")).expect("readable");
    std::fs::write(&config, text.replace("kmax = \"64KB\", pmax = 0.2", "kmax = \"1MB\", pmax = 0.0"))
        .expect("written");

    let ring = frames("ring4_v4_16k_bridge.pcap");
    let flow = |last: u8, data: bool| {
        ring.iter().filter(move |frame| frame[29] == last && sound(frame).opcode.is_request_data() == data)
    };
    let mut sent: Vec<(u64, &Vec<u8>)> = (1..=4).filter_map(|rank| Some((0, flow(rank, false).next()?))).collect();
    let start = 200 * MS; // after more than `idle`: the job is armed
    sent.extend(flow(1, true).zip(0..).map(|(frame, n)| (start + n * MS, frame)));
    sent.extend(flow(2, true).take(32).zip(0..).map(|(frame, n)| (start + (20 + n / 16 * 40) * MS + n, frame)));
    sent.sort_by_key(|(at, _)| *at);
    let mut writer = Writer::new(std::fs::File::create(&input).expect("a file"), ["wire"]).expect("written");
    for (at, frame) in sent {
        writer.packet(at, 0, Direction::Inbound, frame.len() as u32, frame, "").expect("written");
    }
    writer.finish().expect("written");

    let report = report(Path::new(&input), &["--config", &config, "--write", &out]);
    assert_eq!(report["jobs"], json!([{ "job": 1, "min_step": 2, "max_step": 6 }]));
    let mut marked = [0; 5];
    for packet in read(Path::new(&out)) {
        marked[usize::from(packet.data[29])] += u64::from(sound(&packet.data).ecn == Ecn::Ce);
    }
    assert!(marked[1] > 10, "{marked:?}");
    assert_eq!(marked, [0, marked[1], 0, 0, 0]);
    assert_eq!(report["marks"], json!({ "red": 0, "symphony": marked[1] }));
}

#[test]
fn a_switch_with_symphony_off_marks_as_one_without_it() {
    let dir = TempDir::new().expect("a directory");
    let [input, with, off, without] = ["in.pcapng", "with", "off", "without"].map(|name| dir.path().join(name));
    busy_ring(&input);
    let text = std::fs::read_to_string(data("ring4_v4_slow.toml")).expect("readable");
    let no_job = text.split("[[job]]").next().expect("a first part");
    let run = |out: &PathBuf, config: &str| {
        let file = dir.path().join("config.toml");
        std::fs::write(&file, config).expect("written");
        let options = ["--config", file.to_str().expect("UTF-8"), "--write", out.to_str().expect("UTF-8")];
        report(&input, &options);
        read(out)
    };
    let without = run(&without, no_job);
    assert!(run(&off, &format!("{text}enabled = false\n")) == without, "the job is off");
    assert!(run(&off, &text.replace("[symphony]", "[symphony]\nenabled = false")) == without, "the function is off");
    assert!(run(&with, &text) != without, "on, it makes a difference");
}

#[test]
fn the_trace_has_every_packet_in_order_with_each_register_touched_once() {
    let dir = TempDir::new().expect("a directory");
    let (input, out) = (dir.path().join("in.pcapng"), dir.path().join("out.jsonl"));
    busy_ring(&input);
    let config = config("ring4_v4_slow.toml");
    let options = [&config.each_ref().map(String::as_str)[..], &["--trace", out.to_str().expect("UTF-8")]].concat();
    let report = report(&input, &options);
    let trace = std::fs::read_to_string(&out).expect("it was written");
    let lines: Vec<Value> = trace.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(report["packets"], lines.len());
    let registers = |pass: &Value| -> Vec<String> {
        let stages = pass["stages"].as_array().expect("stages").iter();
        let accesses = stages.flat_map(|stage| stage["registers"].as_array().cloned().unwrap_or_default());
        accesses.map(|access| text(&access["register"]).to_owned()).collect()
    };
    let first = json!({ "src": "10.99.0.2", "dst": "10.99.0.3", "opcode": "06", "qpn": 32, "psn": lines[1]["roce"]["psn"].as_u64().expect("a PSN") - 1 });
    assert_eq!(lines[0]["roce"], first);
    let mut marked = 0;
    for (line, number) in lines.iter().zip(1..) {
        assert_eq!(line["packet"], number);
        let copies = line["egress"].as_array().expect("an array");
        assert_eq!(line["ingress"]["enqueued"].as_array().map(Vec::len), Some(copies.len()), "{line}");
        for pass in copies.iter().chain([&line["ingress"]]) {
            let mut names = registers(pass);
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{line}");
        }
        marked += copies.iter().filter(|copy| copy["marked"] == "symphony").count();
    }
    assert_eq!(report["marks"]["symphony"], marked);
    assert_eq!(
        registers(&lines[0]["ingress"]),
        ["activity", "psn", "newest", "count", "requests", "packets", "steps", "epoch", "minimum"]
    );
}

#[test]
fn a_capture_of_several_interfaces_comes_in_by_interface() {
    let dir = TempDir::new().expect("a directory");
    let (input, out) = (dir.path().join("in.pcapng"), dir.path().join("out.jsonl"));
    let mut writer =
        Writer::new(std::fs::File::create(&input).expect("a file"), ["a", "b", "c", "d", "e"]).expect("written");
    for (frame, number) in frames("ring4_v4_16k_bridge.pcap").iter().zip(0..10) {
        let len = frame.len() as u32;
        writer.packet(number, (number % 5) as u32, Direction::Inbound, len, frame, "").expect("written");
    }
    writer.finish().expect("written");
    let config = config("ring4_v4_slow.toml");
    report(&input, &[&config.each_ref().map(String::as_str)[..], &["--trace", out.to_str().expect("UTF-8")]].concat());
    let trace = std::fs::read_to_string(&out).expect("it was written");
    let ports: Vec<Value> =
        trace.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["port"].clone()).collect();
    assert_eq!(ports, [0, 1, 2, 3, 0, 0, 1, 2, 3, 0], "four ports, so the fifth interface is the first port again");
}

#[test]
fn people_get_a_table() {
    let output = replay(&data("loss_mid_receiver.pcap"), &[]);
    assert!(output.status.success() && output.stderr.is_empty());
    let out = String::from_utf8(output.stdout).expect("text");
    assert!(out.contains("RC RDMA WRITE Last with Immediate"), "{out}");
    assert!(
        out.lines().any(|line| line.split_whitespace().eq(["10.99.0.1", "10.99.0.2", "26", "105", "11", "6", "6"])),
        "{out}"
    );
}
