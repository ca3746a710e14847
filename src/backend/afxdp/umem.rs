//! The memory of all ports, and the account of who owns each frame of it.
//!
//! Owes its neighbours: a frame is at any time in exactly one [`Place`]; every move between places goes through [`Pool`].
//! A [`Frame`] is the right to touch one frame's bytes; there is one at most for each, and only while the frame is in
//! the switch.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ptr;

use xsk_rs::config::{FrameSize, QueueSize, UmemConfig};
use xsk_rs::umem::frame::FrameDesc;
use xsk_rs::{CompQueue, FillQueue, RxQueue, TxQueue, Umem};

use super::Error;
use crate::dataplane::{Frames, PortId};

/// Bytes of a UMEM chunk. The kernel wants a power of two, at most a page.
pub const CHUNK_BYTES: usize = 4096;
/// Room that we keep in front of what the kernel keeps. Packet metadata needs none of it, but the kernel puts metadata
/// right before the data and this leaves 32-byte alignment as it is.
const FRAME_HEADROOM: u32 = 64;
/// What the kernel keeps before the data for XDP (`XDP_PACKET_HEADROOM`); the metadata arrives at its end.
const XDP_HEADROOM: usize = 256;
/// The longest frame that a chunk takes, Ethernet header included, FCS not.
pub const MAX_FRAME_BYTES: usize = CHUNK_BYTES - XDP_HEADROOM - FRAME_HEADROOM as usize;
/// Descriptors of each of a port's four rings.
pub const RING_FRAMES: u32 = 2048;

/// Frames that move between the switch and a ring at once.
pub const BATCH: usize = 64;

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the pool.
    Free,
    /// With the kernel to receive into: in a port's fill ring, or filled and in its receive ring.
    Receive(PortId),
    /// In the switch: being processed, or queued.
    Switch,
    /// With the kernel to send: in a port's transmit or completion ring, or in flight between them.
    Transmit(PortId),
}

/// Frames by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// In the pool.
    pub free: usize,
    /// In the switch.
    pub switch: usize,
    /// With the kernel to receive into, by port.
    pub receive: BTreeMap<PortId, usize>,
    /// With the kernel to send, by port.
    pub transmit: BTreeMap<PortId, usize>,
}

/// The right to one frame of the switch. Give it back by [`Frames::free`] or send it; one that is merely forgotten is a
/// leak, which [`Pool::census`] shows.
#[derive(Debug)]
#[must_use = "a forgotten frame is lost to the pool"]
pub struct Frame(FrameDesc);

/// One UMEM and the account of its frames.
pub struct Pool {
    umem: Umem,
    /// Each chunk's descriptor as the UMEM was made: no length, data right behind the headrooms.
    blank: Box<[FrameDesc]>,
    places: Box<[Place]>,
    free: Vec<u32>,
    in_switch: usize,
    /// First byte of the UMEM.
    base: *mut u8,
    batch: Box<[FrameDesc]>,
}

