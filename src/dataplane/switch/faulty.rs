//! The switch behind faulty links ([`Fault`](super::super::Fault)): what it loses, doubles, holds back and corrupts.

use super::*;
use crate::dataplane::fault::{Fate, Held, Way};

impl<F: Function, H> Switch<F, H> {
    /// When the next packet that a faulty link holds back goes on: [`Switch::release`] from then on does something. `None`
    /// when nothing is held back.
    #[inline]
    pub fn next_release(&self) -> Option<Nanos> {
        self.links.as_ref()?.next_release()
    }

    /// Lets go on at `now` what links have held back until then, into the pipeline or into a queue. As with packets put in,
    /// what is due is taken out before. Returns whether there was any.
    #[inline]
    pub fn release<T: Tracer>(&mut self, now: Nanos, frames: &mut impl Frames<Handle = H>, trace: &mut T) -> bool {
        self.links.is_some() && self.release_held(now, frames, trace)
    }

    #[cold]
    fn release_held<T: Tracer>(&mut self, now: Nanos, frames: &mut impl Frames<Handle = H>, trace: &mut T) -> bool {
        let mut any = false;
        while let Some(held) = self.links.as_mut().and_then(|links| links.release(now)) {
            let Held { way, mut phv, frame, .. } = held;
            self.counters.conservation.queued -= 1;
            any = true;
            match way {
                Way::Out(port) => self.put(now, port, &phv, frame, frames, trace),
                Way::In(_) => {
                    phv.received_at = now;
                    let Some(frame) = self.come_in(&mut phv, frame, frames, trace) else { continue };
                    self.run_ingress(now, &mut phv, frame, frames, trace);
                }
            }
        }
        any
    }

    /// A packet on its way through a link. Given back if it goes on at once; a second one comes behind it, as if
    /// held back.
    #[cold]
    pub(super) fn cross<T: Tracer>(
        &mut self,
        way: Way,
        now: Nanos,
        phv: &Phv,
        frame: H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) -> Option<H> {
        let links = self.links.as_mut()?;
        let Fate::Kept { delay_ns, twice } = links.fate(way) else {
            self.drop(frame, DropReason::FaultLoss, frames, trace);
            return None;
        };
        let at = now.saturating_add(delay_ns);
        let copy = twice.then(|| frames.replicate(&frame));
        let mut hold = |frame| {
            self.counters.conservation.queued += 1;
            links.hold(at, way, phv, frame);
        };
        let frame = if delay_ns > 0 {
            hold(frame);
            None
        } else {
            Some(frame)
        };
        if let Some(copy) = copy {
            self.counters.conservation.replicas += 1;
            match copy {
                Some(copy) => hold(copy),
                None => self.count_drop(DropReason::NoFrame, trace),
            }
        }
        frame
    }

    /// The end of the way in: corrupted packets are parsed anew. Given back if it goes on.
    #[cold]
    pub(super) fn come_in<T: Tracer>(
        &mut self,
        phv: &mut Phv,
        mut frame: H,
        frames: &mut impl Frames<Handle = H>,
        trace: &mut T,
    ) -> Option<H> {
        let parsed = match self.corrupt(Way::In(phv.ingress_port), phv.frame_bytes, &mut frame, frames) {
            Ok(false) => Ok(()),
            Ok(true) => {
                // What the driver knows of the packet it knows from before.
                let Phv { ingress_port, received_at, bridged, .. } = *phv;
                *phv = Phv { ingress_port, received_at, bridged, ..Phv::default() };
                parse_into(frames.bytes(&frame), phv)
            }
            Err(reason) => Err(reason),
        };
        match parsed {
            Ok(()) => Some(frame),
            Err(reason) => {
                self.drop(frame, reason, frames, trace);
                None
            }
        }
    }

