//! Reading: pcap (micro- and nanoseconds, either byte order) and pcapng (any number of sections and interfaces).

use std::io::{self, Chain, Cursor, Read};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, TsResolution};

use super::{Error, reason};

/// One captured frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// Position in the file, from 1 as Wireshark counts.
    pub number: u64,
    /// Nanoseconds since 1970. A pcapng simple packet has no time of its own and gets that of the packet before.
    pub timestamp_ns: u64,
    /// Interface of its section (pcapng); 0 in a pcap.
    pub interface: u32,
    /// Length on the wire; more than `data.len()` when the capture cut it.
    pub original_len: u32,
    /// The frame from the Ethernet header on, without FCS.
    pub data: Vec<u8>,
}

/// Hands out the packets of a capture in the order of the file. After an error it hands out nothing more.
pub struct Reader<R: Read> {
    file: File<R>,
    last: Packet,
    ended: bool,
}

/// The file behind its first four bytes, which tell the format.
type Whole<R> = Chain<Cursor<[u8; 4]>, R>;

enum File<R: Read> {
    Pcap(PcapReader<Whole<R>>),
    PcapNg(PcapNgReader<Whole<R>>),
}

impl<R: Read> Reader<R> {
    /// Reads the head of the file.
    ///
    /// # Errors
    /// [`Error::NotACapture`]; [`Error::LinkType`] for a pcap of something else than Ethernet (a pcapng says so later, as
    /// soon as the interface is described).
    pub fn new(mut source: R) -> Result<Self, Error> {
        const PCAPNG_SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
        const GZIP: [u8; 2] = [0x1f, 0x8b];
        let not_a_capture = |error| Error::NotACapture(reason(error));
        let mut magic = [0; 4];
        source.read_exact(&mut magic).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::NotACapture("shorter than 4 bytes".into()),
            _ => Error::NotACapture(error.to_string()),
        })?;
        if magic.starts_with(&GZIP) {
            return Err(Error::NotACapture("compressed with gzip; unpack it with gunzip first".into()));
        }
        let whole = Cursor::new(magic).chain(source);
        let file = if magic == PCAPNG_SECTION {
            File::PcapNg(PcapNgReader::new(whole).map_err(not_a_capture)?)
        } else {
            let reader = PcapReader::new(whole).map_err(not_a_capture)?;
            check_link_type(reader.header().datalink)?;
            File::Pcap(reader)
        };
        Ok(Reader { file, last: Packet::default(), ended: false })
    }

    /// Interfaces described so far in the section in hand; 1 in a pcap.
    pub fn interfaces(&self) -> usize {
        match &self.file {
            File::Pcap(_) => 1,
            File::PcapNg(reader) => reader.interfaces().len(),
        }
    }

    fn read(&mut self) -> Result<Option<Packet>, Error> {
        let number = self.last.number + 1;
        match &mut self.file {
            File::Pcap(reader) => read_pcap(reader, number),
            File::PcapNg(reader) => read_pcapng(reader, number, self.last.timestamp_ns),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Packet, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let result = self.read().transpose();
        match &result {
            Some(Ok(packet)) => {
                self.last = Packet { data: Vec::new(), ..*packet };
            }
            Some(Err(_)) | None => self.ended = true,
        }
        result
    }
}

fn read_pcap<R: Read>(reader: &mut PcapReader<R>, number: u64) -> Result<Option<Packet>, Error> {
    let fraction_ns = match reader.header().ts_resolution {
        TsResolution::MicroSecond => 1_000,
        TsResolution::NanoSecond => 1,
    };
    // The crate's "raw" packets: its cooked ones refuse what Wireshark reads, as frames longer than the snap length.
    let Some(result) = reader.next_raw_packet() else { return Ok(None) };
    let packet = result.map_err(|error| broken(number, reason(error)))?;
    Ok(Some(Packet {
        number,
        timestamp_ns: u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac) * fraction_ns,
        interface: 0,
        original_len: packet.orig_len,
        data: packet.data.into_owned(),
    }))
}

fn read_pcapng<R: Read>(reader: &mut PcapNgReader<R>, number: u64, last_ns: u64) -> Result<Option<Packet>, Error> {
    loop {
        let Some(result) = reader.next_block() else { return Ok(None) };
        let (interface, timestamp, original_len, data) = match result.map_err(|error| broken(number, reason(error)))? {
            Block::EnhancedPacket(block) => {
                // The crate takes the units of the file for nanoseconds, whatever they are.
                let units = u64::try_from(block.timestamp.as_nanos()).unwrap_or(u64::MAX);
                (block.interface_id, Some(units), block.original_len, block.data.into_owned())
            }
            Block::Packet(block) => {
                (block.interface_id.into(), Some(block.timestamp), block.original_len, block.data.into_owned())
            }
            Block::SimplePacket(block) => (0, None, block.original_len, block.data.into_owned()),
            Block::InterfaceDescription(block) => {
                check_link_type(block.linktype)?;
                continue;
            }
            _ => continue,
        };
        let Some(described) = reader.interfaces().get(interface as usize) else {
            return Err(broken(number, format!("its interface {interface} is not described")));
        };
        let mut data = data;
        if timestamp.is_none() {
            data.truncate(simple_len(original_len, described.snaplen));
        }
        let timestamp_ns = timestamp.map_or(last_ns, |units| nanoseconds(units, described));
        return Ok(Some(Packet { number, timestamp_ns, interface, original_len, data }));
    }
}

/// Captured bytes of a simple packet, which does not tell them: its data reaches to the end of the block, with up to 3 bytes
/// of padding. A snap length of 0 is no limit.
fn simple_len(original_len: u32, snap_len: u32) -> usize {
    match snap_len {
        0 => original_len as usize,
        _ => original_len.min(snap_len) as usize,
    }
}

/// A timestamp in the units that the interface declares (`if_tsresol`; microseconds where it does not), plus its offset.
fn nanoseconds(units: u64, interface: &InterfaceDescriptionBlock<'_>) -> u64 {
    let (mut resolution, mut offset_s) = (6, 0);
    for option in &interface.options {
        match option {
            InterfaceDescriptionOption::IfTsResol(value) => resolution = *value,
            InterfaceDescriptionOption::IfTsOffset(value) => offset_s = *value,
            _ => {}
        }
    }
    let exponent = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let ns = base.checked_pow(exponent).map_or(0, |per_second| u128::from(units) * 1_000_000_000 / per_second);
    u64::try_from(ns).unwrap_or(u64::MAX).saturating_add(offset_s.saturating_mul(1_000_000_000))
}

fn check_link_type(link_type: DataLink) -> Result<(), Error> {
    match link_type {
        DataLink::ETHERNET => Ok(()),
        other => Err(Error::LinkType(format!("{other:?} ({})", u32::from(other)))),
    }
}

/// The error of packet `number`, in the words of the reader of the message rather than of the parser.
fn broken(number: u64, reason: String) -> Error {
    Error::Broken { after: number - 1, reason }
}
