//! The aggregation header and what follows it in a UDP datagram to or from port 24190: 32-bit lanes of one segment, or the
//! body of a control packet. All big-endian.
//!
//! ```text
//!  0  version:4 type:4 | flags | job | worker      16  frontier (a worker's: the least that it has seen)
//!  4  round                                        20  incarnation (requests, JOIN_ACK, NOTICE) or included
//!  8  segment                                      24  next_round
//! 12  lanes/8 | norm | rule_version:16             28  ts_us
//! 32  lanes x int32                           or   swap_id:32 boundary:32 from:16 to:16 align code reserved:16
//! ```

use super::{Error, be16, be32, put};

/// Length of the header.
pub const HEADER_LEN: usize = 32;

/// The only version.
pub const VERSION: u8 = 1;

/// Most lanes of a segment: what a 1500-byte MTU carries behind IPv4 and UDP, in eights.
pub const MAX_LANES: usize = 352;

/// Workers are numbered below this: [`Packet::included`] has a bit for each.
pub const MAX_WORKERS: u8 = 32;

/// Lanes come in groups of so many.
pub const LANE_GROUP: usize = 8;

/// Rounds are below this, so that their differences fit 32 bits with sign.
pub const ROUND_LIMIT: u32 = 1 << 31;

mod field {
    pub const VERSION_TYPE: usize = 0;
    pub const FLAGS: usize = 1;
    pub const JOB: usize = 2;
    pub const WORKER: usize = 3;
    pub const ROUND: usize = 4;
    pub const SEGMENT: usize = 8;
    pub const LANES: usize = 12;
    pub const NORM: usize = 13;
    pub const RULE_VERSION: usize = 14;
    pub const FRONTIER: usize = 16;
    pub const INCARNATION_OR_INCLUDED: usize = 20;
    pub const NEXT_ROUND: usize = 24;
    pub const TS: usize = 28;
}

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant = $number,)* }

        impl $name {
            /// Every one, in the order of its number.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The one of a number on the wire.
            #[inline]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some($name::$variant),)* _ => None }
            }
        }
    };
}

// Below the macro, which it uses.
mod control;

pub use control::{Align, CONTROL_LEN, Code, Control};

numbered! {
    /// What a packet is. Even numbers up to 6 come from workers and odd ones up to 7 go to them; 8 and above pass between
    /// controller and switch, by the CPU port only.
    Type {
        /// A worker's contribution to one segment.
        Push = 0,
        /// Where a segment stands, with its cumulative store. Answers PUSH, PULL and CLOSE, to one worker or to all.
        Result = 1,
        /// A worker asks for a segment without contributing.
        Pull = 2,
        /// The contribution is in; its round is not over. No lanes.
        Wait = 3,
        /// A process asks for a worker's place, which it takes from another with its next packet. Carries its incarnation, and
        /// the number of segments that it expects.
        Join = 4,
        /// Answers JOIN: the switch's own incarnation, the first legal round in `next_round`, norm and rule in force.
        JoinAck = 5,
        /// A worker will contribute no more.
        Leave = 6,
        /// The worker is not served; `norm` holds a [`Notice`], and `incarnation` is that of the request.
        Notice = 7,
        /// Controller: rounds from `boundary` on go by the other bank.
        Arm = 8,
        /// Answers ARM, ABORT and COMPLETE with a [`Code`]; `norm` is the request's type, and `round` the highest round
        /// pushed so far.
        ArmResponse = 9,
        /// Controller: release `round` of `segment` with what is in, if that is at least `norm` contributions; with 0, even
        /// if nothing is.
        Close = 10,
        /// Controller: take an ARM back.
        Abort = 11,
        /// Answers a CLOSE that found nothing to release: the segment's frontier.
        Status = 13,
        /// Controller: all members are past the boundary; the other bank becomes the only one.
        Complete = 14,
    }
}

numbered! {
    /// Why a worker is not served.
    Notice {
        /// Its incarnation is unknown, as the switch or the job was restarted or it never joined: join again.
        Rejoin = 1,
        /// It is no longer a member.
        Dropped = 2,
        /// There is no such job: it is not loaded yet, or no longer.
        UnknownJob = 3,
    }
}

