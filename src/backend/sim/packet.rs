//! Packets between hosts and switches: as parsed headers, or, to prove that this makes no difference, as bytes.

use crate::dataplane::{Frames, Function, HeapFrames, L3, Nanos, NoTrace, Phv, PortId, Roce, Switch};
use crate::functions::symphony::mapped;
use crate::wire::roce::Repr;
use crate::wire::{Ecn, PROTOCOL_UDP, ROCE_PORT, ethernet};

/// How packets travel.
pub(super) trait Transport: Frames {
    /// A packet comes into a switch.
    fn enter<F: Function>(
        &mut self,
        switch: &mut Switch<F, Self::Handle>,
        port: PortId,
        now: Nanos,
        phv: &Phv,
        frame: Self::Handle,
    );
}

/// How RoCEv2 packets travel.
pub(super) trait RoceTransport: Transport {
    /// A packet leaves a host.
    fn send(&mut self, repr: &Repr) -> (Phv, Self::Handle);

    /// It comes to a host. Says what it is and whether it was marked.
    fn arrive(&mut self, phv: &Phv, frame: Self::Handle) -> Option<(Repr, bool)>;
}

/// Headers only: what a host sent waits here until it arrives; the handle is its place.
#[derive(Debug, Default)]
pub(super) struct Headers {
    reprs: Vec<Option<Repr>>,
    free: Vec<u32>,
}

impl Headers {
    fn put(&mut self, repr: Option<Repr>) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.reprs[place as usize] = repr;
                place
            }
            None => {
                self.reprs.push(repr);
                (self.reprs.len() - 1) as u32
            }
        }
    }
}

impl Frames for Headers {
    type Handle = u32;

    fn bytes<'a>(&'a self, _: &'a u32) -> &'a [u8] {
        &[]
    }

    fn bytes_mut<'a>(&'a mut self, _: &'a mut u32) -> &'a mut [u8] {
        &mut []
    }

    fn replicate(&mut self, frame: &u32) -> Option<u32> {
        let repr = *self.reprs.get(*frame as usize)?;
        Some(self.put(repr))
    }

    fn emit(&mut self, _: &[u8]) -> Option<u32> {
        Some(self.put(None))
    }

    fn free(&mut self, frame: u32) {
        self.free.push(frame);
    }
}

impl Transport for Headers {
    #[inline]
    fn enter<F: Function>(&mut self, switch: &mut Switch<F, u32>, port: PortId, now: Nanos, phv: &Phv, frame: u32) {
        switch.ingress(now, parsed(phv, port, now), frame, self, &mut NoTrace);
    }
}

/// What a parser that finds the headers `phv` on `port` makes of them.
#[inline]
pub(super) fn parsed(phv: &Phv, port: PortId, now: Nanos) -> Phv {
    Phv { ingress_port: port, received_at: now, bridged: Default::default(), extra_mark: false, routed: false, ..*phv }
}

impl RoceTransport for Headers {
    #[inline]
    fn send(&mut self, repr: &Repr) -> (Phv, u32) {
        (headers(repr), self.put(Some(*repr)))
    }

    #[inline]
    fn arrive(&mut self, phv: &Phv, frame: u32) -> Option<(Repr, bool)> {
        let repr = self.reprs.get_mut(frame as usize)?.take();
        self.free(frame);
        repr.map(|repr| (repr, phv.ecn == Ecn::Ce))
    }
}

/// What the parser finds in the frame that carries `repr`, between MAC addresses that are all zero.
fn headers(repr: &Repr) -> Phv {
    let (reth, immediate) = (repr.reth.map_or(0, |reth| reth.dma_len), repr.immediate.unwrap_or(0));
    Phv {
        frame_bytes: repr.frame_len() as u32,
        ethertype: if repr.src.is_ipv4() { ethernet::IPV4 } else { ethernet::IPV6 },
        l3: if repr.src.is_ipv4() { L3::Ipv4 } else { L3::Ipv6 },
        l3_offset: ethernet::HEADER_LEN as u8,
        src: mapped(repr.src),
        dst: mapped(repr.dst),
        dscp: repr.tos >> 2,
        ecn: Ecn::from_tos(repr.tos),
        ttl: repr.ttl,
        protocol: PROTOCOL_UDP,
        sport: repr.sport,
        dport: ROCE_PORT,
        roce: Some(Roce { opcode: repr.opcode, dest_qpn: repr.dest_qpn, psn: repr.psn, dma_len: reth, immediate }),
        ..Phv::default()
    }
}

/// Real frames, through parser and deparser at every hop. Payload is zeros.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    heap: HeapFrames,
    zeros: Vec<u8>,
}

impl Frames for Bytes {
    type Handle = Vec<u8>;

    fn bytes<'a>(&'a self, frame: &'a Vec<u8>) -> &'a [u8] {
        self.heap.bytes(frame)
    }

    fn bytes_mut<'a>(&'a mut self, frame: &'a mut Vec<u8>) -> &'a mut [u8] {
        self.heap.bytes_mut(frame)
    }

    fn resize(&mut self, frame: &mut Vec<u8>, len: usize) -> bool {
        self.heap.resize(frame, len)
    }

    fn replicate(&mut self, frame: &Vec<u8>) -> Option<Vec<u8>> {
        self.heap.replicate(frame)
    }

    fn emit(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.heap.emit(bytes)
    }

    fn free(&mut self, frame: Vec<u8>) {
        self.heap.free(frame);
    }
}

impl Transport for Bytes {
    fn enter<F: Function>(
        &mut self,
        switch: &mut Switch<F, Vec<u8>>,
        port: PortId,
        now: Nanos,
        _: &Phv,
        frame: Vec<u8>,
    ) {
        switch.receive(port, now, frame, self, &mut NoTrace);
    }
}

impl RoceTransport for Bytes {
    fn send(&mut self, repr: &Repr) -> (Phv, Vec<u8>) {
        self.zeros.resize(repr.payload_len, 0);
        let mut frame = vec![0; repr.frame_len()];
        // An endpoint's packets fit their frames.
        let _ = repr.emit_frame([0; 6], [0; 6], &self.zeros, &mut frame);
        (Phv { frame_bytes: frame.len() as u32, ..Phv::default() }, frame)
    }

    fn arrive(&mut self, _: &Phv, frame: Vec<u8>) -> Option<(Repr, bool)> {
        let (repr, _) = Repr::parse_frame(&frame).ok()?;
        Some((repr, Ecn::from_tos(repr.tos) == Ecn::Ce))
    }
}
