//! A packet to the service, and what is made of it: the packet itself becomes the answer.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::config::SereneConfig;
use crate::dataplane::{Cx, DropReason, MacAddress, Phv, PortId, Tracer, Verdict};
use crate::wire::aggregation::{CONTROL_LEN, Control, Flags, HEADER_LEN, Notice, Packet, Repr, Type};
use crate::wire::{AGGREGATION_PORT, ethernet, ipv4, udp};

/// TTL of answers.
const TTL: u8 = 64;

/// A packet to the service that is what it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) header: Repr,
    pub(super) control: Option<Control>,
    pub(super) source: SocketAddrV4,
    pub(super) mac: MacAddress,
    pub(super) port: PortId,
    /// Where the IPv4 header begins in the frame.
    l3_offset: usize,
}

/// Whom an answer is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiver {
    pub(super) mac: MacAddress,
    pub(super) address: SocketAddrV4,
}

impl Request {
    /// Reads a UDP packet that is addressed to the service.
    ///
    /// # Errors
    /// [`DropReason::AggregationMalformed`]; [`DropReason::AggregationCorrupted`]: a damaged contribution would stay in the
    /// sums for ever.
    #[inline]
    pub(super) fn parse(bytes: &[u8], phv: &Phv) -> Result<Request, DropReason> {
        let l3_offset = usize::from(phv.l3_offset);
        let malformed = DropReason::AggregationMalformed;
        let ip = ipv4::Packet::new_checked(bytes.get(l3_offset..).unwrap_or_default()).map_err(|_| malformed)?;
        let udp = udp::Packet::new_checked(ip.payload()).map_err(|_| malformed)?;
        if !ip.checksum_is_valid() || !udp.checksum_is_sound(ip.src(), ip.dst()) {
            return Err(DropReason::AggregationCorrupted);
        }
        let packet = Packet::new_checked(udp.payload()).map_err(|_| malformed)?;
        let control = packet.control();
        if packet.kind().has_control_body() != control.is_some() {
            return Err(malformed);
        }
        Ok(Request {
            header: Repr::parse(&packet),
            control,
            source: SocketAddrV4::new(ip.src(), udp.src_port()),
            mac: phv.eth_src,
            port: phv.ingress_port,
            l3_offset,
        })
    }

    /// Where the aggregation header begins in the frame.
    #[inline]
    fn payload_at(&self) -> usize {
        payload_at(self.l3_offset)
    }

    /// Where the lanes begin in the frame.
    #[inline]
    pub(super) fn lanes_at(&self) -> usize {
        self.payload_at() + HEADER_LEN
    }

    /// Makes room for an answer with `lanes` lanes in place of what the packet carries; they are zero.
    ///
    /// # Errors
    /// [`DropReason::TooLong`] where the frame cannot grow so long.
    pub(super) fn make_room<T: Tracer>(&self, cx: &mut Cx<'_, T>, lanes: usize) -> Result<(), DropReason> {
        let lanes_at = self.lanes_at();
        if !cx.frame.resize(lanes_at + 4 * lanes) {
            return Err(DropReason::TooLong);
        }
        cx.frame.bytes_mut().get_mut(lanes_at..).unwrap_or_default().fill(0);
        Ok(())
    }

    /// Writes an answer over the packet, but for its lanes, and addresses it to the sender. `control` is the body of one
    /// that has a body.
    ///
    /// # Errors
    /// [`DropReason::TooLong`] where the frame cannot hold it.
    #[inline]
    pub(super) fn answer<T: Tracer>(
        &self,
        cx: &mut Cx<'_, T>,
        phv: &mut Phv,
        config: &SereneConfig,
        header: &Repr,
        control: Option<Control>,
    ) -> Result<(), DropReason> {
        let (at, len) = (self.payload_at(), self.payload_at() + header.payload_len());
        if cx.frame.bytes().len() != len && !cx.frame.resize(len) {
            return Err(DropReason::TooLong);
        }
        phv.frame_bytes = len as u32;
        let bytes = cx.frame.bytes_mut();
        let body = bytes.get_mut(at..).unwrap_or_default();
        header.emit(body).map_err(|_| DropReason::TooLong)?;
        if let (Some(control), Some(body)) = (control, body.get_mut(HEADER_LEN..)) {
            control.emit(body).map_err(|_| DropReason::TooLong)?;
        }
        let receiver = Receiver { mac: self.mac, address: self.source };
        address(bytes, self.l3_offset, config, &receiver).ok_or(DropReason::TooLong)
    }

