//! `symphony replay` on frames that mean harm, and on captures that are cut, broken or none.

mod common;

use std::path::Path;

use common::{config, data, frames, read, replay, report, text};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use symphony::capture::{Direction, Reader, Writer};
use tempfile::TempDir;

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
fn frames_cut_within_their_bth_are_neither_counted_as_rocev2_nor_tracked() {
    let dir = TempDir::new().expect("a directory");
    let config = config("ring4_v4.toml");
    let options = config.each_ref().map(String::as_str);
    let packets = read(&data("ring4_v4_16k_bridge.pcap"));
    for (snap_bytes, rocev2, steps) in [(30, 0, 0), (40, 0, 0), (42, 0, 0), (50, 0, 0), (53, 0, 0), (54, 408, 6)] {
        let input = dir.path().join(format!("snap{snap_bytes}.pcapng"));
        let mut writer = Writer::new(std::fs::File::create(&input).expect("a file"), ["wire"]).expect("written");
        for packet in &packets {
            let (len, kept) = (packet.data.len() as u32, &packet.data[..packet.data.len().min(snap_bytes)]);
            writer.packet(packet.timestamp_ns, 0, Direction::Inbound, len, kept, "").expect("written");
        }
        writer.finish().expect("written");
        let report = report(&input, &options);
        assert_eq!(report["packets"], packets.len(), "{snap_bytes}");
        assert_eq!((&report["rocev2"], &report["malformed"]), (&json!(rocev2), &json!(0)), "{snap_bytes}");
        assert_eq!(report["jobs"], json!([{ "job": 1, "min_step": steps, "max_step": steps }]), "{snap_bytes}");
        let flows = report["flows"].as_array().expect("a list");
        assert_eq!(flows.is_empty(), rocev2 == 0, "{snap_bytes}");
        assert!(flows.iter().all(|flow| flow["retransmitted"] == 0), "{snap_bytes}: {flows:?}");
    }
}

#[test]
fn what_cannot_be_replayed_is_said_and_the_status_is_2() {
    let dir = TempDir::new().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("text"), "hello, this is no capture").expect("written");
    let mut cooked = std::fs::read(data("rc_read_v4.pcap")).expect("readable");
    cooked[20] = 113;
    std::fs::write(path("cooked.pcap"), cooked).expect("written");
    // The same in a pcapng, which tells its link type behind the head.
    write_frames(&path("cooked.pcapng"), [].into_iter());
    let mut cooked = std::fs::read(path("cooked.pcapng")).expect("readable");
    let section_bytes = u32::from_be_bytes(cooked[4..8].try_into().expect("four bytes")) as usize;
    cooked[section_bytes + 9] = 113;
    std::fs::write(path("cooked.pcapng"), cooked).expect("written");
    let mut noise = std::fs::read(data("rc_read_v4.pcap")).expect("readable");
    noise[24..].fill(0xff);
    std::fs::write(path("noise.pcap"), noise).expect("written");
    let ring = data("ring4_v4_16k_bridge.pcap");
    let (copy, link) = (path("copy.pcap"), path("link.pcap"));
    std::fs::copy(&ring, &copy).expect("copied");
    std::fs::hard_link(&copy, &link).expect("linked");
    let (link, out) = (link.to_str().expect("UTF-8"), path("out"));
    let out = out.to_str().expect("UTF-8");
    for (input, options, says) in [
        (path("missing.pcap"), vec![], "cannot open"),
        (path("text"), vec![], "not a pcap or pcapng file"),
        (path("cooked.pcap"), vec![], "link type"),
        (path("cooked.pcapng"), vec![], "link type"),
        (path("noise.pcap"), vec![], "after packet 0"),
        (ring.clone(), vec!["--config", "/nonexistent.toml"], "nonexistent.toml"),
        (ring.clone(), vec!["--write", "/nonexistent/out.pcapng"], "cannot write /nonexistent/out.pcapng"),
        (ring.clone(), vec!["--trace", "/nonexistent/out.jsonl"], "cannot write /nonexistent/out.jsonl"),
        (ring.clone(), vec!["--write", ring.to_str().expect("UTF-8")], "is read or written by this replay already"),
        (copy.clone(), vec!["--write", link], "is read or written by this replay already"),
        (ring.clone(), vec!["--write", out, "--trace", out], "is read or written by this replay already"),
        (ring.clone(), vec!["--write", "/dev/full"], "could not write the capture: No space left"),
        (ring.clone(), vec!["--trace", "/dev/full"], "could not write the trace: No space left"),
    ] {
        let output = replay(&input, &[&options[..], &["--json"]].concat());
        assert_eq!(output.status.code(), Some(2), "{says}");
        let error: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert!(text(&error["error"]).contains(says), "{error} lacks {says:?}");
    }
}

#[test]
fn flows_count_packets_that_the_switch_does_not_read() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("options.pcapng");
    let plain = read(&data("ring4_v4_16k_bridge.pcap")).swap_remove(0).data;
    let with_options = {
        let mut frame = plain.clone();
        frame[14] = 0x46;
        frame.splice(34..34, [1; 4]);
        let length = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame
    };
    write_frames(&path, [&plain, &with_options].into_iter());
    let [name, value] = config("ring4_v4.toml");
    let report = report(&path, &[&name, &value]);
    assert_eq!(report["flows"][0]["packets"], 2, "{report}");
    assert_eq!(report["flows"][0]["retransmitted"], 1, "{report}");
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
