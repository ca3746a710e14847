use proptest::prelude::*;

use super::*;

/// PUSH of 8 lanes (0, 1, -1, 2 .. ) to segment 0x0a0b of job 1 by worker 2, a retransmission.
#[rustfmt::skip]
const PUSH: [u8; 64] = [
    0x10, 0x01, 0x01, 0x02,  0x00, 0x00, 0x00, 0x2a,  0x00, 0x00, 0x0a, 0x0b,  0x01, 0x04, 0x00, 0x07,
    0x00, 0x00, 0x00, 0x29,  0xde, 0xad, 0xbe, 0xef,  0x00, 0x00, 0x00, 0x00,  0x01, 0x02, 0x03, 0x04,
    0x00, 0x00, 0x00, 0x00,  0x00, 0x00, 0x00, 0x01,  0xff, 0xff, 0xff, 0xff,  0x00, 0x00, 0x00, 0x02,
    0x7f, 0xff, 0xff, 0xff,  0x80, 0x00, 0x00, 0x00,  0x00, 0x00, 0x01, 0x00,  0xff, 0xff, 0xff, 0x00,
];

/// ARM_RSP: swap 12 to rule version 7 from round 300 on is refused, as somebody has pushed for round 301.
#[rustfmt::skip]
const NAK: [u8; 48] = [
    0x19, 0x00, 0x01, 0x00,  0x00, 0x00, 0x01, 0x2d,  0x00, 0x00, 0x00, 0x00,  0x00, 0x00, 0x00, 0x06,
    0x00, 0x00, 0x00, 0x00,  0x00, 0x00, 0x00, 0x00,  0x00, 0x00, 0x00, 0x00,  0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x0c,  0x00, 0x00, 0x01, 0x2c,  0x00, 0x06, 0x00, 0x07,  0x01, 0x01, 0x00, 0x00,
];

#[test]
fn every_field_of_a_push_is_where_the_format_says() {
    let packet = Packet::new_checked(&PUSH[..]).expect("whole");
    let expected = Repr {
        flags: Flags::RETX,
        worker: 2,
        round: 42,
        segment: 0x0a0b,
        lane_count: 8,
        norm: 4,
        rule_version: 7,
        frontier: 41,
        incarnation_or_included: 0xdead_beef,
        ts_us: 0x0102_0304,
        ..Repr::new(Type::Push, 1)
    };
    assert_eq!(Repr::parse(&packet), expected);
    assert_eq!((packet.incarnation(), packet.control()), (0xdead_beef, None));
    let lanes: Vec<i32> = packet.lanes().collect();
    assert_eq!(lanes, [0, 1, -1, 2, i32::MAX, i32::MIN, 256, -256]);
    let mut again = PUSH;
    again[..32].fill(0xaa);
    assert_eq!(expected.emit(&mut again), Ok(32));
    assert_eq!((again, expected.payload_len()), (PUSH, 64));
}

#[test]
fn a_control_body_follows_the_header() {
    let packet = Packet::new_checked(&NAK[..]).expect("whole");
    let body =
        Control { swap_id: 12, boundary: 300, from_version: 6, to_version: 7, align: Align::Drain, code: Code::Nak };
    assert_eq!((packet.kind(), packet.round(), packet.rule_version()), (Type::ArmResponse, 301, 6));
    assert_eq!((packet.control(), packet.lanes().len()), (Some(body), 0));
    let mut again = [0xaa; 48];
    assert_eq!(Repr::parse(&packet).emit(&mut again), Ok(32));
    assert_eq!(body.emit(&mut again[32..]), Ok(16));
    assert_eq!(again, NAK);
    for (at, number) in [(44, 2), (45, 5)] {
        let mut bytes = NAK;
        bytes[at] = number;
        assert_eq!(Packet::new_checked(&bytes[..]).expect("whole").control(), None, "an unknown number");
    }
}

