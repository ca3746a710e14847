//! Writing: pcapng with nanoseconds, a comment and a direction a packet.

use std::borrow::Cow;
use std::io::Write;
use std::time::Duration;

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};

use super::Error;

/// Which way a frame went, seen from the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received from the wire.
    Inbound,
    /// Sent to the wire.
    Outbound,
}

/// Writes one pcapng section of Ethernet interfaces.
pub struct Writer<W: Write> {
    file: PcapNgWriter<W>,
}

/// `if_tsresol`: 10^-9 s.
const NANOSECONDS: u8 = 9;

impl<W: Write> Writer<W> {
    /// Writes the head of the file: one interface a name, numbered from 0.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn new<'a>(sink: W, interfaces: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let application = SectionHeaderOption::UserApplication(Cow::Borrowed("symphony"));
        let section = SectionHeaderBlock { options: vec![application], ..Default::default() };
        let mut file = PcapNgWriter::with_section_header(sink, section)?;
        for name in interfaces {
            file.write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: 0,
                options: vec![
                    InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                    InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
                ],
            })?;
        }
        Ok(Writer { file })
    }

    /// Writes a frame that is `original_len` bytes long on the wire. An empty comment is left out.
    ///
    /// # Errors
    /// [`Error::Write`], also for an interface that was not named.
    pub fn packet(
        &mut self,
        timestamp_ns: u64,
        interface: u32,
        direction: Direction,
        original_len: u32,
        data: &[u8],
        comment: &str,
    ) -> Result<(), Error> {
        let direction = match direction {
            Direction::Inbound => 0b01,
            Direction::Outbound => 0b10,
        };
        let mut options = vec![EnhancedPacketOption::Flags(direction)];
        if !comment.is_empty() {
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(comment)));
        }
        self.file.write_pcapng_block(EnhancedPacketBlock {
            interface_id: interface,
            timestamp: Duration::from_nanos(timestamp_ns),
            original_len,
            data: Cow::Borrowed(data),
            options,
        })?;
        Ok(())
    }

    /// Hands the last bytes to the sink.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn finish(self) -> Result<W, Error> {
        let mut sink = self.file.into_inner();
        sink.flush().map_err(|error| Error::Write(error.to_string()))?;
        Ok(sink)
    }
}
