//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use super::{Error, be16, bytes, put};

/// Length of a packet.
pub const LEN: usize = 28;

mod field {
    pub const OPERATION: usize = 6;
    pub const SENDER_MAC: usize = 8;
    pub const SENDER: usize = 14;
    pub const TARGET_MAC: usize = 18;
    pub const TARGET: usize = 24;
}

/// Hardware type Ethernet, protocol type IPv4, and their address lengths.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target's address?
    Request,
    /// The sender has its own.
    Reply,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Request or reply.
    pub operation: Operation,
    /// The sender's Ethernet address.
    pub sender_mac: [u8; 6],
    /// The sender's IP address.
    pub sender: Ipv4Addr,
    /// The target's Ethernet address; means nothing in requests.
    pub target_mac: [u8; 6],
    /// The target's IP address.
    pub target: Ipv4Addr,
}

impl Repr {
    /// Reads the payload of an Ethernet frame; what follows the packet is padding.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::WrongProtocol`] for other addresses than those of Ethernet and IPv4, and for
    /// operations other than request and reply.
    pub fn parse(data: &[u8]) -> Result<Self, Error> {
        if data.len() < LEN {
            return Err(Error::Truncated("ARP"));
        }
        let operation = match be16(data, field::OPERATION) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(Error::WrongProtocol("ARP request or reply")),
        };
        if !data.starts_with(&ETHERNET_IPV4) {
            return Err(Error::WrongProtocol("ARP for IPv4 over Ethernet"));
        }
        Ok(Repr {
            operation,
            sender_mac: bytes(data, field::SENDER_MAC),
            sender: bytes::<4>(data, field::SENDER).into(),
            target_mac: bytes(data, field::TARGET_MAC),
            target: bytes::<4>(data, field::TARGET).into(),
        })
    }

    /// Writes 28 bytes and returns their number.
    ///
    /// # Errors
    /// [`Error::TooLong`] when `buffer` is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let buffer = buffer.get_mut(..LEN).ok_or(Error::TooLong)?;
        let operation: u16 = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        put(buffer, 0, &ETHERNET_IPV4);
        put(buffer, field::OPERATION, &operation.to_be_bytes());
        put(buffer, field::SENDER_MAC, &self.sender_mac);
        put(buffer, field::SENDER, &self.sender.octets());
        put(buffer, field::TARGET_MAC, &self.target_mac);
        put(buffer, field::TARGET, &self.target.octets());
        Ok(LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10.0.0.1 at 02:..:01 asks for 10.0.0.254.
    #[rustfmt::skip]
    const REQUEST: [u8; 28] = [
        0, 1, 8, 0, 6, 4, 0, 1,  2, 0, 0, 0, 0, 1, 10, 0, 0, 1,  0, 0, 0, 0, 0, 0, 10, 0, 0, 254,
    ];

    #[test]
    fn a_request_is_read_and_written_again() {
        let repr = Repr::parse(&REQUEST).expect("whole");
        let expected = Repr {
            operation: Operation::Request,
            sender_mac: [2, 0, 0, 0, 0, 1],
            sender: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: [0; 6],
            target: Ipv4Addr::new(10, 0, 0, 254),
        };
        assert_eq!(repr, expected);
        let mut again = [0xaa; 28];
        assert_eq!((repr.emit(&mut again), again), (Ok(28), REQUEST));
        assert_eq!(repr.emit(&mut again[..27]), Err(Error::TooLong));
    }

    #[test]
    fn what_is_cut_off_or_of_other_networks_is_refused() {
        assert_eq!(Repr::parse(&REQUEST[..27]), Err(Error::Truncated("ARP")));
        for at in [1, 2, 4, 5, 7] {
            let mut bytes = REQUEST;
            bytes[at] = 9;
            assert!(matches!(Repr::parse(&bytes), Err(Error::WrongProtocol(_))), "byte {at}");
        }
    }
}
