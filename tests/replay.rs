//! `symphony replay` on captures of Linux soft-RoCE, held against tshark, and on frames that mean harm.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{captures, data, frames};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use symphony::capture::{Direction, Packet, Reader, Writer};
use symphony::wire::{Ecn, Opcode, bth, ethernet, icrc, ipv4, ipv6, roce, udp};
use tempfile::TempDir;

/// Runs `symphony replay`.
fn replay(input: &Path, options: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_symphony")).arg("replay").arg(input).args(options).output();
    output.expect("the command starts")
}

/// Runs `symphony replay --json`, which must succeed, and reads its one object.
#[track_caller]
fn report(input: &Path, options: &[&str]) -> Value {
    let output = replay(input, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
}

/// The `--config` options for a configuration in `tests/data`.
fn config(name: &str) -> [String; 2] {
    ["--config".into(), data(name).display().to_string()]
}

/// Flows by "source destination queue-pair".
fn flows(report: &Value) -> BTreeMap<String, &Value> {
    let flows = report["flows"].as_array().expect("an array").iter();
    flows.map(|flow| (format!("{} {} {}", text(&flow["src"]), text(&flow["dst"]), flow["qpn"]), flow)).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn read(path: &Path) -> Vec<Packet> {
    let file = std::fs::File::open(path).expect("it was written");
    Reader::new(file).expect("a capture").map(|packet| packet.expect("whole")).collect()
}

/// Runs tshark and splits its lines into fields; `None`, with a notice, where it is not installed.
fn tshark(capture: &Path, options: &[&str], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-T", "fields", "-E", "occurrence=f"]).args(options);
    fields.iter().for_each(|field| drop(command.args(["-e", field])));
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
    assert!(run(&off, &format!("{text}[symphony]\nenabled = false\n")) == without, "the function is off");
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

/// A frame of the ring, changed.
fn harm(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = frames("ring4_v4_16k_bridge.pcap").swap_remove(1); // WRITE Middle
    change(&mut frame);
    frame
}

/// Frames that mean harm: what they are, and whether each counts as malformed and as RoCEv2.
fn hostile() -> Vec<(&'static str, Vec<u8>, bool, bool)> {
    let mut list = vec![
        ("empty", vec![], true, false),
        ("runt", vec![0xff; 13], true, false),
        ("only an Ethernet header", harm(|f| f.truncate(14)), true, false),
        ("cut in IPv4", harm(|f| f.truncate(30)), true, false),
        ("cut in UDP", harm(|f| f.truncate(40)), true, false),
        ("cut in the payload", harm(|f| f.truncate(200)), true, false),
        ("IPv4 total length too long", harm(|f| f[16] = 0xff), true, false),
        ("IPv4 total length below the header", harm(|f| f[16..18].copy_from_slice(&[0, 19])), true, false),
        ("IPv4 header length below 20", harm(|f| f[14] = 0x41), true, false),
        (
            "IPv4 header longer than the packet",
            harm(|f| {
                f[14] = 0x4f;
                f[16..18].copy_from_slice(&[0, 40]);
            }),
            true,
            false,
        ),
        ("IP version 7", harm(|f| f[14] = 0x75), true, false),
        ("UDP length too long", harm(|f| f[38] = 0xff), true, false),
        ("UDP length below its header", harm(|f| f[38..40].copy_from_slice(&[0, 7])), true, false),
        ("no whole BTH", harm(|f| f[38..40].copy_from_slice(&[0, 19])), true, false),
        ("a BTH and no ICRC", harm(|f| f[38..40].copy_from_slice(&[0, 20])), false, true),
        (
            "a RETH that is not there",
            harm(|f| {
                f[38..40].copy_from_slice(&[0, 24]);
                f[42] = 0x06;
            }),
            false,
            true,
        ),
        ("unknown opcode", harm(|f| f[42] = 0xc7), false, true),
        ("wrong ICRC", harm(|f| *f.last_mut().expect("not empty") ^= 1), false, true),
        (
            "padding longer than the payload",
            harm(|f| {
                f[38..40].copy_from_slice(&[0, 24]);
                f[43] |= 0x30;
            }),
            false,
            true,
        ),
        ("garbage to 4791", harm(|f| f[42..].fill(0xa5)), false, true),
        ("first fragment", harm(|f| f[20] = 0x20), false, false),
        ("later fragment", harm(|f| f[21] = 0x10), false, false),
        (
            "IPv4 options",
            harm(|f| {
                f.splice(34..34, [1; 4]);
                f[14] = 0x46;
                let total_len = u16::from_be_bytes([f[16], f[17]]) + 4;
                f[16..18].copy_from_slice(&total_len.to_be_bytes());
            }),
            false,
            true,
        ),
        ("three VLAN tags", harm(|f| drop(f.splice(12..12, [0x81, 0, 0, 1].repeat(3)))), false, false),
        ("two VLAN tags", harm(|f| drop(f.splice(12..12, [0x81, 0, 0, 1].repeat(2)))), false, true),
        (
            "cut in the second VLAN tag",
            harm(|f| {
                f.splice(12..12, [0x81, 0, 0, 1].repeat(2));
                f.truncate(20);
            }),
            true,
            false,
        ),
        ("RoCEv1", harm(|f| f[12..14].copy_from_slice(&[0x89, 0x15])), false, false),
        ("ARP", harm(|f| f[12..14].copy_from_slice(&[0x08, 0x06])), false, false),
        ("TCP to 4791", harm(|f| f[23] = 6), false, false),
        ("UDP to another port", harm(|f| f[37] = 0), false, false),
        ("jumbo", harm(|f| f.resize(9014, 0)), false, true),
        ("from a group address", harm(|f| f[6] |= 1), false, true),
        ("to itself", harm(|f| f.copy_within(6..12, 0)), false, true),
        (
            "spanning tree",
            harm(|f| {
                f[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 0]);
                f[12..14].copy_from_slice(&[0, 38]);
            }),
            false,
            false,
        ),
        ("all ones", vec![0xff; 1500], false, false),
    ];
    let six = frames("ring4_v6_16k_bridge.pcap").swap_remove(1);
    let harm = |change: fn(&mut Vec<u8>)| {
        let mut frame = six.clone();
        change(&mut frame);
        frame
    };
    list.extend([
        ("IPv6 payload too long", harm(|f| f[18] = 0xff), true, false),
        ("IPv6 fragment", harm(|f| f[20] = 44), false, false),
        ("IPv6 hop-by-hop", harm(|f| f[20] = 0), false, false),
        ("IPv6 cut", harm(|f| f.truncate(50)), true, false),
    ]);
    list
}

#[test]
fn hostile_frames_are_counted_for_what_they_are_and_confuse_nothing() {
    let dir = TempDir::new().expect("a directory");
    let (input, out) = (dir.path().join("in.pcapng"), dir.path().join("out.pcapng"));
    for (what, frame, malformed, rocev2) in hostile() {
        write_frames(&input, [&frame].into_iter());
        let report = report(&input, &[]);
        let counts = (report["malformed"].as_u64(), report["rocev2"].as_u64());
        assert_eq!(counts, (Some(malformed.into()), Some(rocev2.into())), "{what}");
    }
    // All of them, amid a ring that is tracked all the same.
    let ring = frames("ring4_v4_16k_bridge.pcap");
    let hostile: Vec<Vec<u8>> = hostile().into_iter().map(|(_, frame, ..)| frame).collect();
    // But for those that the pipeline takes for data of the ring, with a PSN of their own.
    let harmless = |frame: &&Vec<u8>| {
        let phv = symphony::dataplane::parse(frame, 0, 0);
        !phv.is_ok_and(|phv| phv.roce.is_some_and(|roce| roce.opcode.is_request_data()))
    };
    let bad = hostile.iter().filter(harmless).cycle();
    let mixed: Vec<&Vec<u8>> = ring.iter().zip(bad).flat_map(|(good, bad)| [good, bad]).collect();
    write_frames(&input, mixed.iter().copied());
    let config = config("ring4_v4_slow.toml");
    let options = [&config.each_ref().map(String::as_str)[..], &["--write", out.to_str().expect("UTF-8")]].concat();
    let report = report(&input, &options);
    assert_eq!(report["packets"], mixed.len());
    assert_eq!(report["jobs"], json!([{ "job": 1, "min_step": 6, "max_step": 6 }]));
    let drops = report["drops"].as_object().expect("an object");
    assert!(
        ["runt", "bad_source_mac", "same_port", "link_local"].iter().all(|reason| drops.contains_key(*reason)),
        "{drops:?}"
    );
    let forwarded = read(&out).len();
    assert!(forwarded >= mixed.len(), "every frame is there, as it left or as it came");
}

fn write_frames<'a>(path: &Path, frames: impl Iterator<Item = &'a Vec<u8>>) {
    let mut writer = Writer::new(std::fs::File::create(path).expect("a file"), ["wire"]).expect("written");
    for (frame, number) in frames.zip(0..) {
        let len = frame.len() as u32;
        writer.packet(number * 100_000, 0, Direction::Inbound, len, frame, "").expect("written");
    }
    writer.finish().expect("written");
}

#[test]
fn a_capture_that_breaks_off_is_reported_as_far_as_it_goes() {
    let dir = TempDir::new().expect("a directory");
    let input = dir.path().join("broken.pcap");
    let whole = std::fs::read(data("ring4_v4_16k_bridge.pcap")).expect("readable");
    std::fs::write(&input, &whole[..100_000]).expect("written");
    let output = replay(&input, &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let (packets, stderr) = (&report["packets"], String::from_utf8_lossy(&output.stderr));
    assert!(packets.as_u64() > Some(90), "{packets}");
    assert!(stderr.contains(&format!("after packet {packets}")), "{stderr}");
}

#[test]
fn frames_that_the_capture_cut_are_no_errors() {
    let dir = TempDir::new().expect("a directory");
    let (input, out) = (dir.path().join("cut.pcapng"), dir.path().join("out.pcapng"));
    let mut writer = Writer::new(std::fs::File::create(&input).expect("a file"), ["wire"]).expect("written");
    let packets = read(&data("ring4_v4_16k_bridge.pcap"));
    for packet in &packets {
        let kept = &packet.data[..packet.data.len().min(96)];
        let len = packet.data.len() as u32;
        writer.packet(packet.timestamp_ns, 0, Direction::Inbound, len, kept, "").expect("written");
    }
    writer.finish().expect("written");
    let config = config("ring4_v4.toml");
    let options = [&config.each_ref().map(String::as_str)[..], &["--write", out.to_str().expect("UTF-8")]].concat();
    let report = report(&input, &options);
    assert_eq!(report["rocev2"], 408);
    assert_eq!(report["icrc"], json!({ "ok": 24, "bad": 0 }), "only the acknowledgements are whole");
    assert_eq!(report["jobs"], json!([{ "job": 1, "min_step": 6, "max_step": 6 }]));
    assert!(
        read(&out).iter().zip(&packets).all(|(out, packet)| out.original_len as usize == packet.data.len()
            && out.data.len() == packet.data.len().min(96))
    );
}

#[test]
fn what_cannot_be_replayed_is_said_and_the_status_is_2() {
    let dir = TempDir::new().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("text"), "hello, this is no capture").expect("written");
    let mut cooked = std::fs::read(data("rc_read_v4.pcap")).expect("readable");
    cooked[20] = 113;
    std::fs::write(path("cooked.pcap"), cooked).expect("written");
    let ring = data("ring4_v4_16k_bridge.pcap");
    for (input, options, says) in [
        (path("missing.pcap"), vec![], "cannot open"),
        (path("text"), vec![], "not a pcap or pcapng file"),
        (path("cooked.pcap"), vec![], "link type"),
        (ring.clone(), vec!["--config", "/nonexistent.toml"], "nonexistent.toml"),
        (ring.clone(), vec!["--write", "/nonexistent/out.pcapng"], "cannot write /nonexistent/out.pcapng"),
        (ring.clone(), vec!["--trace", "/nonexistent/out.jsonl"], "cannot write /nonexistent/out.jsonl"),
        (ring.clone(), vec!["--write", ring.to_str().expect("UTF-8")], "is the capture that is replayed"),
    ] {
        let output = replay(&input, &[&options[..], &["--json"]].concat());
        assert_eq!(output.status.code(), Some(2), "{says}");
        let error: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert!(text(&error["error"]).contains(says), "{error} lacks {says:?}");
    }
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

/// A replay without a process: any frames at any times, on ports that are too slow.
fn replay_in_memory(packets: &[(u64, Vec<u8>)]) -> symphony::backend::replay::Outcome {
    use symphony::backend::replay::{Outputs, Spec, replay};
    use symphony::control::config::{Config, Purpose};

    let mut writer = Writer::new(Vec::new(), ["wire"]).expect("memory takes it");
    for (at, frame) in packets {
        writer.packet(*at, 0, Direction::Inbound, frame.len() as u32, frame, "").expect("written");
    }
    let file = writer.finish().expect("flushed");
    let text = std::fs::read_to_string(data("ring4_v4_slow.toml")).expect("readable");
    let config = Config::parse(&text, "ring4_v4_slow.toml", Purpose::Replay).expect("sound");
    let spec =
        Spec { switch: config.switch, forward: config.forward, parameters: config.parameters, jobs: config.jobs };
    let outputs = Outputs { capture: Some(Box::new(std::io::sink())), trace: Some(Box::new(std::io::sink())) };
    replay(Reader::new(&file[..]).expect("a capture"), &spec, outputs).expect("it replays")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))] // each builds a switch

    #[test]
    fn any_frames_at_any_times_are_all_accounted_for(
        picks in proptest::collection::vec(
            (any::<u64>(), any::<Index>(), proptest::collection::vec((any::<Index>(), any::<u8>()), 0..4), any::<Index>()),
            1..40,
        ),
    ) {
        let ring = frames("ring4_v4_16k_bridge.pcap");
        let packets: Vec<(u64, Vec<u8>)> = picks
            .into_iter()
            .map(|(at, pick, changes, cut)| {
                let mut frame = pick.get(&ring).clone();
                changes.into_iter().for_each(|(place, value)| *place.get_mut(&mut frame) = value);
                // One in eight is cut.
                let len = cut.index(frame.len() * 8);
                frame.truncate(len);
                (at, frame)
            })
            .collect();
        let outcome = replay_in_memory(&packets);
        prop_assert!(outcome.broken.is_none());
        prop_assert!(outcome.conservation.holds() && outcome.conservation.queued == 0);
        prop_assert_eq!(outcome.report.packets, packets.len() as u64);
        prop_assert_eq!(outcome.conservation.rx, packets.len() as u64);
    }
}
