//! Any train of aggregation packets, swaps and pauses at a switch with a job and its controller: nothing panics, every packet
//! is accounted for, and as many answers as there may be.
//!
//! A step is 16 bytes: what it is, the port, time, the fields of a header, and damage to one byte of the frame.
#![no_main]

use std::net::{Ipv4Addr, SocketAddrV4};

use libfuzzer_sys::fuzz_target;
use symphony::backend::Controllers;
use symphony::dataplane::{HeapFrames, NoTrace, PortConfig, Switch, SwitchConfig};
use symphony::functions::forward::{Forward, ForwardConfig};
use symphony::functions::serene::{Job, Late, Quorum, Serene, SereneConfig, Strategy};
use symphony::wire::aggregation::{Align, Code, Control, Flags, HEADER_LEN, LANE_GROUP, Packet, Repr, Type};
use symphony::wire::{AGGREGATION_PORT, ethernet, ipv4, udp};

const WORKERS: u8 = 3;
const SEGMENTS: u32 = 2;
const LANES: u16 = LANE_GROUP as u16;
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 254];
/// The last port: only there control packets are heard.
const CPU_PORT: u16 = WORKERS as u16;
const PAYLOAD_AT: usize = 42;
const STEP: usize = 16;

const STRATEGIES: [Strategy; 6] = [
    Strategy::Bsp,
    Strategy::Partial { k: Quorum::Less(1), late: Late::Return },
    Strategy::Partial { k: Quorum::Count(1), late: Late::Drop },
    Strategy::Ssp { slack: 2 },
    Strategy::Asp,
    Strategy::Timed { deadline_ns: 30_000_000, k_min: Quorum::Less(1), late: Late::Drop },
];