/// The flag byte. Bits 0 and 6 mean one thing in requests and another in answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// Request: sent before.
    pub const RETX: Flags = Flags(1);
    /// Answer: to a contribution that was in already.
    pub const REPLAY: Flags = Flags(1);
    /// Answer: the contribution came after its round was released, and is not in it.
    pub const LATE: Flags = Flags(1 << 1);
    /// Answer: goes to all workers of the job.
    pub const MCAST: Flags = Flags(1 << 2);
    /// Answer: `next_round` is the boundary of a swap or lies behind it.
    pub const BOUNDARY: Flags = Flags(1 << 3);
    /// Answer: the controller released the round, with whoever was in.
    pub const CLOSED: Flags = Flags(1 << 4);
    /// Answer: the round is too old for the switch to know who was in.
    pub const OLD: Flags = Flags(1 << 5);
    /// Request: the sender had to clip values.
    pub const OVERFLOW: Flags = Flags(1 << 6);
    /// Answer, with [`Flags::LATE`]: by the rule of its round the contribution is to be added to the sender's next one.
    pub const RETURN: Flags = Flags(1 << 6);
    /// Answer: a swap is armed.
    pub const SWAP_ARMED: Flags = Flags(1 << 7);

    /// Whether every flag of `other` is set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the flags of `other`, if `on`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Flags, on: bool) -> Self {
        Flags(if on { self.0 | other.0 } else { self.0 })
    }

    /// Without the flags of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Flags) -> Self {
        Flags(self.0 & !other.0)
    }
}

impl Type {
    /// Whether a control body follows the header.
    #[inline]
    pub const fn has_control_body(self) -> bool {
        matches!(self, Type::Arm | Type::ArmResponse | Type::Close | Type::Abort | Type::Status | Type::Complete)
    }
}

/// A view on a UDP payload.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks version, type, and that the payload is exactly as long as they and the number of lanes say. No accessor
    /// panics afterwards.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::WrongProtocol`] for another version or an unknown type, [`Error::BadLength`] for
    /// more lanes than [`MAX_LANES`], lanes in a control packet, or bytes that are too many or too few.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let packet = Packet { buffer };
        let data = packet.data();
        if data.len() < HEADER_LEN {
            return Err(Error::Truncated("aggregation"));
        }
        let known = Type::from_number(data[field::VERSION_TYPE] & 0x0f);
        let (VERSION, Some(kind)) = (data[field::VERSION_TYPE] >> 4, known) else {
            return Err(Error::WrongProtocol("aggregation"));
        };
        let lanes = packet.lane_count();
        let control = if kind.has_control_body() { CONTROL_LEN } else { 0 };
        let too_many = lanes > if kind.has_control_body() { 0 } else { MAX_LANES };
        if too_many || data.len() != HEADER_LEN + control + 4 * lanes {
            return Err(Error::BadLength("aggregation"));
        }
        Ok(packet)
    }

    /// What it is.
    #[inline]
    pub fn kind(&self) -> Type {
        // `new_checked` has seen that the type is known.
        Type::from_number(self.data()[field::VERSION_TYPE] & 0x0f).unwrap_or(Type::Notice)
    }

    /// Flags.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags(self.data()[field::FLAGS])
    }

    /// Job.
    #[inline]
    pub fn job(&self) -> u8 {
        self.data()[field::JOB]
    }

    /// Worker that sent a request, or that an answer is for. May be [`MAX_WORKERS`] or above in what comes from outside.
    #[inline]
    pub fn worker(&self) -> u8 {
        self.data()[field::WORKER]
    }

    /// Label of the contribution, or the round answered.
    #[inline]
    pub fn round(&self) -> u32 {
        be32(self.data(), field::ROUND)
    }

    /// Number of the segment; in a JOIN, how many the worker expects.
    #[inline]
    pub fn segment(&self) -> u32 {
        be32(self.data(), field::SEGMENT)
    }

    /// How many lanes follow.
    #[inline]
    pub fn lane_count(&self) -> usize {
        usize::from(self.data()[field::LANES]) * LANE_GROUP
    }

    /// By how much the contribution was divided, or is to be in `next_round`.
    #[inline]
    pub fn norm(&self) -> u8 {
        self.data()[field::NORM]
    }

    /// Version of the rule that the worker believes in, or that is in force for `next_round`.
    #[inline]
    pub fn rule_version(&self) -> u16 {
        be16(self.data(), field::RULE_VERSION)
    }

    /// The last round released: of this segment in answers, the least over all that the worker has seen in requests.
    #[inline]
    pub fn frontier(&self) -> u32 {
        be32(self.data(), field::FRONTIER)
    }

    /// Requests, JOIN_ACK: the number that the sender drew when it started. NOTICE: the request's.
    #[inline]
    pub fn incarnation(&self) -> u32 {
        be32(self.data(), field::INCARNATION_OR_INCLUDED)
    }

    /// RESULT, WAIT, STATUS: a bit for each worker whose contribution is in `round`.
    #[inline]
    pub fn included(&self) -> u32 {
        be32(self.data(), field::INCARNATION_OR_INCLUDED)
    }

    /// The lowest label that the worker may use next, as far as this segment is concerned. 0 in requests.
    #[inline]
    pub fn next_round(&self) -> u32 {
        be32(self.data(), field::NEXT_ROUND)
    }

    /// The worker's clock in us when it sent the request; answers to one worker echo it.
    #[inline]
    pub fn ts_us(&self) -> u32 {
        be32(self.data(), field::TS)
    }

    /// The lanes' bytes, one array a lane. Empty in a control packet.
    #[inline]
    pub fn lane_bytes(&self) -> &[[u8; 4]] {
        let end = HEADER_LEN + 4 * self.lane_count();
        self.data()[HEADER_LEN..end].as_chunks().0
    }

    /// The lanes' values.
    #[inline]
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = i32> {
        self.lane_bytes().iter().map(|bytes| i32::from_be_bytes(*bytes))
    }

    /// The body of a control packet; `None` in others, and where a number in it is unknown.
    pub fn control(&self) -> Option<Control> {
        if !self.kind().has_control_body() {
            return None;
        }
        Control::parse(self.data().get(HEADER_LEN..)?)
    }

    #[inline]
    fn data(&self) -> &[u8] {
        self.buffer.as_ref()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Readdresses an answer.
    #[inline]
    pub fn set_worker(&mut self, worker: u8) {
        self.buffer.as_mut()[field::WORKER] = worker;
    }

    /// The lanes' bytes, to write them in place.
    #[inline]
    pub fn lane_bytes_mut(&mut self) -> &mut [[u8; 4]] {
        let end = HEADER_LEN + 4 * self.lane_count();
        self.buffer.as_mut()[HEADER_LEN..end].as_chunks_mut().0
    }
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// What it is.
    pub kind: Type,
    /// Flags.
    pub flags: Flags,
    /// Job.
    pub job: u8,
    /// Worker that sent a request, or that an answer is for.
    pub worker: u8,
    /// Label of the contribution, or the round answered.
    pub round: u32,
    /// Number of the segment; in a JOIN, how many the worker expects.
    pub segment: u32,
    /// How many lanes follow: a multiple of [`LANE_GROUP`], at most [`MAX_LANES`].
    pub lane_count: u16,
    /// By how much the contribution was divided, or is to be in `next_round`. In a NOTICE, its number.
    pub norm: u8,
    /// Version of the rule that the worker believes in, or that is in force for `next_round`.
    pub rule_version: u16,
    /// The last round released: of this segment in answers, the least over all that the worker has seen in requests.
    pub frontier: u32,
    /// [`Packet::incarnation`] or [`Packet::included`], by type.
    pub incarnation_or_included: u32,
    /// The lowest label that the worker may use next. 0 in requests.
    pub next_round: u32,
    /// The worker's clock in us.
    pub ts_us: u32,
}

