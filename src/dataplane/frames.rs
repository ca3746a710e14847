//! Frames as the switch sees them: handles into memory that a driver owns.

/// A driver's store of frames. The switch moves handles and never copies bytes, but for replicas.
///
/// Live, a handle is a UMEM descriptor; in replay a `Vec<u8>`; in the simulator there are no bytes at all.
pub trait Frames {
    /// The handle. Whoever holds it owns the frame: it is either transmitted or given to [`Frames::free`].
    type Handle;

    /// The frame's bytes from the Ethernet header on. Empty where packets travel as parsed headers.
    fn bytes<'a>(&'a self, frame: &'a Self::Handle) -> &'a [u8];

    /// The same, to rewrite headers in place.
    fn bytes_mut<'a>(&'a mut self, frame: &'a mut Self::Handle) -> &'a mut [u8];

    /// Makes the frame `len` bytes long, the new ones of any value; `false`, and nothing done, where it can't be.
    fn resize(&mut self, frame: &mut Self::Handle, len: usize) -> bool {
        let _ = (frame, len);
        false
    }

    /// A second frame with the same bytes, or `None` when no frame is free.
    fn replicate(&mut self, frame: &Self::Handle) -> Option<Self::Handle>;

    /// A new frame that holds `bytes`, or `None` when no frame is free or it does not fit.
    fn emit(&mut self, bytes: &[u8]) -> Option<Self::Handle>;

    /// Takes a frame back that leaves the switch in no other way.
    fn free(&mut self, frame: Self::Handle);
}

/// The bytes of the packet in hand, whatever store they are in.
pub trait FrameBytes {
    /// From the Ethernet header on. Empty where packets travel as parsed headers.
    fn bytes(&self) -> &[u8];

    /// The same, to rewrite.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// As [`Frames::resize`].
    fn resize(&mut self, len: usize) -> bool;
}

/// A frame in its store.
pub(super) struct InHand<'a, S: Frames> {
    pub(super) store: &'a mut S,
    pub(super) frame: &'a mut S::Handle,
}

impl<S: Frames> FrameBytes for InHand<'_, S> {
    fn bytes(&self) -> &[u8] {
        self.store.bytes(self.frame)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.store.bytes_mut(self.frame)
    }

    fn resize(&mut self, len: usize) -> bool {
        self.store.resize(self.frame, len)
    }
}

/// A packet that travels as parsed headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBytes;

impl FrameBytes for NoBytes {
    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut []
    }

    fn resize(&mut self, _: usize) -> bool {
        false
    }
}

/// Frames on the heap, one `Vec` each: replay, tests, benches. Never runs out; replicas and emissions allocate.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapFrames;

impl Frames for HeapFrames {
    type Handle = Vec<u8>;

    fn bytes<'a>(&'a self, frame: &'a Vec<u8>) -> &'a [u8] {
        frame
    }

    fn bytes_mut<'a>(&'a mut self, frame: &'a mut Vec<u8>) -> &'a mut [u8] {
        frame
    }

    fn resize(&mut self, frame: &mut Vec<u8>, len: usize) -> bool {
        frame.resize(len, 0);
        true
    }

    fn replicate(&mut self, frame: &Vec<u8>) -> Option<Vec<u8>> {
        Some(frame.clone())
    }

    fn emit(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }

    fn free(&mut self, _: Vec<u8>) {}
}

/// No frames at all: packets travel as parsed headers, with a `T` of the driver's for company (`()` for none).
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadersOnly<T>(std::marker::PhantomData<T>);

impl<T: Clone + Default> Frames for HeadersOnly<T> {
    type Handle = T;

    fn bytes<'a>(&'a self, _: &'a T) -> &'a [u8] {
        &[]
    }

    fn bytes_mut<'a>(&'a mut self, _: &'a mut T) -> &'a mut [u8] {
        &mut []
    }

    fn replicate(&mut self, frame: &T) -> Option<T> {
        Some(frame.clone())
    }

    fn emit(&mut self, _: &[u8]) -> Option<T> {
        Some(T::default())
    }

    fn free(&mut self, _: T) {}
}
