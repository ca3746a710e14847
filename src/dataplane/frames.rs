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

    /// A second frame with the same bytes, or `None` when no frame is free.
    fn replicate(&mut self, frame: &Self::Handle) -> Option<Self::Handle>;

    /// A new frame that holds `bytes`, or `None` when no frame is free or it does not fit.
    fn emit(&mut self, bytes: &[u8]) -> Option<Self::Handle>;

    /// Takes a frame back that leaves the switch in no other way.
    fn free(&mut self, frame: Self::Handle);
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
