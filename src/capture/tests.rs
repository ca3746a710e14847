//! Files built by hand and files written by [`Writer`], read back; and files that are broken.

use proptest::prelude::*;

use super::{Direction, Error, Packet, Reader, Writer};

/// A pcap header: magic, version 2.4, time zone, accuracy, snap length, link type.
fn pcap(magic: u32, link_type: u32) -> Vec<u8> {
    let mut file = magic.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0]);
    for word in [0, 0, 64, link_type] {
        file.extend(u32::to_le_bytes(word));
    }
    file
}

fn pcap_packet(file: &mut Vec<u8>, seconds: u32, fraction: u32, original_len: u32, data: &[u8]) {
    for word in [seconds, fraction, data.len() as u32, original_len] {
        file.extend(word.to_le_bytes());
    }
    file.extend(data);
}

/// A pcapng block in little-endian.
fn block(file: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let padded = body.len().next_multiple_of(4);
    let len = (12 + padded) as u32;
    file.extend(kind.to_le_bytes());
    file.extend(len.to_le_bytes());
    file.extend(body);
    file.resize(file.len() + padded - body.len(), 0);
    file.extend(len.to_le_bytes());
}

const SECTION_HEADER: [u8; 16] = [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE: u32 = 3;
const ENHANCED: u32 = 6;

fn interface(link_type: u8, resolution: Option<u8>) -> Vec<u8> {
    let mut body = vec![link_type, 0, 0, 0, 0, 0, 0, 0];
    if let Some(resolution) = resolution {
        body.extend([9, 0, 1, 0, resolution, 0, 0, 0, 0, 0, 0, 0]);
    }
    body
}

fn enhanced(interface: u32, units: u64, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for word in [interface, (units >> 32) as u32, units as u32, data.len() as u32, data.len() as u32] {
        body.extend(word.to_le_bytes());
    }
    body.extend(data);
    body
}

fn read(file: &[u8]) -> Result<Vec<Packet>, Error> {
    Reader::new(file)?.collect()
}

fn times(file: &[u8]) -> Vec<u64> {
    read(file).expect("a sound file").iter().map(|packet| packet.timestamp_ns).collect()
}

#[test]
fn a_pcap_counts_micro_or_nanoseconds_by_its_magic() {
    for (magic, fraction_ns) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
        let mut file = pcap(magic, 1);
        pcap_packet(&mut file, 7, 5, 3, b"abc");
        pcap_packet(&mut file, 7, 999_999, 9, b"defg"); // cut by the capture
        let packets = read(&file).expect("a sound file");
        let expected = [(1, 5 * fraction_ns, 3, "abc"), (2, 999_999 * fraction_ns, 9, "defg")];
        assert_eq!(
            packets,
            expected.map(|(number, ns, original_len, data)| Packet {
                number,
                timestamp_ns: 7_000_000_000 + ns,
                interface: 0,
                original_len,
                data: data.into()
            })
        );
    }
}

#[test]
fn a_pcapng_counts_in_the_units_of_each_interface_and_section() {
    let mut file = Vec::new();
    block(&mut file, SECTION, &SECTION_HEADER);
    block(&mut file, INTERFACE, &interface(1, None));
    block(&mut file, INTERFACE, &interface(1, Some(9)));
    block(&mut file, INTERFACE, &interface(1, Some(0x80 | 10)));
    block(&mut file, ENHANCED, &enhanced(0, 5, b"a"));
    block(&mut file, ENHANCED, &enhanced(1, 1 << 33, b"b"));
    block(&mut file, ENHANCED, &enhanced(2, 512, b"c"));
    block(&mut file, SECTION, &SECTION_HEADER);
    block(&mut file, INTERFACE, &interface(1, Some(3)));
    block(&mut file, ENHANCED, &enhanced(0, 4, b"d"));
    assert_eq!(times(&file), [5_000, 1 << 33, 500_000_000, 4_000_000]);
}

#[test]
fn a_simple_packet_has_the_time_of_the_one_before_and_no_padding() {
    let mut file = Vec::new();
    block(&mut file, SECTION, &SECTION_HEADER);
    block(&mut file, INTERFACE, &interface(1, None));
    block(&mut file, ENHANCED, &enhanced(0, 5, b"a"));
    block(&mut file, SIMPLE, &[5, 0, 0, 0, b'h', b'e', b'l', b'l', b'o']);
    let packets = read(&file).expect("a sound file");
    assert_eq!((packets[1].timestamp_ns, &packets[1].data[..], packets[1].number), (5_000, &b"hello"[..], 2));
}

