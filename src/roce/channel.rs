//! One ring of a collective on one rank: the two queue pairs, how far each direction is, and NCCL's clear-to-send.
//!
//! The receiver grants requests by writing a 64-byte slot to the sender over the same queue pair, at most [`SLOTS`] ahead;
//! a connection delivers in order, so the number of slots written is the number of requests granted.

use super::buffer::chunk_offset;
use super::config::{Config, Immediate};
use super::queue_pair::{QueuePair, Side, Write};
use super::responder::Grant;
use crate::dataplane::Nanos;

/// NCCL_STEPS: requests that a receiver grants ahead.
pub const SLOTS: u64 = 8;

/// Bytes of a clear-to-send.
pub const CLEAR_TO_SEND_BYTES: usize = 64;

/// Where receive slots and clear-to-send slots lie in the peer's address space: numbers that both ends agree on.
const DATA_VA: u64 = 0x7f00_0000_0000;
const CLEAR_TO_SEND_VA: u64 = 0x7e00_0000_0000;

/// One ring. All counts are of requests since the run began.
#[derive(Debug)]
pub struct Channel {
    index: u32,
    /// To rank + 1.
    pub next: QueuePair,
    /// To rank - 1.
    pub prev: QueuePair,
    /// Granted to us by rank + 1.
    pub granted: u64,
    /// Posted to rank + 1.
    posted: u64,
    /// Known to have arrived there.
    pub acknowledged: u64,
    /// Granted by us to rank - 1.
    offered: u64,
    /// Received from rank - 1.
    pub received: u64,
}

impl Channel {
    /// Channel `index` of a rank.
    pub fn new(config: &Config, index: u32) -> Self {
        Channel {
            index,
            next: QueuePair::new(config, index, Side::Next),
            prev: QueuePair::new(config, index, Side::Prev),
            granted: 0,
            posted: 0,
            acknowledged: 0,
            offered: 0,
            received: 0,
        }
    }

    /// The queue pair to one neighbour.
    pub fn queue_pair(&self, side: Side) -> &QueuePair {
        if side == Side::Next { &self.next } else { &self.prev }
    }

    /// The queue pair to one neighbour.
    pub fn queue_pair_mut(&mut self, side: Side) -> &mut QueuePair {
        if side == Side::Next { &mut self.next } else { &mut self.prev }
    }

    /// What the neighbour may write next.
    pub fn grant(&self, config: &Config, side: Side) -> Option<Grant> {
        match side {
            Side::Next => {
                Some(Grant { va: clear_to_send_va(self.granted), length: CLEAR_TO_SEND_BYTES as u32, immediate: false })
            }
            Side::Prev => (self.received < self.offered).then(|| Grant {
                va: data_va(config, self.received),
                length: request_bytes(config, self.received),
                immediate: true,
            }),
        }
    }

    /// Where in the buffer the request that is arriving goes, and whether it is added to what is there.
    pub fn destination(&self, config: &Config) -> (u64, bool) {
        let step = step_of(config, self.received);
        let chunk = config.collective.received_chunk(config.rank, config.ranks, step);
        (self.place(config, chunk, self.received), config.collective.reduces(config.ranks, step))
    }

    /// Posts whatever may be posted in collective number `iteration`.
    pub fn post(&mut self, now: Nanos, config: &Config, iteration: u32) {
        let end = (u64::from(iteration) + 1) * requests(config);
        if config.collective.receives(config.rank) {
            while self.offered < end.min(self.received + SLOTS) {
                let write = Write {
                    length: CLEAR_TO_SEND_BYTES as u32,
                    va: clear_to_send_va(self.offered),
                    immediate: None,
                    step: (self.offered / u64::from(config.requests_per_step)) as u32,
                    source: self.offered,
                };
                self.prev.post(now, config, write);
                self.offered += 1;
            }
        }
        if !config.collective.sends(config.rank, config.ranks) {
            return;
        }
        while self.posted < end.min(self.granted) {
            let step = step_of(config, self.posted);
            let steps_before = self.posted / u64::from(config.requests_per_step);
            let needed = steps_before * u64::from(config.requests_per_step);
            if step > 0 && config.collective.depends() && self.received < needed {
                break;
            }
            let chunk = config.collective.sent_chunk(config.rank, config.ranks, step);
            let length = request_bytes(config, self.posted);
            let write = Write {
                length,
                va: data_va(config, self.posted),
                immediate: Some(match config.immediate {
                    Immediate::Size => length,
                    Immediate::RequestId => self.posted as u32,
                }),
                step: steps_before as u32,
                source: self.place(config, chunk, self.posted),
            };
            self.next.post(now, config, write);
            self.posted += 1;
        }
    }

    /// Steps completed since the run began: received, or, where nothing is received, known to have arrived.
    pub fn completed_steps(&self, config: &Config) -> u64 {
        let per_step = u64::from(config.requests_per_step);
        if config.collective.receives(config.rank) {
            self.received / per_step
        } else if config.collective.sends(config.rank, config.ranks) {
            self.acknowledged / per_step
        } else {
            u64::from(config.collective.steps(config.ranks)) * u64::from(config.iterations)
        }
    }

    /// Everything sent in collective number `iteration` has arrived.
    pub fn is_sent(&self, config: &Config, iteration: u32) -> bool {
        !config.collective.sends(config.rank, config.ranks)
            || self.acknowledged >= (u64::from(iteration) + 1) * requests(config)
    }

    /// Buffer offset of request `request` when it carries part of `chunk`.
    fn place(&self, config: &Config, chunk: u32, request: u64) -> u64 {
        let within = request % u64::from(config.requests_per_step);
        let at = within * u64::from(config.request_stride());
        chunk_offset(config, self.index, chunk) + at.min(u64::from(config.chunk_bytes))
    }
}

/// Requests of one collective on one channel.
fn requests(config: &Config) -> u64 {
    u64::from(config.collective.steps(config.ranks)) * u64::from(config.requests_per_step)
}

/// Step within its collective.
fn step_of(config: &Config, request: u64) -> u32 {
    (request % requests(config) / u64::from(config.requests_per_step)) as u32
}

fn request_bytes(config: &Config, request: u64) -> u32 {
    config.request_bytes((request % u64::from(config.requests_per_step)) as u32)
}

fn data_va(config: &Config, request: u64) -> u64 {
    DATA_VA + request % SLOTS * u64::from(config.request_stride())
}

fn clear_to_send_va(request: u64) -> u64 {
    CLEAR_TO_SEND_VA + request % SLOTS * CLEAR_TO_SEND_BYTES as u64
}

/// The slot that grants `request`, laid out as NCCL's `ncclIbSendFifo`: address, size, keys, tag, number from 1; host order.
pub fn clear_to_send(config: &Config, request: u64) -> [u8; CLEAR_TO_SEND_BYTES] {
    let mut slot = [0; CLEAR_TO_SEND_BYTES];
    slot[..8].copy_from_slice(&data_va(config, request).to_le_bytes());
    slot[8..16].copy_from_slice(&u64::from(request_bytes(config, request)).to_le_bytes());
    slot[48..52].copy_from_slice(&1u32.to_le_bytes());
    slot[52..56].copy_from_slice(&config.job.to_le_bytes());
    slot[56..].copy_from_slice(&(request + 1).to_le_bytes());
    slot
}