impl Repr {
    /// A header of this type for this job, and 0 elsewhere.
    pub const fn new(kind: Type, job: u8) -> Self {
        Repr {
            kind,
            flags: Flags(0),
            job,
            worker: 0,
            round: 0,
            segment: 0,
            lane_count: 0,
            norm: 0,
            rule_version: 0,
            frontier: 0,
            incarnation_or_included: 0,
            next_round: 0,
            ts_us: 0,
        }
    }

    /// The header of a packet.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Repr {
            kind: packet.kind(),
            flags: packet.flags(),
            job: packet.job(),
            worker: packet.worker(),
            round: packet.round(),
            segment: packet.segment(),
            lane_count: packet.lane_count() as u16,
            norm: packet.norm(),
            rule_version: packet.rule_version(),
            frontier: packet.frontier(),
            incarnation_or_included: packet.included(),
            next_round: packet.next_round(),
            ts_us: packet.ts_us(),
        }
    }

    /// Length of the UDP payload.
    pub const fn payload_len(&self) -> usize {
        let control = if self.kind.has_control_body() { CONTROL_LEN } else { 0 };
        HEADER_LEN + control + 4 * self.lane_count as usize
    }

    /// Writes 32 bytes and returns their number. Lanes beyond a whole group of [`LANE_GROUP`] are not announced.
    ///
    /// # Errors
    /// [`Error::TooLong`] when `buffer` is too short or there are more lanes than [`MAX_LANES`].
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let buffer = buffer.get_mut(..HEADER_LEN).ok_or(Error::TooLong)?;
        if usize::from(self.lane_count) > MAX_LANES {
            return Err(Error::TooLong);
        }
        buffer[field::VERSION_TYPE] = VERSION << 4 | self.kind as u8;
        buffer[field::FLAGS] = self.flags.0;
        buffer[field::JOB] = self.job;
        buffer[field::WORKER] = self.worker;
        put(buffer, field::ROUND, &self.round.to_be_bytes());
        put(buffer, field::SEGMENT, &self.segment.to_be_bytes());
        buffer[field::LANES] = (usize::from(self.lane_count) / LANE_GROUP) as u8;
        buffer[field::NORM] = self.norm;
        put(buffer, field::RULE_VERSION, &self.rule_version.to_be_bytes());
        put(buffer, field::FRONTIER, &self.frontier.to_be_bytes());
        put(buffer, field::INCARNATION_OR_INCLUDED, &self.incarnation_or_included.to_be_bytes());
        put(buffer, field::NEXT_ROUND, &self.next_round.to_be_bytes());
        put(buffer, field::TS, &self.ts_us.to_be_bytes());
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests;
