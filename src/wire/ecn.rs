//! The ECN field of IP (RFC 3168).

/// The low two bits of the IPv4 ToS byte or the IPv6 traffic class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// 00: not ECN-capable; never marked.
    #[default]
    NotEct = 0b00,
    /// 01.
    Ect1 = 0b01,
    /// 10, what RoCEv2 senders use.
    Ect0 = 0b10,
    /// 11: congestion experienced.
    Ce = 0b11,
}

impl Ecn {
    /// From the low two bits of `tos`.
    pub const fn from_tos(tos: u8) -> Self {
        match tos & 0b11 {
            0b00 => Ecn::NotEct,
            0b01 => Ecn::Ect1,
            0b10 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// ECT(0) or ECT(1): CE may be set.
    pub const fn is_ect(self) -> bool {
        matches!(self, Ecn::Ect0 | Ecn::Ect1)
    }
}
