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
        let low = shared_bytes.saturating_add(own.pfc.resume_offset_bytes) <= own.threshold_bytes(&self.shared);
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::dataplane::PortConfig;

    fn accounting(buffer_bytes: u64, limits: &[Pfc]) -> IngressAccounting {
        let port = |pfc: &Pfc| PortConfig {
            name: String::new(),
            rate_bps: None,
            buffer_bytes: 0,
            red: None,
            pfc: Some(*pfc),
            fault: None,
        };
        let config = SwitchConfig { buffer_bytes, seed: 1, ports: limits.iter().map(port).collect() };
        IngressAccounting::new(&config).expect("a port has PFC")
    }

    impl IngressAccounting {
        /// All bytes that a port holds.
        fn total_bytes(&self, port: usize) -> u64 {
            self.ports[port].as_ref().map_or(0, |own| own.held_bytes + own.headroom_used_bytes)
        }
    }

    /// Puts 1000-byte packets of port 0 in until it is paused, and takes them out until it is resumed. Returns how many went
    /// in and how many came out.
    fn swing(accounting: &mut IngressAccounting) -> (u32, u32) {
        let (mut packets_in, mut packets_out) = (0, 0);
        while accounting.paused.is_empty() {
            assert_eq!(accounting.admits(0, 1000), Some(true));
            accounting.add(0, 1000);
            packets_in += 1;
        }
        while !accounting.paused.is_empty() {
            accounting.remove(0, 1000);
            packets_out += 1;
        }
        (packets_in, packets_out)
    }

    #[test]
    fn without_pfc_on_any_port_there_is_nothing_to_account_for() {
        let port =
            PortConfig { name: String::new(), rate_bps: None, buffer_bytes: 1, red: None, pfc: None, fault: None };
        let config = SwitchConfig { buffer_bytes: 1, seed: 1, ports: vec![port; 2] };
        assert!(IngressAccounting::new(&config).is_none());
    }

    #[test]
    fn a_static_threshold_pauses_at_xoff_and_resumes_at_xon() {
        let mut accounting = accounting(1_000_000, &[Pfc::fixed(10_000, 6_000, 3_000)]);
        // Up to 10 packets, down to 6; from there up to 10 again.
        assert_eq!(swing(&mut accounting), (10, 4));
        assert_eq!(swing(&mut accounting), (4, 4));
        assert_eq!(accounting.total_bytes(0), 6_000);
    }

    #[test]
    fn after_the_pause_the_headroom_is_all_that_is_left_and_it_is_given_back_first() {
        let mut accounting = accounting(1_000_000, &[Pfc::fixed(9_500, 6_500, 3_000)]);
        for _ in 0..9 {
            accounting.add(0, 1000);
        }
        assert_eq!(accounting.take_changes(), (PortSet(0), PortSet(0)));
        // 9000 are below the threshold; the tenth crosses it and is headroom as a whole, as are two more.
        for _ in 0..3 {
            assert_eq!(accounting.admits(0, 1000), Some(true));
            accounting.add(0, 1000);
        }
        assert_eq!(accounting.take_changes(), (PortSet(1), PortSet(1)));
        assert_eq!(accounting.admits(0, 1000), Some(false));
        assert_eq!(accounting.admits(0, 501), Some(false));
        assert_eq!(accounting.admits(0, 500), Some(true), "there is room for it below the threshold");
        // 3 x 1000 of headroom, then 9000, 8000, 7000 down to 6000.
        for _ in 0..5 {
            accounting.remove(0, 1000);
            assert_eq!(accounting.take_changes(), (PortSet(0), PortSet(0)), "{}", accounting.total_bytes(0));
        }
        accounting.remove(0, 1000);
        assert_eq!(accounting.take_changes(), (PortSet(1), PortSet(0)));
    }

    #[test]
    fn a_dynamic_threshold_is_a_share_of_what_is_left_to_all_ports() {
        // 100000 - 2 x (4096 + 10000) = 71808 to share.
        let mut accounting = accounting(100_000, &[Pfc::dynamic(3, 10_000); 2]);
        // Twelve packets are 7904 shared, below (71808 - 7904) / 8 = 7988. The thirteenth does not fit and is headroom.
        // Out: 12 packets are 7904 and 7904 + 3072 > 7988; 11: 6904 against 8113; 10: 5904 against 8238; 9: 4904 + 3072 =
        // 7976 <= (71808 - 4904) / 8 = 8363.
        assert_eq!(swing(&mut accounting), (13, 4));
        // Up again: 12 packets are below, as before, however often it is done.
        assert_eq!(swing(&mut accounting), (4, 4));
        // Port 1 takes 4000 shared, which leaves (71808 - 8904) / 8 = 7863 as the threshold. 3800 more fit below that, and
        // are above what it is then: (71808 - 12704) / 8 = 7388.
        accounting.add(1, 4096 + 4000);
        assert_eq!(accounting.take_changes(), (PortSet(0), PortSet(0)));
        accounting.add(1, 3800);
        assert_eq!(accounting.shared.used_bytes, 12_704, "none of it is headroom");
        assert_eq!(accounting.take_changes(), (PortSet(2), PortSet(2)));
    }

    #[test]
    fn where_nothing_is_left_to_share_a_port_is_paused_with_a_packet_and_resumed_when_it_holds_its_reserve() {
        let mut accounting = accounting(10_000, &[Pfc::dynamic(0, 20_000)]);
        for _ in 0..6 {
            accounting.add(0, 1000);
        }
        // 4000 are reserve, 2000 headroom.
        assert_eq!(accounting.take_changes(), (PortSet(1), PortSet(1)));
        accounting.remove(0, 1000);
        assert_eq!(accounting.take_changes(), (PortSet(0), PortSet(0)));
        accounting.remove(0, 1000);
        assert_eq!(accounting.take_changes(), (PortSet(1), PortSet(0)));
    }

    #[test]
    fn who_is_paused_and_resumed_before_the_driver_asks_is_told_nothing() {
        let mut accounting = accounting(1_000_000, &[Pfc::fixed(2_000, 1_000, 3_000)]);
        assert_eq!(swing(&mut accounting), (2, 1));
        assert_eq!(accounting.take_changes(), (PortSet(0), PortSet(0)));
    }

    const MAX_BYTES: u64 = 1500;

    proptest! {
        /// With room for a packet between XOFF and XON, both are exact.
        #[test]
        fn a_static_threshold_goes_by_all_bytes_held_and_books_just_these(
            steps in proptest::collection::vec((any::<bool>(), 64..=MAX_BYTES as u32), 1..400)
        ) {
            let (xoff_bytes, xon_bytes) = (12_000, 12_000 - MAX_BYTES);
            let mut accounting = accounting(1_000_000, &[Pfc::fixed(xoff_bytes, xon_bytes, 4_000)]);
            let (mut queue, mut paused) = (VecDeque::new(), false);
            for (is_in, bytes) in steps {
                if !is_in {
                    let Some(bytes) = queue.pop_front() else { continue };
                    accounting.remove(0, bytes);
                } else if accounting.admits(0, bytes) == Some(true) {
                    accounting.add(0, bytes);
                    queue.push_back(bytes);
                }
                let held_bytes: u64 = queue.iter().map(|bytes| u64::from(*bytes)).sum();
                prop_assert_eq!(accounting.total_bytes(0), held_bytes);
                paused = held_bytes >= xoff_bytes || paused && held_bytes > xon_bytes;
                prop_assert_eq!(accounting.paused.contains(0), paused);
                prop_assert!(held_bytes <= xoff_bytes + 4_000);
            }
        }
    }
}
