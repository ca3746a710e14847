//! The packet header vector: what the parser found in a packet, and what the stages hand on.

use super::Nanos;
use crate::wire::{Ecn, Opcode};

/// A port of the switch, counted from 0 in the order of the configuration.
pub type PortId = u16;

/// A set of ports; the switch has at most 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSet(pub u64);

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// An IPv6 address, or an IPv4 one mapped into it (`::ffff:a.b.c.d`, RFC 4291 2.5.5.2), in network order.
pub type IpAddress = [u8; 16];

/// Up to two 802.1Q/802.1ad tags, outermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlanTags {
    /// How many of `tci` are set: 0, 1 or 2.
    pub count: u8,
    /// PCP, DEI and VID of each.
    pub tci: [u16; 2],
}

/// The network layer as far as the parser understands it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum L3 {
    /// Not IP, or an IP header that is malformed, has options (IHL > 5) or lies about its length. Forwarded by L2 only.
    #[default]
    Other,
    /// A sound 20-byte IPv4 header.
    Ipv4,
    /// A sound 40-byte IPv6 header.
    Ipv6,
}

/// A RoCEv2 packet: unfragmented UDP to port 4791 with a whole BTH, and the extension headers that its opcode asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roce {
    /// BTH opcode.
    pub opcode: Opcode,
    /// Destination queue pair, 24 bits.
    pub dest_qpn: u32,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// RETH DMALen: bytes of the whole message. 0 where the opcode has no RETH.
    pub dma_len: u32,
    /// Immediate data as read big-endian. 0 where the opcode has none.
    pub immediate: u32,
}

/// Which queue of a port a packet belongs in, besides the strict-priority one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// What the switch forwards: the data queue, with its RED.
    #[default]
    Transit,
    /// Answers of in-network aggregation: a queue of their own, so that their bursts are not taken for congestion of the
    /// data queue.
    Aggregation,
}

/// The queue of a port that a packet waits in. Acknowledgements, CNPs and aggregation are never paused and not accounted
/// for by [`super::Pfc`]: whoever sends them sends again what is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// What the switch forwards. The only one with RED, a depth that stages see, and flow control.
    Data,
    /// [`Service::Aggregation`]. Gets as many bytes sent as data does while both wait.
    Aggregation,
    /// RoCEv2 acknowledgements (NAKs included) and CNPs: before all others.
    Priority,
}

/// What tracking found out about one packet of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// The packet does not belong to a tracked flow, or does not take part (ACK, CNP, READ, clear-to-send ..).
    #[default]
    None,
    /// The packet is data of a tracked flow and its lead is valid.
    Data,
}

/// Metadata that crosses the traffic manager with the packet: a bridged header on a Tofino, 32 bytes of XDP metadata
/// (`struct packet_metadata` in `ebpf/abi.h`) between kernel and userspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bridged {
    /// Set once tracking has run, so that no packet is tracked twice.
    pub tracked: bool,
    /// Whether the rest is valid.
    pub step: Step,
    /// Whether the job may be marked: enabled, and seen idle since the (re)start.
    pub armed: bool,
    /// Which queue it belongs in.
    pub service: Service,
    /// Which copy of a multicast group this is ([`super::Replica`]); 0 elsewhere.
    pub rid: u8,
    /// Slot of the job.
    pub job: u16,
    /// Slot of the flow.
    pub flow: u32,
    /// Steps that the flow has completed before this packet.
    pub steps_done: u32,
    /// Progress before this packet in 1/256 steps, modulo 2^32.
    pub progress: u32,
    /// Progress less the job's minimum, in 1/256 steps.
    pub lead: i32,
    /// The flow leaves the job's minimum with this packet: its last of a collective, or it proved not to be ring traffic.
    pub leaves: bool,
}

/// The packet header vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phv {
    /// Port that the packet came in on.
    pub ingress_port: PortId,
    /// When it came in.
    pub received_at: Nanos,
    /// Length of the frame without FCS.
    pub frame_bytes: u32,
    /// Destination MAC.
    pub eth_dst: MacAddress,
    /// Source MAC.
    pub eth_src: MacAddress,
    /// VLAN tags before `ethertype`.
    pub vlan: VlanTags,
    /// EtherType behind the tags.
    pub ethertype: u16,
    /// Network layer.
    pub l3: L3,
    /// Offset of the network layer in the frame. Valid with `l3 != Other`.
    pub l3_offset: u8,
    /// IP source.
    pub src: IpAddress,
    /// IP destination.
    pub dst: IpAddress,
    /// DSCP, 6 bits.
    pub dscp: u8,
    /// ECN field.
    pub ecn: Ecn,
    /// TTL or hop limit.
    pub ttl: u8,
    /// IP protocol; for IPv6 the first next header.
    pub protocol: u8,
    /// Whether the packet is an IPv4 fragment (the first included) or carries an IPv6 fragment header.
    pub fragment: bool,
    /// UDP or TCP source port; 0 elsewhere and in fragments.
    pub sport: u16,
    /// UDP or TCP destination port; 0 elsewhere and in fragments.
    pub dport: u16,
    /// The RoCEv2 part.
    pub roce: Option<Roce>,
    /// Crosses the traffic manager.
    pub bridged: Bridged,
    /// A function wants CE on this packet (an extra mark). Set in egress.
    pub extra_mark: bool,
    /// The packet is routed: its MACs are new and its TTL is one less, in the PHV, and the deparser writes them.
    pub routed: bool,
}

/// It is copied on its way in and out of the queues, and two cache lines are copied in a few instructions.
const _: () = assert!(size_of::<Phv>() <= 128);

impl PortSet {
    /// The set of one port. Ports from 64 on are in no set.
    pub fn single(port: PortId) -> Self {
        PortSet(1u64.checked_shl(port.into()).unwrap_or(0))
    }

    /// Whether the port is in it.
    pub fn contains(self, port: PortId) -> bool {
        self.0 & Self::single(port).0 != 0
    }

    /// The set without one port.
    pub fn without(self, port: PortId) -> Self {
        PortSet(self.0 & !Self::single(port).0)
    }

    /// The set with one more port.
    pub fn with(self, port: PortId) -> Self {
        PortSet(self.0 | Self::single(port).0)
    }

    /// The ports from 0 to `count` - 1; at most 64.
    pub fn first(count: usize) -> Self {
        PortSet(if count >= 64 { u64::MAX } else { (1 << count) - 1 })
    }

    /// Whether no port is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The ports in ascending order.
    pub fn iter(self) -> impl Iterator<Item = PortId> {
        std::iter::successors(Some(self.0), |rest| Some(rest & rest.wrapping_sub(1)))
            .take_while(|rest| *rest != 0)
            .map(|rest| rest.trailing_zeros() as PortId)
    }
}

impl Phv {
    /// The queue that the packet goes into.
    #[inline]
    pub fn class(&self) -> Class {
        if self.is_priority() {
            Class::Priority
        } else if self.bridged.service == Service::Aggregation {
            Class::Aggregation
        } else {
            Class::Data
        }
    }

    /// Whether the packet goes into the strict-priority queue: RoCEv2 acknowledgements (NAKs included) and CNPs.
    pub fn is_priority(&self) -> bool {
        self.roce.is_some_and(|r| r.opcode.is_acknowledge() || r.opcode.is_cnp())
    }
}
