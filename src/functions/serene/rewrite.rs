//! Stage `rewrite` (egress): readdresses each copy of a multicast answer to the worker that it is for.

use super::config::SereneConfig;
use super::member::Members;
use super::request::{Receiver, address, payload_at};
use crate::dataplane::{Cx, DropReason, Phv, Tracer};
use crate::wire::aggregation::{Flags, Packet, Repr};

/// The job of an answer, if it goes to more than its asker.
pub(super) fn multicast_job<T: Tracer>(cx: &Cx<'_, T>, phv: &Phv) -> Option<u8> {
    let packet = Packet::new_checked(cx.frame.bytes().get(payload_at(phv.l3_offset.into())..)?).ok()?;
    packet.flags().contains(Flags::MCAST).then(|| packet.job())
}

/// Writes the worker's addresses and number. LATE stays for those whose contribution is not in the round.
pub(super) fn rewrite<T: Tracer>(
    cx: &mut Cx<'_, T>,
    phv: &Phv,
    config: &SereneConfig,
    members: &Members,
) -> Option<DropReason> {
    cx.stage("egress", "rewrite");
    let worker = phv.bridged.rid;
    let receiver = members.of(worker).and_then(|member| {
        let link = member.link?;
        Some(Receiver { mac: link.mac, address: member.address })
    });
    cx.table("member", receiver.is_some());
    let Some(receiver) = receiver else { return Some(DropReason::NotMember) };
    let l3_offset = usize::from(phv.l3_offset);
    let bytes = cx.frame.bytes_mut();
    let payload = bytes.get_mut(payload_at(l3_offset)..).unwrap_or_default();
    let Ok(header) = Packet::new_checked(&*payload).map(|packet| Repr::parse(&packet)) else {
        return Some(DropReason::AggregationMalformed);
    };
    let left_out = header.incarnation_or_included >> (worker & 31) & 1 == 0;
    let flags = if left_out { header.flags } else { header.flags.without(Flags::LATE) };
    let written = Repr { worker, flags, ..header }.emit(payload).ok();
    let addressed = written.and_then(|_| address(bytes, l3_offset, config, &receiver));
    addressed.is_none().then_some(DropReason::TooLong)
}