    /// Answers that the worker is not served, with the incarnation that it gave. Never longer than the request.
    ///
    /// # Errors
    /// None but those of [`Request::answer`], for which it is too short.
    pub(super) fn notice<T: Tracer>(
        &self,
        cx: &mut Cx<'_, T>,
        phv: &mut Phv,
        config: &SereneConfig,
        notice: Notice,
    ) -> Result<Verdict, DropReason> {
        let header =
            Repr { kind: Type::Notice, flags: Flags::default(), lane_count: 0, norm: notice as u8, ..self.header };
        self.answer(cx, phv, config, &header, None)?;
        Ok(Verdict::Forward(phv.ingress_port))
    }
}

/// The UDP payload of a frame, if it has one.
pub(super) fn udp_payload(bytes: &[u8], l3_offset: usize) -> Option<&[u8]> {
    let ip = ipv4::Packet::new_checked(bytes.get(l3_offset..)?).ok()?;
    Some(udp::Packet::new_checked(ip.payload()).ok()?.payload())
}

/// Where the UDP payload begins behind an IPv4 header without options.
pub(super) fn payload_at(l3_offset: usize) -> usize {
    l3_offset + ipv4::HEADER_LEN + udp::HEADER_LEN
}

/// Writes the headers of a datagram from the service, which fills the frame, around its payload. VLAN tags stay.
#[inline]
pub(super) fn address(bytes: &mut [u8], l3_offset: usize, config: &SereneConfig, receiver: &Receiver) -> Option<()> {
    let macs = bytes.first_chunk_mut::<12>()?;
    macs[..6].copy_from_slice(&receiver.mac);
    macs[6..].copy_from_slice(&config.mac);
    let packet = bytes.get_mut(l3_offset..)?;
    let payload_len = packet.len().checked_sub(ipv4::HEADER_LEN + udp::HEADER_LEN)?;
    let datagram_len = udp::HEADER_LEN + payload_len;
    ipv4::Repr::udp(config.address, *receiver.address.ip(), 0, TTL, datagram_len).emit(packet).ok()?;
    let header = udp::Repr { src_port: AGGREGATION_PORT, dst_port: receiver.address.port(), payload_len };
    header.emit(packet.get_mut(ipv4::HEADER_LEN..)?).ok()?;
    Some(())
}

/// A whole frame with a controller's request, to put in by the CPU port.
pub(super) fn control_frame(address: Ipv4Addr, mac: MacAddress, header: &Repr, control: &Control) -> Vec<u8> {
    const AT: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;
    let mut bytes = vec![0; AT + HEADER_LEN + CONTROL_LEN];
    let payload_len = HEADER_LEN + CONTROL_LEN;
    let ethernet = ethernet::Repr { dst: mac, src: mac, tags: [None; 2], ethertype: ethernet::IPV4 };
    let ip = ipv4::Repr::udp(address, address, 0, TTL, udp::HEADER_LEN + payload_len);
    let udp = udp::Repr { src_port: AGGREGATION_PORT, dst_port: AGGREGATION_PORT, payload_len };
    // The buffer is as long as its parts, so none of them can fail.
    let parts = ethernet.emit(&mut bytes).and_then(|_| ip.emit(&mut bytes[ethernet::HEADER_LEN..])).and_then(|_| {
        udp.emit(&mut bytes[AT - udp::HEADER_LEN..])?;
        header.emit(&mut bytes[AT..])?;
        control.emit(&mut bytes[AT + HEADER_LEN..])
    });
    debug_assert!(parts.is_ok());
    bytes
}