// SAFETY: `base` points into the mapping that `umem` keeps alive; nothing of it is bound to a thread.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool of `frames` frames.
    ///
    /// # Errors
    /// When the kernel refuses the memory.
    pub fn new(frames: NonZeroU32) -> Result<Self, Error> {
        let ring = QueueSize::new(RING_FRAMES).map_err(Error::umem)?;
        let config = UmemConfig::builder()
            .frame_size(FrameSize::new(CHUNK_BYTES as u32).map_err(Error::umem)?)
            .frame_headroom(FRAME_HEADROOM)
            .fill_queue_size(ring)
            .comp_queue_size(ring)
            .build()
            .map_err(Error::umem)?;
        let (umem, blank) = Umem::new(config, frames, false).map_err(Error::umem)?;
        let first = blank[0];
        // SAFETY: nobody else knows of this frame yet, neither we nor the kernel.
        let data = unsafe { umem.data(&first) };
        let base = ptr::with_exposed_provenance_mut(data.contents().as_ptr().expose_provenance() - first.addr());
        Ok(Pool {
            umem,
            places: vec![Place::Free; blank.len()].into(),
            free: (0..blank.len() as u32).rev().collect(),
            in_switch: 0,
            base,
            batch: vec![FrameDesc::default(); BATCH].into(),
            blank: blank.into(),
        })
    }

    /// The UMEM, for making sockets on it.
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Frames that are free.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Frames in the switch, to hold against what the switch says it has queued.
    pub fn in_switch(&self) -> usize {
        self.in_switch
    }

    /// Where all frames are. Looks at every one.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for place in &self.places {
            *match *place {
                Place::Free => &mut census.free,
                Place::Switch => &mut census.switch,
                Place::Receive(port) => census.receive.entry(port).or_default(),
                Place::Transmit(port) => census.transmit.entry(port).or_default(),
            } += 1;
        }
        census
    }

    /// Gives the kernel free frames to receive into until the port's fill ring or the pool ends. Returns how many.
    pub fn refill(&mut self, port: PortId, fill: &mut FillQueue) -> usize {
        let room = fill.nb_free_exact() as usize;
        let mut total = 0;
        while total < room {
            let count = (room - total).min(self.free.len()).min(self.batch.len());
            if count == 0 {
                break;
            }
            let first = self.free.len() - count;
            for (desc, frame) in self.batch.iter_mut().zip(self.free.drain(first..)) {
                *desc = self.blank[frame as usize];
                self.places[frame as usize] = Place::Receive(port);
            }
            // SAFETY: the frames are of this UMEM and were free, so nobody holds a `Frame` of theirs.
            let produced = unsafe { fill.produce(&self.batch[..count]) };
            debug_assert_eq!(produced, count, "the ring had room");
            for desc in &self.batch[produced..count] {
                self.places[desc.addr() / CHUNK_BYTES] = Place::Free;
                self.free.push((desc.addr() / CHUNK_BYTES) as u32);
            }
            total += produced;
        }
        total
    }

    /// Takes at most `into.capacity()` received frames, in order.
    pub fn receive(&mut self, port: PortId, rx: &mut RxQueue, into: &mut Vec<Frame>) {
        let room = (into.capacity() - into.len()).min(self.batch.len());
        // SAFETY: the descriptors come back from the fill ring of this UMEM.
        let count = unsafe { rx.consume(&mut self.batch[..room]) };
        for desc in &self.batch[..count] {
            self.places[desc.addr() / CHUNK_BYTES].pass(Place::Receive(port), Place::Switch);
            self.in_switch += 1;
            into.push(Frame(*desc));
        }
    }

    /// Hands frames to the kernel to send. At most [`BATCH`], and no more than the ring has room for; frames beyond that go
    /// back to the pool, unsent.
    pub fn transmit(&mut self, port: PortId, tx: &mut TxQueue, frames: &mut Vec<Frame>) {
        let count = frames.len().min(tx.nb_free_exact() as usize).min(BATCH);
        debug_assert_eq!(count, frames.len(), "the caller asks for room first");
        for (desc, frame) in self.batch.iter_mut().zip(frames.iter()) {
            *desc = frame.0;
        }
        // SAFETY: the frames are of this UMEM and we own their `Frame`s, which end here.
        let sent = unsafe { tx.produce(&self.batch[..count]) };
        for (at, frame) in frames.drain(..).enumerate() {
            let to = if at < sent { Place::Transmit(port) } else { Place::Free };
            self.leave(frame, to);
        }
    }

    /// Takes back what the kernel has sent. Returns how many.
    pub fn complete(&mut self, port: PortId, comp: &mut CompQueue) -> usize {
        let mut total = 0;
        loop {
            // SAFETY: the descriptors come from the transmit ring of a socket of this UMEM.
            let count = unsafe { comp.consume(&mut self.batch) };
            for at in 0..count {
                let chunk = self.batch[at].addr() / CHUNK_BYTES;
                self.places[chunk].pass(Place::Transmit(port), Place::Free);
                self.free.push(chunk as u32);
            }
            total += count;
            if count < self.batch.len() {
                return total;
            }
        }
    }

    /// Takes back everything that the kernel had of a port. Only for a port whose socket is closed: then the kernel has
    /// let go of its rings. Returns how many frames were still to be sent, as far as is known.
    pub fn reclaim(&mut self, port: PortId) -> usize {
        let mut transmit = 0;
        for (chunk, place) in self.places.iter_mut().enumerate() {
            if matches!(*place, Place::Receive(p) | Place::Transmit(p) if p == port) {
                transmit += usize::from(*place == Place::Transmit(port));
                *place = Place::Free;
                self.free.push(chunk as u32);
            }
        }
        transmit
    }

    /// The `N` bytes before the frame's data, where the kernel puts XDP metadata. Whatever was there before when the XDP
    /// program made none.
    pub fn metadata<const N: usize>(&self, frame: &Frame) -> [u8; N] {
        const { assert!(N <= XDP_HEADROOM) }
        let mut bytes = [0; N];
        if frame.0.addr() % CHUNK_BYTES >= N {
            // SAFETY: the N bytes before `addr` are in the same chunk, which is ours while we see its `Frame`.
            unsafe { ptr::copy_nonoverlapping(self.base.add(frame.0.addr() - N), bytes.as_mut_ptr(), N) };
        }
        bytes
    }

    /// A free frame, with room for `MAX_FRAME_BYTES`.
    fn take(&mut self) -> Option<Frame> {
        let chunk = self.free.pop()? as usize;
        self.places[chunk].pass(Place::Free, Place::Switch);
        self.in_switch += 1;
        Some(Frame(self.blank[chunk]))
    }

    /// A frame leaves the switch.
    fn leave(&mut self, frame: Frame, to: Place) {
        let chunk = frame.0.addr() / CHUNK_BYTES;
        self.places[chunk].pass(Place::Switch, to);
        self.in_switch -= 1;
        if to == Place::Free {
            self.free.push(chunk as u32);
        }
    }

    /// Sets a frame's length and gives its bytes.
    fn set_len<'a>(&'a mut self, frame: &'a mut Frame, bytes: usize) -> &'a mut [u8] {
        assert!(bytes <= MAX_FRAME_BYTES);
        // SAFETY: `&mut Frame` is the only right to this frame's bytes.
        let mut data = unsafe { self.umem.data_mut(&mut frame.0) };
        data.cursor().set_pos(bytes);
        self.bytes_mut(frame)
    }
}