    /// Flips a bit of the frame, if the link does so; says whether it did.
    ///
    /// # Errors
    /// Where packets travel as parsed headers there is nothing to flip, and the packet is lost: nobody would take it (FCS,
    /// ICRC).
    #[cold]
    pub(super) fn corrupt(
        &mut self,
        way: Way,
        frame_bytes: u32,
        frame: &mut H,
        frames: &mut impl Frames<Handle = H>,
    ) -> Result<bool, DropReason> {
        let Some(bit) = self.links.as_mut().and_then(|links| links.corrupted_bit(way, frame_bytes)) else {
            return Ok(false);
        };
        let byte = frames.bytes_mut(frame).get_mut((bit / 8) as usize).ok_or(DropReason::FaultLoss)?;
        *byte ^= 1 << (bit % 8);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataplane::{Direction, Fault, HeadersOnly, HeapFrames, NoTrace, PortConfig};

    /// Sends everything to port 0, after noting its destination.
    #[derive(Default)]
    struct Witness(Vec<[u8; 6]>);

    impl Function for Witness {
        fn ingress<T: Tracer>(&mut self, _: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
            self.0.push(phv.eth_dst);
            Verdict::Forward(0)
        }
    }

    fn config(fault: Fault) -> SwitchConfig {
        let port = PortConfig {
            name: String::new(),
            rate_bps: Some(8_000_000_000),
            buffer_bytes: 1_000_000,
            red: None,
            pfc: None,
            fault: Some(fault),
        };
        SwitchConfig { buffer_bytes: 1_000_000, seed: 3, ports: vec![port] }
    }

    fn frame(number: u8) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, number, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &[0; 86]].concat()
    }

    /// Last byte of a packet's destination, and when it left.
    type Sent = (u8, Nanos);

    /// Puts 100 frames in, one each microsecond, and returns what left.
    fn run(fault: Fault) -> (Vec<Sent>, Switch<Witness, Vec<u8>>) {
        let mut switch = Switch::new(&config(fault), Witness::default());
        let (mut frames, mut sent) = (HeapFrames, Vec::new());
        for now in (0..200_000).step_by(100) {
            while let Some(departure) = switch.dequeue(0, now, &mut frames, &mut NoTrace) {
                sent.push((departure.frame[5], departure.at));
            }
            switch.release(now, &mut frames, &mut NoTrace);
            if now < 100_000 && now % 1000 == 0 {
                switch.receive(0, now, frame((now / 1000) as u8), &mut frames, &mut NoTrace);
            }
            assert!(switch.counters().conservation.holds());
        }
        assert_eq!(switch.counters().conservation.queued, 0);
        assert_eq!(switch.next_release(), None);
        (sent, switch)
    }

    #[test]
    fn a_delay_moves_every_packet_by_as_much_and_both_ways_add_up() {
        for (direction, delay_ns) in [(Direction::In, 5_000), (Direction::Out, 5_000), (Direction::Both, 10_000)] {
            let (sent, _) = run(Fault { direction, delay_ns: 5_000, ..Fault::default() });
            assert_eq!(sent, (0..100).map(|n| (n, Nanos::from(n) * 1000 + delay_ns)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn jitter_and_reordering_keep_every_packet() {
        for fault in [
            Fault { delay_ns: 5_000, delay_jitter_ns: 5_000, ..Fault::default() },
            Fault { delay_ns: 5_000, reorder: 0.2, ..Fault::default() },
        ] {
            let (sent, switch) = run(fault);
            let mut numbers: Vec<_> = sent.iter().map(|(number, _)| *number).collect();
            assert!(!numbers.is_sorted(), "some overtake others");
            numbers.sort_unstable();
            assert_eq!(numbers, (0..100).collect::<Vec<_>>());
            assert_eq!(switch.counters().conservation.dropped, 0);
        }
    }

    #[test]
    fn losses_are_drops_and_duplicates_are_replicas_and_both_repeat_with_the_seed() {
        let fault = Fault { direction: Direction::Out, loss: 0.2, duplicate: 0.3, ..Fault::default() };
        let (sent, switch) = run(fault);
        let counters = switch.counters();
        let law = counters.conservation;
        assert_eq!(counters.drops.get(DropReason::FaultLoss), law.dropped);
        assert!((5..40).contains(&law.dropped) && (5..50).contains(&law.replicas), "{law:?}");
        assert_eq!(sent.len() as u64, 100 - law.dropped + law.replicas);
        assert_eq!(run(fault).0, sent);
    }

    #[test]
    fn a_copy_that_there_is_no_frame_for_is_dropped_for_that_and_the_packet_is_kept() {
        struct Full;
        impl Frames for Full {
            type Handle = ();
            fn bytes<'a>(&'a self, _: &'a ()) -> &'a [u8] {
                &[]
            }
            fn bytes_mut<'a>(&'a mut self, _: &'a mut ()) -> &'a mut [u8] {
                &mut []
            }
            fn replicate(&mut self, _: &()) -> Option<()> {
                None
            }
            fn emit(&mut self, _: &[u8]) -> Option<()> {
                None
            }
            fn free(&mut self, _: ()) {}
        }
        let fault = Fault { direction: Direction::In, duplicate: 1.0, ..Fault::default() };
        let mut switch = Switch::new(&config(fault), Witness::default());
        switch.ingress(0, Phv::default(), (), &mut Full, &mut NoTrace);
        let law = switch.counters().conservation;
        assert!(law.holds());
        assert_eq!((law.queued, switch.counters().drops.get(DropReason::NoFrame)), (1, 1));
    }

    /// Bits in which two frames differ.
    fn flipped(a: &[u8], b: &[u8]) -> u32 {
        a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
    }

    #[test]
    fn a_packet_corrupted_on_its_way_in_is_seen_so_by_the_stages() {
        let corrupt = Fault { direction: Direction::In, corrupt: 1.0, ..Fault::default() };
        let mut switch = Switch::new(&config(corrupt), Witness::default());
        let mut frames = HeapFrames;
        for number in 0..200u64 {
            switch.receive(0, number * 1000, frame(7), &mut frames, &mut NoTrace);
            let out = switch.dequeue(0, number * 1000, &mut frames, &mut NoTrace).map(|d| d.frame).unwrap_or_default();
            assert_eq!(flipped(&out, &frame(7)), 1);
            assert_eq!(switch.functions().0.last(), out.first_chunk());
        }
        assert!(switch.functions().0.iter().any(|mac| *mac != [2, 0, 0, 0, 0, 7]), "a MAC is 6 of 100 bytes");
    }

    #[test]
    fn a_packet_corrupted_on_its_way_out_was_whole_in_the_stages() {
        let corrupt = Fault { direction: Direction::Out, corrupt: 1.0, ..Fault::default() };
        let mut switch = Switch::new(&config(corrupt), Witness::default());
        let mut frames = HeapFrames;
        for number in 0..200u64 {
            switch.receive(0, number * 1000, frame(7), &mut frames, &mut NoTrace);
            let out = switch.dequeue(0, number * 1000, &mut frames, &mut NoTrace).map(|d| d.frame).unwrap_or_default();
            assert_eq!(flipped(&out, &frame(7)), 1);
        }
        assert!(switch.functions().0.iter().all(|mac| *mac == [2, 0, 0, 0, 0, 7]));
    }

    #[test]
    fn where_there_are_no_bytes_corruption_is_a_loss() {
        for direction in [Direction::In, Direction::Out] {
            let mut switch =
                Switch::new(&config(Fault { direction, corrupt: 1.0, ..Fault::default() }), Witness::default());
            let mut frames = HeadersOnly::<()>::default();
            switch.ingress(0, Phv { frame_bytes: 100, ..Phv::default() }, (), &mut frames, &mut NoTrace);
            assert!(switch.dequeue(0, 1000, &mut frames, &mut NoTrace).is_none());
            assert!(switch.counters().conservation.holds());
            assert_eq!(switch.counters().drops.get(DropReason::FaultLoss), 1, "{direction:?}");
        }
    }
}
