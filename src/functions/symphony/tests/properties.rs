//! Properties against plain models: what the registers say is what happened.

use proptest::prelude::*;

use super::*;

/// What happens to one transmission of a packet.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Arrives,
    /// Before the switch: it does not see the packet.
    LostUpstream,
    /// Behind the switch: it sees a packet that the receiver does not.
    LostDownstream,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![6 => Just(Fate::Arrives), 1 => Just(Fate::LostUpstream), 1 => Just(Fate::LostDownstream)]
}

/// One collective of one sender, from its first packet to the last acknowledgement.
#[derive(Clone, Debug)]
struct Collective {
    /// Packets of each message.
    messages: Vec<u32>,
    fates: Vec<Fate>,
    /// Packets in flight until the sender learns of a loss.
    window: usize,
}

fn collective() -> impl Strategy<Value = Collective> {
    let messages = proptest::collection::vec(1..6u32, 1..12);
    (messages, proptest::collection::vec(fate(), 0..60), 1..20usize).prop_map(|(messages, fates, window)| Collective {
        messages,
        fates,
        window,
    })
}

impl Collective {
    /// The packets that the switch sees, by index, in order: the sender goes back to what the receiver misses once its
    /// window is out. When there are no more fates, everything arrives.
    fn seen_by_the_switch(&self, packets: usize, first_ever: bool) -> Vec<usize> {
        let mut fates = self.fates.iter().copied();
        let mut seen = Vec::new();
        let mut received = 0; // what the receiver has in order
        while received < packets {
            let window = received..packets.min(received + self.window);
            for i in window {
                let fate = fates.next().unwrap_or(Fate::Arrives);
                // Nobody can know a PSN that was never seen: the very first packet has to come through.
                let upstream = matches!(fate, Fate::LostUpstream) && !(first_ever && seen.is_empty());
                if upstream {
                    continue;
                }
                seen.push(i);
                if matches!(fate, Fate::Arrives) && i == received {
                    received += 1;
                }
            }
        }
        seen
    }
}