impl Frames for Pool {
    type Handle = Frame;

    fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        // SAFETY: `&Frame` is a shared right to this frame's bytes, which the kernel does not touch meanwhile.
        unsafe { self.umem.data(&frame.0) }.contents()
    }

    fn bytes_mut<'a>(&'a mut self, frame: &'a mut Frame) -> &'a mut [u8] {
        let (addr, len) = (frame.0.addr(), frame.0.lengths().data());
        debug_assert!(addr % CHUNK_BYTES + len <= CHUNK_BYTES);
        // SAFETY: `addr` is inside the mapping.
        let start = unsafe { self.base.add(addr) };
        // SAFETY: the descriptor came from the kernel or from `set_len`, so it lies in one chunk; `&mut Frame` is the only
        // right to its bytes.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    fn resize(&mut self, frame: &mut Frame, len: usize) -> bool {
        let fits = len <= MAX_FRAME_BYTES && frame.0.addr() % CHUNK_BYTES + len <= CHUNK_BYTES;
        if fits {
            self.set_len(frame, len);
        }
        fits
    }

    fn replicate(&mut self, frame: &Frame) -> Option<Frame> {
        let mut copy = self.take()?;
        let (from, len) = (frame.0.addr(), frame.0.lengths().data());
        let to = self.set_len(&mut copy, len).as_mut_ptr();
        // SAFETY: two chunks of the UMEM, `len` bytes of each are data; we hold both rights.
        unsafe { ptr::copy_nonoverlapping(self.base.add(from), to, len) };
        Some(copy)
    }

    fn emit(&mut self, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() > MAX_FRAME_BYTES {
            return None;
        }
        let mut frame = self.take()?;
        self.set_len(&mut frame, bytes.len()).copy_from_slice(bytes);
        Some(frame)
    }

    fn free(&mut self, frame: Frame) {
        self.leave(frame, Place::Free);
    }
}

impl Place {
    /// Moves a frame on. That it was where we thought is the kernel's promise; a debug build checks it.
    fn pass(&mut self, from: Place, to: Place) {
        debug_assert_eq!(*self, from, "a frame on its way to {to:?}");
        *self = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(frames: u32) -> Pool {
        Pool::new(NonZeroU32::new(frames).unwrap()).unwrap()
    }

    #[test]
    fn a_replica_has_the_same_bytes_in_another_frame() {
        let mut pool = pool(4);
        let mut frame = pool.emit(&[7; 60]).unwrap();
        let copy = pool.replicate(&frame).unwrap();
        pool.bytes_mut(&mut frame)[0] = 8;
        assert_eq!(pool.bytes(&copy), [7; 60]);
        assert_eq!(pool.bytes(&frame)[..2], [8, 7]);
        assert_eq!(pool.in_switch(), 2);
        pool.free(frame);
        pool.free(copy);
        assert_eq!(pool.census(), Census { free: 4, ..Census::default() });
    }

    #[test]
    fn an_empty_pool_and_an_oversize_frame_give_none_and_leak_nothing() {
        let mut pool = pool(1);
        assert!(pool.emit(&[0; MAX_FRAME_BYTES + 1]).is_none());
        let frame = pool.emit(&[0; MAX_FRAME_BYTES]).unwrap();
        assert!(pool.replicate(&frame).is_none());
        assert!(pool.emit(&[1]).is_none());
        pool.free(frame);
        assert_eq!(pool.available(), 1);
    }

    #[test]
    fn metadata_is_what_lies_right_before_the_data() {
        let mut pool = pool(2);
        let frame = pool.emit(&[1, 2, 3]).unwrap();
        assert_eq!(frame.0.addr() % CHUNK_BYTES, CHUNK_BYTES - MAX_FRAME_BYTES);
        // SAFETY: the chunk is ours.
        unsafe { ptr::write_bytes(pool.base.add(frame.0.addr() - 32), 0xab, 32) };
        assert_eq!(pool.metadata::<32>(&frame), [0xab; 32]);
        pool.free(frame);
    }
}
