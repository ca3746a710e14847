//! Priority flow control (IEEE 802.1Qbb), the side that pauses: what the switch holds of each ingress port's data, and
//! whose neighbour is to be paused. The rules are those of the shared buffer in HPCC's ns-3 model (`SwitchMmu`).
//!
//! Owes the traffic manager: booked bytes are the bytes of data packets in the queues, at all times. Being paused is the
//! traffic manager's own part.

use super::config::{Pfc, PfcThreshold, SwitchConfig};
use super::phv::{PortId, PortSet};

/// The bytes that each ingress port holds. Only ports with a [`Pfc`] are accounted for.
#[derive(Debug)]
pub(super) struct IngressAccounting {
    ports: Vec<Option<Ingress>>,
    shared: Shared,
    /// Ports whose neighbours are to be paused now.
    paused: PortSet,
    /// Ports whose neighbours were told so.
    told: PortSet,
}

/// The buffer without reserves and headrooms.
#[derive(Debug)]
struct Shared {
    size_bytes: u64,
    used_bytes: u64,
}

#[derive(Debug)]
struct Ingress {
    pfc: Pfc,
    /// Held as reserve and as shared.
    held_bytes: u64,
    headroom_used_bytes: u64,
}

impl Ingress {
    /// What of `bytes` held is above the reserve.
    fn above_reserve(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.pfc.reserve_bytes)
    }

    fn shared_bytes(&self) -> u64 {
        self.above_reserve(self.held_bytes)
    }

    fn threshold_bytes(&self, shared: &Shared) -> u64 {
        match self.pfc.threshold {
            PfcThreshold::Static { xoff_bytes } => xoff_bytes,
            PfcThreshold::Dynamic { shift } => {
                shared.size_bytes.saturating_sub(shared.used_bytes).checked_shr(shift.into()).unwrap_or(0)
            }
        }
    }
}

impl IngressAccounting {
    /// `None` when no port of `config` has a [`Pfc`].
    pub(super) fn new(config: &SwitchConfig) -> Option<Self> {
        let limits = || config.ports.iter().filter_map(|port| port.pfc);
        limits().next()?;
        let set_aside =
            limits().fold(0, |sum: u64, pfc| sum.saturating_add(pfc.reserve_bytes).saturating_add(pfc.headroom_bytes));
        let ingress = |pfc| Ingress { pfc, held_bytes: 0, headroom_used_bytes: 0 };
        Some(IngressAccounting {
            ports: config.ports.iter().map(|port| port.pfc.map(ingress)).collect(),
            shared: Shared { size_bytes: config.buffer_bytes.saturating_sub(set_aside), used_bytes: 0 },
            paused: PortSet::default(),
            told: PortSet::default(),
        })
    }

    /// Whether the switch may hold `bytes` more of the data of `port`; `None` when the port is not accounted for.
    pub(super) fn admits(&self, port: PortId, bytes: u32) -> Option<bool> {
        let own = self.ports.get(usize::from(port))?.as_ref()?;
        let bytes = u64::from(bytes);
        let fits_headroom = own.headroom_used_bytes + bytes <= own.pfc.headroom_bytes;
        Some(fits_headroom || own.shared_bytes() + bytes <= own.threshold_bytes(&self.shared))
    }

    /// Books a packet that was admitted. One that does not fit below the threshold is headroom as a whole.
    pub(super) fn add(&mut self, port: PortId, bytes: u32) {
        let Some(Some(own)) = self.ports.get_mut(usize::from(port)) else { return };
        let before = own.shared_bytes();
        let after = own.above_reserve(own.held_bytes + u64::from(bytes));
        if after > own.threshold_bytes(&self.shared) {
            own.headroom_used_bytes += u64::from(bytes);
        } else {
            own.held_bytes += u64::from(bytes);
            self.shared.used_bytes += after - before;
        }
        if own.headroom_used_bytes > 0 || own.shared_bytes() >= own.threshold_bytes(&self.shared) {
            self.paused = self.paused.with(port);
        }
    }

    /// Books out a packet that left: headroom first, so that a neighbour is resumed only when all of it is free again.
    pub(super) fn remove(&mut self, port: PortId, bytes: u32) {
        let Some(Some(own)) = self.ports.get_mut(usize::from(port)) else { return };
        let before = own.shared_bytes();
        let from_headroom = own.headroom_used_bytes.min(bytes.into());
        own.headroom_used_bytes -= from_headroom;
        own.held_bytes -= u64::from(bytes) - from_headroom;
        let shared_bytes = own.shared_bytes();
        self.shared.used_bytes -= before - shared_bytes;
        let low = shared_bytes + own.pfc.resume_offset_bytes <= own.threshold_bytes(&self.shared);
        if own.headroom_used_bytes == 0 && (shared_bytes == 0 || low) {
            self.paused = self.paused.without(port);
        }
    }

    /// The ports whose neighbours are to be told something new, and those of them that are to be paused.
    pub(super) fn take_changes(&mut self) -> (PortSet, PortSet) {
        let changed = PortSet(self.paused.0 ^ self.told.0);
        self.told = self.paused;
        (changed, PortSet(changed.0 & self.paused.0))
    }
}
