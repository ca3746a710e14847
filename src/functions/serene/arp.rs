//! Answers ARP requests for the service's address, so that a worker needs nothing but a socket.

use super::config::SereneConfig;
use crate::dataplane::{Cx, Phv, Tracer, Verdict};
use crate::wire::arp::{Operation, Repr};

/// Turns a request for the service's address into its answer; leaves all else to others.
pub(super) fn answer<T: Tracer>(cx: &mut Cx<'_, T>, phv: &mut Phv, config: &SereneConfig) -> Verdict {
    let Some(packet) = cx.frame.bytes().get(usize::from(phv.l3_offset)..) else { return Verdict::Continue };
    let Ok(request) = Repr::parse(packet) else { return Verdict::Continue };
    if request.operation != Operation::Request || request.target != config.address {
        return Verdict::Continue;
    }
    cx.stage("ingress", "arp");
    let reply = Repr {
        operation: Operation::Reply,
        sender_mac: config.mac,
        sender: config.address,
        target_mac: request.sender_mac,
        target: request.sender,
    };
    let bytes = cx.frame.bytes_mut();
    if let Some(macs) = bytes.first_chunk_mut::<12>() {
        macs[..6].copy_from_slice(&request.sender_mac);
        macs[6..].copy_from_slice(&config.mac);
    }
    // As long as the request that was there.
    let written = bytes.get_mut(usize::from(phv.l3_offset)..).is_some_and(|packet| reply.emit(packet).is_ok());
    if written { Verdict::Forward(phv.ingress_port) } else { Verdict::Continue }
}
