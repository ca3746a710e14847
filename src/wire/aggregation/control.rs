//! The body of a control packet, which passes between controller and switch only: a swap, and how it fared.

use crate::wire::{Error, be16, be32, put};

/// Length of a control packet's body.
pub const CONTROL_LEN: usize = 16;

mod field {
    pub const SWAP_ID: usize = 0;
    pub const BOUNDARY: usize = 4;
    pub const FROM: usize = 8;
    pub const TO: usize = 10;
    pub const ALIGN: usize = 12;
    pub const CODE: usize = 13;
    pub const RESERVED: usize = 14;
}

numbered! {
    /// How workers that are behind get to a boundary.
    Align {
        /// They are told to go on from the boundary as soon as somebody is there.
        Jump = 0,
        /// They walk, round by round.
        Drain = 1,
    }
}

numbered! {
    /// How a control packet fared. 0 in requests.
    Code {
        /// Done, now or by an earlier copy of the same packet.
        Done = 0,
        /// Somebody has pushed for the boundary or beyond: take a higher one.
        Nak = 1,
        /// Another swap is under way.
        Busy = 2,
        /// Somebody is past the boundary, so that it cannot be taken back.
        TooLate = 3,
        /// There is no such swap: its turn is over, or it never was.
        Unknown = 4,
    }
}

/// The body of a control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Number of the swap; the same in every copy of one request, and in its answer.
    pub swap_id: u32,
    /// B: first round of the new rule.
    pub boundary: u32,
    /// Version of the rule before it.
    pub from_version: u16,
    /// Version of the rule from it on.
    pub to_version: u16,
    /// How workers that are behind get there.
    pub align: Align,
    /// How the request fared; [`Code::Done`] in requests.
    pub code: Code,
}

impl Control {
    /// Reads what stands behind the header; `None` where it is too short or a number in it is unknown.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let body = body.get(..CONTROL_LEN)?;
        Some(Control {
            swap_id: be32(body, field::SWAP_ID),
            boundary: be32(body, field::BOUNDARY),
            from_version: be16(body, field::FROM),
            to_version: be16(body, field::TO),
            align: Align::from_number(body[field::ALIGN])?,
            code: Code::from_number(body[field::CODE])?,
        })
    }

    /// Writes 16 bytes, to stand behind the header, and returns their number.
    ///
    /// # Errors
    /// [`Error::TooLong`] when `buffer` is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let buffer = buffer.get_mut(..CONTROL_LEN).ok_or(Error::TooLong)?;
        put(buffer, field::SWAP_ID, &self.swap_id.to_be_bytes());
        put(buffer, field::BOUNDARY, &self.boundary.to_be_bytes());
        put(buffer, field::FROM, &self.from_version.to_be_bytes());
        put(buffer, field::TO, &self.to_version.to_be_bytes());
        buffer[field::ALIGN] = self.align as u8;
        buffer[field::CODE] = self.code as u8;
        put(buffer, field::RESERVED, &[0, 0]);
        Ok(CONTROL_LEN)
    }
}