#[test]
fn a_header_that_lies_is_refused() {
    let with = |at: usize, byte: u8| {
        let mut bytes = PUSH;
        bytes[at] = byte;
        Packet::new_checked(bytes).err()
    };
    assert_eq!(with(0, 0x20), Some(Error::WrongProtocol("aggregation")), "version 2");
    assert_eq!(with(0, 0x1c), Some(Error::WrongProtocol("aggregation")), "no type 12");
    assert_eq!(with(0, 0x1f), Some(Error::WrongProtocol("aggregation")), "no type 15");
    assert_eq!(with(12, 0), Some(Error::BadLength("aggregation")), "more lanes than it says");
    assert_eq!(with(12, 2), Some(Error::BadLength("aggregation")), "fewer lanes than it says");
    assert_eq!(with(0, 0x18), Some(Error::BadLength("aggregation")), "lanes where a control body should be");
    assert_eq!(Packet::new_checked(&PUSH[..31]).err(), Some(Error::Truncated("aggregation")));
    assert_eq!(Packet::new_checked(&NAK[..47]).err(), Some(Error::BadLength("aggregation")));
    let mut long = PUSH[..32].to_vec();
    long[12] = 45;
    long.resize(32 + 45 * 32, 0);
    assert_eq!(Packet::new_checked(&long[..]).err(), Some(Error::BadLength("aggregation")), "more than 352 lanes");
    long[12] = 44;
    long.truncate(32 + 352 * 4);
    assert_eq!(Packet::new_checked(&long[..]).map(|p| p.lane_count()), Ok(352));
}

#[test]
fn an_answer_is_readdressed_and_its_lanes_written_in_place() {
    let mut bytes = PUSH;
    let mut packet = Packet::new_checked(&mut bytes[..]).expect("whole");
    packet.set_worker(31);
    packet.lane_bytes_mut()[7] = 5i32.to_be_bytes();
    assert_eq!((packet.worker(), packet.lanes().last()), (31, Some(5)));
    assert_eq!((bytes[3], bytes[63]), (31, 5));
}

#[test]
fn a_header_of_too_many_lanes_or_for_too_short_a_buffer_is_refused() {
    let repr = Repr { lane_count: 360, ..Repr::new(Type::Push, 0) };
    assert_eq!(repr.emit(&mut [0; 32]), Err(Error::TooLong));
    assert_eq!(Repr::new(Type::Push, 0).emit(&mut [0; 31]), Err(Error::TooLong));
}

fn repr() -> impl Strategy<Value = Repr> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    let bytes = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u16>(), 0..=44u16);
    (0..Type::ALL.len(), numbers, bytes).prop_map(|(kind, numbers, bytes)| {
        let kind = Type::ALL[kind];
        Repr {
            kind,
            flags: Flags(bytes.0),
            job: bytes.1,
            worker: bytes.2,
            norm: bytes.3,
            rule_version: bytes.4,
            lane_count: if kind.has_control_body() { 0 } else { 8 * bytes.5 },
            round: numbers.0,
            segment: numbers.1,
            frontier: numbers.2,
            incarnation_or_included: numbers.3,
            next_round: numbers.4,
            ts_us: numbers.5,
        }
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(repr in repr()) {
        let mut bytes = vec![0; repr.payload_len()];
        prop_assert_eq!(repr.emit(&mut bytes), Ok(HEADER_LEN));
        let packet = Packet::new_checked(&bytes[..]).expect("what it wrote");
        prop_assert_eq!(Repr::parse(&packet), repr);
        prop_assert_eq!(packet.lanes().len(), usize::from(repr.lane_count));
    }

    #[test]
    fn no_bytes_make_an_accessor_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..1500),
        first in 0x10..0x20u8,
        lanes in 0..=46u8,
        fit in any::<bool>(),
    ) {
        if fit && bytes.len() >= HEADER_LEN {
            (bytes[0], bytes[12]) = (first, lanes);
            let control = Type::from_number(first & 15).is_some_and(Type::has_control_body);
            bytes.resize(HEADER_LEN + if control { CONTROL_LEN } else { 32 * usize::from(lanes) }, 0);
            bytes[12] = if control { 0 } else { lanes };
        }
        if let Ok(mut packet) = Packet::new_checked(&mut bytes[..]) {
            let repr = Repr::parse(&packet);
            let _ = (packet.control(), packet.lanes().count(), packet.lane_bytes_mut().len());
            packet.set_worker(3);
            prop_assert_eq!(repr.payload_len(), bytes.len());
        }
    }
}
