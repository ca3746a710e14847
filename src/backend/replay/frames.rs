//! Frames on the heap that remember which packet of the capture they are.

use crate::dataplane::Frames;

/// A frame, or a replica of one.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Number of the packet in the capture. What a function emits has the number of the packet that caused it.
    pub number: u64,
    /// Bytes that the capture holds; what follows was filled in.
    pub captured_bytes: usize,
    /// The frame.
    pub bytes: Vec<u8>,
}

/// Makes frames, and keeps those that the switch gave back.
#[derive(Debug, Default)]
pub struct Store {
    /// Number of the packet in hand.
    pub number: u64,
    /// Frames that did not leave, in the order in which they were given back.
    pub freed: Vec<Frame>,
}

impl Frames for Store {
    type Handle = Frame;

    fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        &frame.bytes
    }

    fn bytes_mut<'a>(&'a mut self, frame: &'a mut Frame) -> &'a mut [u8] {
        &mut frame.bytes
    }

    fn resize(&mut self, frame: &mut Frame, len: usize) -> bool {
        frame.bytes.resize(len, 0);
        true
    }

    fn replicate(&mut self, frame: &Frame) -> Option<Frame> {
        Some(frame.clone())
    }

    fn emit(&mut self, bytes: &[u8]) -> Option<Frame> {
        Some(Frame { number: self.number, captured_bytes: bytes.len(), bytes: bytes.to_vec() })
    }

    fn free(&mut self, frame: Frame) {
        self.freed.push(frame);
    }
}