#[test]
fn a_simple_packet_that_the_capture_cut_ends_at_the_snap_length() {
    let mut interface = interface(1, None);
    interface[4] = 5; // its snap length
    let mut file = Vec::new();
    block(&mut file, SECTION, &SECTION_HEADER);
    block(&mut file, INTERFACE, &interface);
    block(&mut file, SIMPLE, &[6, 0, 0, 0, b'h', b'e', b'l', b'l', b'o']);
    let packets = read(&file).expect("a sound file");
    assert_eq!((packets[0].original_len, &packets[0].data[..]), (6, &b"hello"[..]));
}

#[test]
fn what_is_written_is_read_again() {
    let mut writer = Writer::new(Vec::new(), ["p1", "p2"]).expect("memory takes it");
    writer.packet(1_700_000_000_123_456_789, 1, Direction::Outbound, 3, b"abc", "mark symphony").expect("written");
    writer.packet(u64::MAX, 0, Direction::Inbound, 9000, b"defgh", "").expect("written");
    assert!(matches!(writer.packet(0, 2, Direction::Inbound, 1, b"x", ""), Err(Error::Write(_))));
    let file = writer.finish().expect("flushed");
    let packet = |number, timestamp_ns, interface, original_len, data: &str| Packet {
        number,
        timestamp_ns,
        interface,
        original_len,
        data: data.into(),
    };
    assert_eq!(
        read(&file).expect("a sound file"),
        [packet(1, 1_700_000_000_123_456_789, 1, 3, "abc"), packet(2, u64::MAX, 0, 9000, "defgh")]
    );
}

#[test]
fn a_file_that_breaks_off_keeps_what_was_read_and_names_the_packet() {
    let mut file = pcap(0xa1b2_c3d4, 1);
    pcap_packet(&mut file, 1, 0, 3, b"abc");
    pcap_packet(&mut file, 2, 0, 3, b"def");
    let mut reader = Reader::new(&file[..file.len() - 1]).expect("a sound head");
    assert!(matches!(reader.next(), Some(Ok(Packet { number: 1, .. }))));
    let error = reader.next().expect("something").expect_err("broken");
    assert!(matches!(error, Error::Broken { after: 1, .. }), "{error}");
    assert!(error.to_string().contains("after packet 1"), "{error}");
    assert!(reader.next().is_none(), "an error is the end");
}

#[test]
fn a_packet_of_an_interface_that_is_not_described_is_an_error() {
    let mut file = Vec::new();
    block(&mut file, SECTION, &SECTION_HEADER);
    block(&mut file, ENHANCED, &enhanced(3, 5, b"a"));
    assert!(matches!(read(&file), Err(Error::Broken { after: 0, .. })));
}

#[test]
fn other_link_types_are_refused_by_name() {
    let error = read(&pcap(0xa1b2_c3d4, 113)).expect_err("Linux cooked capture");
    assert!(matches!(&error, Error::LinkType(name) if name.contains("113")), "{error}");
    let mut file = Vec::new();
    block(&mut file, SECTION, &SECTION_HEADER);
    block(&mut file, INTERFACE, &interface(113, None));
    assert!(matches!(read(&file), Err(Error::LinkType(_))));
}

#[test]
fn what_is_no_capture_is_said_to_be_none() {
    for file in [&b""[..], b"PK", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", &SECTION.to_le_bytes()] {
        assert!(matches!(read(file), Err(Error::NotACapture(_))), "{file:?}");
    }
    let packed = read(b"\x1f\x8b\x08\0\0\0\0\0").expect_err("it must be unpacked first").to_string();
    assert_eq!(packed, "not a pcap or pcapng file: compressed with gzip; unpack it with gunzip first");
}

fn sound_files() -> impl Strategy<Value = Vec<u8>> {
    let mut old = pcap(0xa1b2_c3d4, 1);
    pcap_packet(&mut old, 1, 0, 3, b"abc");
    pcap_packet(&mut old, 2, 0, 5, b"defgh");
    let mut writer = Writer::new(Vec::new(), ["p1"]).expect("memory takes it");
    writer.packet(1, 0, Direction::Outbound, 3, b"abc", "a comment").expect("written");
    let mut new = writer.finish().expect("flushed");
    block(&mut new, SIMPLE, &[5, 0, 0, 0, b'h', b'e', b'l', b'l', b'o']);
    prop_oneof![Just(old), Just(new)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))] // each reader has 8 MB of buffer

    #[test]
    fn no_damaged_file_makes_the_reader_panic(
        mut file in sound_files(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<proptest::sample::Index>(),
    ) {
        for (at, value) in changes {
            *at.get_mut(&mut file) = value;
        }
        for file in [&file[..], &file[..cut.index(file.len())]] {
            if let Ok(reader) = Reader::new(file) {
                prop_assert!(reader.count() <= file.len());
            }
        }
    }
}