proptest! {
    #[test]
    fn steps_are_the_messages_sent_whatever_is_lost(
        collectives in proptest::collection::vec(collective(), 1..4),
        start in prop_oneof![Just(0u32), Just(0xff_fff0u32), 0..0x100_0000u32],
        requests_per_step in 1..4u16,
    ) {
        let job = Job { requests_per_step, packets_per_step: Some(7), steps_per_collective: 9, ..ring(1, 4) };
        let mut bench = Bench::of(job);
        let mut sender = Sender { psn: start, ..Sender::new(0, 1) };
        for (n, collective) in collectives.iter().enumerate() {
            bench.rest();
            let packets: Vec<Phv> = collective.messages.iter().flat_map(|packets| sender.message(*packets, 0)).collect();
            let seen = collective.seen_by_the_switch(packets.len(), n == 0);
            let mut progress = 0;
            let mut expected = 0; // the go-back-N responder's view, unwrapped
            let mut ends = 0;
            for i in &seen {
                let bridged = bench.send(packets[*i]);
                prop_assert_eq!(bridged.step, Step::Data);
                prop_assert!(bridged.progress >= progress, "progress never goes back");
                progress = bridged.progress;
                prop_assert_eq!(bridged.steps_done, ends / u32::from(requests_per_step));
                if *i == expected {
                    expected += 1;
                    ends += u32::from(packets[*i].roce.is_some_and(|r| r.opcode.is_end_with_immediate()));
                }
            }
            prop_assert_eq!(expected, packets.len());
            prop_assert_eq!(ends as usize, collective.messages.len());
            prop_assert_eq!(bench.step(&sender), ends / u32::from(requests_per_step));
        }
        let flow = bench.flow(&sender);
        let messages: usize = collectives.iter().map(|c| c.messages.len()).sum();
        prop_assert_eq!((flow.messages as usize, flow.resyncs), (messages, 0));
    }

    #[test]
    fn psn_steps_are_the_packets_sent_whatever_is_lost(
        collective in collective(),
        start in prop_oneof![Just(0xff_fff0u32), 0..0x100_0000u32],
        packets_per_step in 1..9u32,
    ) {
        let job = Job { step_source: StepSource::Psn, packets_per_step: Some(packets_per_step), ..ring(1, 4) };
        let mut bench = Bench::of(job);
        let mut sender = Sender { psn: start, ..Sender::new(0, 1) };
        let packets: Vec<Phv> = collective.messages.iter().flat_map(|packets| sender.message(*packets, 0)).collect();
        for i in collective.seen_by_the_switch(packets.len(), true) {
            bench.send(packets[i]);
        }
        prop_assert_eq!(bench.step(&sender), packets.len() as u32 / packets_per_step);
    }

    #[test]
    fn the_imm_source_agrees_with_the_message_source(collective in collective(), shift in 0..3u32) {
        let requests_per_step = 1 << shift;
        let of = |step_source| Bench::of(Job { step_source, requests_per_step, ..ring(1, 4) });
        let (mut by_imm, mut by_message) = (of(StepSource::Imm), of(StepSource::Message));
        let mut sender = Sender::new(0, 1);
        let messages = collective.messages.iter().enumerate();
        let packets: Vec<Phv> = messages.flat_map(|(i, packets)| sender.message(*packets, i as u32)).collect();
        for i in collective.seen_by_the_switch(packets.len(), true) {
            prop_assert_eq!(by_imm.send(packets[i]), by_message.send(packets[i]));
        }
    }

    #[test]
    fn the_minimum_register_is_what_a_plain_model_says(
        packets in proptest::collection::vec((0..5u32, 0..3u32, prop::bool::weighted(0.1), prop::bool::weighted(0.1)), 1..200),
        base in prop_oneof![Just(0u32), Just(u32::MAX - 1000), any::<u32>()],
    ) {
        let mut cell = MinimumCell::default();
        let mut flows = [0u32; 5]; // true progress of each flow, from 0
        let mut laggard: Option<(u32, i64)> = None; // whose and where, unwrapped
        for (flow, step, new_epoch, last) in packets {
            flows[flow as usize] += step * 100;
            let progress = i64::from(flows[flow as usize]);
            let stale = new_epoch || laggard.is_none_or(|(owner, min)| owner == flow || progress < min);
            let expected = match laggard {
                Some((_, min)) if !stale => progress - min,
                _ => {
                    laggard = (!last).then_some((flow, progress));
                    0
                }
            };
            let wrapped = base.wrapping_add(progress as u32);
            prop_assert_eq!(i64::from(minimum_action(&mut cell, flow, wrapped, new_epoch, last)), expected);
        }
    }

    #[test]
    fn no_sequence_of_packets_stops_it(
        packets in proptest::collection::vec((any::<u8>(), any::<u32>(), any::<u32>(), 0..4u8, 0..100_000_000u64), 0..300),
        source in prop_oneof![Just(StepSource::Message), Just(StepSource::Psn), Just(StepSource::Imm), Just(StepSource::UdpSport)],
        policy in prop_oneof![Just(Policy::OwnerMin), Just(Policy::Gold)],
    ) {
        let job = Job { step_source: source, packets_per_step: Some(3), steps_per_collective: 2, ..ring(1, 4) };
        let mut bench = Bench::new(Parameters { policy, ..Parameters::reference() }, &[job]);
        for (opcode, psn, immediate, src, pause) in packets {
            bench.now += pause;
            let sender = Sender { sport: immediate as u16, ..Sender::new(src, (src + 1) % 4) };
            let opcode = if opcode < 200 { Opcode(opcode % 0x30) } else { Opcode(opcode) };
            let mut phv = sender.at(psn & 0xff_ffff, opcode);
            if let Some(roce) = &mut phv.roce {
                (roce.immediate, roce.dma_len) = (immediate, immediate);
            }
            let bridged = bench.send(phv);
            prop_assert!(bridged.tracked && bridged.lead >= 0);
            prop_assert!(bridged.step == Step::None || opcode.is_request_data());
        }
        let _ = (bench.symphony.jobs(), bench.symphony.flows(), bench.symphony.age(bench.now));
    }
}
