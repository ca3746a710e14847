//! A rank's values: made from a seed, reduced as they come, checked against the closed form at the end.
//!
//! Value j of rank r is `a(r) * j + b(r)` modulo 2^32, so that a sum over ranks is again such a line and every element of a
//! result can be checked. A wrong, missing or doubled contribution changes it everywhere.

use super::config::{Collective, Config};

/// The first element that is not what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("channel {channel}, chunk {chunk}, element {element}: {found:#010x} instead of {expected:#010x}")]
pub struct WrongValue {
    /// Channel.
    pub channel: u32,
    /// Chunk of its ring.
    pub chunk: u32,
    /// Element of the chunk.
    pub element: u32,
    /// What is there.
    pub found: u32,
    /// What should be there.
    pub expected: u32,
}

/// `a * j + b` modulo 2^32.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    a: u32,
    b: u32,
}

impl Line {
    /// Of one rank. Mixes seed and rank as splitmix64 does.
    fn of(seed: u64, rank: u32) -> Self {
        let mut z = seed.wrapping_add(u64::from(rank).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        Line { a: (z >> 32) as u32 | 1, b: z as u32 }
    }

    fn at(self, index: u32) -> u32 {
        self.a.wrapping_mul(index).wrapping_add(self.b)
    }
}

/// Little-endian u32 values: for each channel the chunks of its ring.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
}

/// Where a chunk begins, in bytes. Holds without a buffer too.
pub fn chunk_offset(config: &Config, channel: u32, chunk: u32) -> u64 {
    let chunks = u64::from(config.collective.chunks(config.ranks));
    (u64::from(channel) * chunks + u64::from(chunk)) * u64::from(config.chunk_bytes)
}

impl Buffer {
    /// The rank's values at the start of a collective.
    pub fn new(config: &Config) -> Self {
        let mut buffer = Buffer { bytes: vec![0; chunk_offset(config, config.channels, 0) as usize] };
        buffer.refill(config);
        buffer
    }

    /// The rank's values again.
    pub fn refill(&mut self, config: &Config) {
        let line = Line::of(config.seed, config.rank);
        for (channel, chunk, bytes) in chunks(config, &mut self.bytes) {
            let own = match config.collective {
                Collective::AllGather => chunk == config.rank,
                Collective::Stream { .. } => config.collective.sends(config.rank, config.ranks),
                _ => true,
            };
            let first = first_index(config, channel, chunk);
            for (j, word) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *word = if own { line.at(first.wrapping_add(j as u32)) } else { 0 }.to_le_bytes();
            }
        }
    }

    /// The bytes at `offset`; fewer when the buffer ends.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let from = self.bytes.get(offset as usize..).unwrap_or(&[]);
        let len = from.len().min(out.len());
        out[..len].copy_from_slice(&from[..len]);
    }

    /// Puts `payload` at `offset`, or adds it to what is there.
    pub fn write(&mut self, offset: u64, payload: &[u8], reduce: bool) {
        let Some(to) = self.bytes.get_mut(offset as usize..).and_then(|to| to.get_mut(..payload.len())) else { return };
        if !reduce {
            to.copy_from_slice(payload);
            return;
        }
        for (to, from) in to.as_chunks_mut::<4>().0.iter_mut().zip(payload.as_chunks::<4>().0) {
            *to = u32::from_le_bytes(*to).wrapping_add(u32::from_le_bytes(*from)).to_le_bytes();
        }
    }

    /// Compares every element that the collective defines with what it must be.
    ///
    /// # Errors
    /// The first wrong element.
    pub fn verify(&mut self, config: &Config) -> Result<(), WrongValue> {
        let sum = (0..config.ranks)
            .map(|rank| Line::of(config.seed, rank))
            .fold(Line::default(), |sum, line| Line { a: sum.a.wrapping_add(line.a), b: sum.b.wrapping_add(line.b) });
        for (channel, chunk, bytes) in chunks(config, &mut self.bytes) {
            let line = match config.collective {
                Collective::AllReduce => sum,
                Collective::ReduceScatter if chunk == (config.rank + 1) % config.ranks => sum,
                Collective::ReduceScatter => continue,
                Collective::AllGather => Line::of(config.seed, chunk),
                Collective::Stream { .. } if config.collective.receives(config.rank) => {
                    Line::of(config.seed, config.rank - 1)
                }
                Collective::Stream { .. } => continue,
            };
            let first = first_index(config, channel, chunk);
            for (j, word) in bytes.as_chunks::<4>().0.iter().enumerate() {
                let (found, expected) = (u32::from_le_bytes(*word), line.at(first.wrapping_add(j as u32)));
                if found != expected {
                    return Err(WrongValue { channel, chunk, element: j as u32, found, expected });
                }
            }
        }
        Ok(())
    }
}

/// Index of a chunk's first element among all of the buffer's.
fn first_index(config: &Config, channel: u32, chunk: u32) -> u32 {
    (chunk_offset(config, channel, chunk) / 4) as u32
}

/// The chunks with their channel and place in it.
fn chunks<'a>(config: &Config, bytes: &'a mut [u8]) -> impl Iterator<Item = (u32, u32, &'a mut [u8])> {
    let per_channel = config.collective.chunks(config.ranks);
    let each = bytes.chunks_exact_mut(config.chunk_bytes as usize);
    each.enumerate().map(move |(i, chunk)| (i as u32 / per_channel, i as u32 % per_channel, chunk))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn config(collective: Collective, rank: u32) -> Config {
        let ring: Vec<IpAddr> = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|a| a.parse().unwrap()).to_vec();
        Config { collective, chunk_bytes: 40, channels: 2, ..Config::new(1, &ring, rank).unwrap() }
    }

    fn contents(buffer: &Buffer) -> Vec<u8> {
        let mut out = vec![0; 240];
        buffer.read(0, &mut out);
        out
    }

    #[test]
    fn the_sum_of_all_ranks_verifies_and_one_flipped_bit_does_not() {
        let all_reduce = Collective::AllReduce;
        let mut sum = Buffer::new(&config(all_reduce, 0));
        for rank in 1..3 {
            assert!(sum.verify(&config(all_reduce, 0)).is_err());
            sum.write(0, &contents(&Buffer::new(&config(all_reduce, rank))), true);
        }
        assert_eq!(sum.verify(&config(all_reduce, 0)), Ok(()));
        sum.bytes[123] ^= 1;
        let wrong = sum.verify(&config(all_reduce, 0)).unwrap_err();
        assert_eq!((wrong.channel, wrong.chunk, wrong.element), (1, 0, 0));
    }

    #[test]
    fn gathered_chunks_verify() {
        let mut gathered = Buffer::new(&config(Collective::AllGather, 0));
        for rank in 1..3 {
            let theirs = contents(&Buffer::new(&config(Collective::AllGather, rank)));
            for channel in 0..2 {
                let at = chunk_offset(&config(Collective::AllGather, 0), channel, rank);
                gathered.write(at, &theirs[at as usize..at as usize + 40], false);
            }
        }
        assert_eq!(gathered.verify(&config(Collective::AllGather, 0)), Ok(()));
    }

    #[test]
    fn nothing_outside_of_the_buffer_is_read_or_written() {
        let mut buffer = Buffer::new(&config(Collective::AllReduce, 0));
        let before = contents(&buffer);
        buffer.write(236, &[1; 8], false);
        buffer.write(u64::MAX, &[1; 4], true);
        assert_eq!(contents(&buffer), before);
        let mut out = [7; 8];
        buffer.read(1 << 40, &mut out);
        assert_eq!(out, [7; 8]);
    }
}
