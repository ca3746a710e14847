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
