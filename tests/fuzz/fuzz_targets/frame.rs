//! Any bytes as a frame: the readers and the switch's parser neither panic nor disagree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symphony::dataplane::parse;
use symphony::wire::{bth, icrc, roce};

fuzz_target!(|frame: &[u8]| {
    let phv = parse(frame, 0, 0);
    if let Ok((packet, payload)) = roce::Repr::parse_frame(frame) {
        assert_eq!(packet.payload_len, payload.len());
        if let Some(roce) = phv.expect("it has an Ethernet header").roce {
            assert_eq!((roce.opcode, roce.dest_qpn, roce.psn), (packet.opcode, packet.dest_qpn, packet.psn));
        }
    }
    let _ = icrc::verify(frame);
    if let Ok(bth) = bth::Packet::new_checked(frame) {
        let _ =
            (bth.reth(), bth.immediate(), bth.aeth(), bth.atomic_eth(), bth.atomic_ack_eth(), bth.deth(), bth.ieth());
    }
});
