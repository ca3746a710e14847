//! Ring jobs over a modelled network in virtual time: whatever it loses, doubles, reorders or marks, the values come out
//! right, and where it does nothing of the sort the time is the one that arithmetic gives.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;

use proptest::prelude::*;
use symphony::roce::dcqcn::Parameters;
use symphony::roce::{Collective, Config, Endpoint, Failure, Immediate, Outcome, SourcePort};
use symphony::wire::Opcode;
use symphony::wire::roce::Repr;

const LATENCY_NS: u64 = 10_000;

/// What the network does to packets, each with its probability in 1/1000.
#[derive(Clone, Copy, Debug, Default)]
struct Mischief {
    lose: u64,
    double: u64,
    delay: u64,
    mark: u64,
}

struct Packet {
    repr: Repr,
    payload: Vec<u8>,
    ce: bool,
}

struct Network {
    endpoints: Vec<Endpoint>,
    packets: Vec<Option<Packet>>,
    arrivals: BinaryHeap<Reverse<(u64, usize)>>,
    mischief: Mischief,
    random: u64,
    now: u64,
    lost: u64,
    opcodes: std::collections::BTreeMap<u8, u64>,
    sports: std::collections::BTreeSet<u16>,
    buffer: Vec<u8>,
}

fn address(rank: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, rank as u8 + 1])
}

fn ring(ranks: usize) -> Vec<IpAddr> {
    (0..ranks).map(address).collect()
}

fn jobs(ranks: usize, change: impl Fn(&mut Config)) -> Vec<Config> {
    (0..ranks)
        .map(|rank| {
            let mut config = Config::new(1, &ring(ranks), rank as u32).unwrap();
            change(&mut config);
            config
        })
        .collect()
}

impl Network {
    fn new(configs: Vec<Config>, mischief: Mischief, seed: u64) -> Self {
        Network {
            endpoints: configs.into_iter().map(|config| Endpoint::new(config).unwrap()).collect(),
            packets: Vec::new(),
            arrivals: BinaryHeap::new(),
            mischief,
            random: seed,
            now: 0,
            lost: 0,
            opcodes: Default::default(),
            sports: Default::default(),
            buffer: vec![0; 4096],
        }
    }

    /// True with a probability of `per_mille`/1000 (splitmix64).
    fn chance(&mut self, per_mille: u64) -> bool {
        self.draw() % 1000 < per_mille
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn deliver_later(&mut self, repr: Repr, payload: Vec<u8>, line_rate_bps: u64) {
        let ce = repr.tos & 3 == 2 && repr.opcode.is_request_data() && self.chance(self.mischief.mark);
        let serialisation = repr.frame_len() as u64 * 8_000_000_000 / line_rate_bps;
        let extra = if self.chance(self.mischief.delay) { self.draw() % 400_000 } else { 0 };
        self.arrivals.push(Reverse((self.now + serialisation + LATENCY_NS + extra, self.packets.len())));
        self.packets.push(Some(Packet { repr, payload, ce }));
    }

    /// Runs until every endpoint has failed or is finished and idle, or to `limit_ns`.
    fn run(&mut self, limit_ns: u64) {
        while self.now < limit_ns {
            for i in 0..self.endpoints.len() {
                while let Some(transmit) = self.endpoints[i].poll_transmit(self.now) {
                    let repr = transmit.repr;
                    let len = if self.endpoints[i].config().data { repr.payload_len } else { 0 };
                    self.endpoints[i].read_payload(transmit.data, &mut self.buffer[..len]);
                    let payload = self.buffer[..len].to_vec();
                    *self.opcodes.entry(repr.opcode.0).or_default() += 1;
                    self.sports.insert(repr.sport);
                    let rate = self.endpoints[i].config().line_rate_bps;
                    if self.chance(self.mischief.lose) {
                        self.lost += 1;
                        continue;
                    }
                    if self.chance(self.mischief.double) {
                        self.deliver_later(repr, payload.clone(), rate);
                    }
                    self.deliver_later(repr, payload, rate);
                }
            }
            let done = |e: &Endpoint| matches!(e.outcome(), Outcome::Finished { .. }) && e.is_idle();
            let failed = |e: &Endpoint| matches!(e.outcome(), Outcome::Failed(_));
            if self.endpoints.iter().all(|e| done(e) || failed(e)) {
                return;
            }
            let timers = self.endpoints.iter().filter_map(|e| e.next_timeout()).min();
            let arrival = self.arrivals.peek().map(|Reverse((at, _))| *at);
            let Some(next) = timers.into_iter().chain(arrival).min() else { return };
            assert!(next > self.now || arrival == Some(next), "an endpoint asks to be polled for nothing");
            self.now = next.max(self.now);
            while let Some(&Reverse((at, index))) = self.arrivals.peek() {
                if at > self.now {
                    break;
                }
                self.arrivals.pop();
                let packet = self.packets[index].take().unwrap();
                let to = self.endpoints.iter_mut().find(|e| e.config().addr == packet.repr.dst).unwrap();
                to.on_packet(self.now, &packet.repr, &packet.payload, packet.ce);
            }
        }
    }

    fn assert_right(&mut self) {
        for endpoint in &mut self.endpoints {
            let rank = endpoint.config().rank;
            assert!(matches!(endpoint.outcome(), Outcome::Finished { .. }), "rank {rank}: {:?}", endpoint.outcome());
            assert_eq!(endpoint.verify(), Ok(()), "rank {rank}");
            let config = endpoint.config();
            let steps = config.collective.steps(config.ranks) * config.iterations;
            assert_eq!(endpoint.progress().len(), steps as usize);
            assert!(endpoint.progress().is_sorted());
        }
    }

    fn sum(&self, of: impl Fn(&symphony::roce::Counters) -> u64) -> u64 {
        self.endpoints.iter().map(|e| of(e.counters())).sum()
    }

    fn jct_ns(&self) -> u64 {
        self.endpoints.iter().map(|e| *e.progress().last().unwrap()).max().unwrap()
    }
}

/// Steps times (serialisation of a step plus the way) plus the way of the first clear-to-send.
fn closed_form_ns(config: &Config) -> u64 {
    let headers = 14 + 20 + 8 + 12 + 4;
    let bytes = u64::from(config.chunk_bytes)
        + u64::from(config.packets_per_step() * headers)
        + u64::from(config.requests_per_step) * (16 + 4);
    let on_wire = |bytes: u64| bytes * 8_000_000_000 / config.line_rate_bps;
    let clear_to_send = on_wire(u64::from(headers) + 16 + 64) + LATENCY_NS;
    clear_to_send + u64::from(config.collective.steps(config.ranks)) * (on_wire(bytes) + LATENCY_NS)
}

#[test]
fn an_undisturbed_ring_takes_the_time_that_arithmetic_gives_and_sends_nothing_twice() {
    for (ranks, chunk, mtu, rate) in
        [(2, 64 << 10, 1024, 200e6 as u64), (4, 256 << 10, 1024, 10e9 as u64), (8, 1 << 20, 4096, 100e9 as u64)]
    {
        let change = |c: &mut Config| {
            (c.chunk_bytes, c.path_mtu, c.line_rate_bps) = (chunk, mtu, rate);
            c.congestion_control = Some(Parameters::DC55);
        };
        let mut network = Network::new(jobs(ranks, change), Mischief::default(), 1);
        network.run(60_000_000_000);
        network.assert_right();
        let expected = closed_form_ns(network.endpoints[0].config()) as f64;
        let off = network.jct_ns() as f64 / expected - 1.0;
        assert!(off.abs() < 0.005, "{ranks} ranks: {} ns instead of {expected}", network.jct_ns());
        assert_eq!(network.sum(|c| c.retransmitted_packets + c.timeouts + c.naks_sent + c.duplicates), 0);
        assert_eq!(network.sum(|c| c.data_bytes_sent), network.sum(|c| c.data_bytes_received));
        assert_eq!(network.sum(|c| c.packets_sent), network.sum(|c| c.packets_received));
        assert_eq!(network.sum(|c| c.late_max_ns), 0, "virtual time is never late");
    }
}

#[test]
fn a_ring_of_four_shows_the_nccl_simple_pattern() {
    let change = |c: &mut Config| c.chunk_bytes = 16 << 10;
    let mut network = Network::new(jobs(4, change), Mischief::default(), 1);
    network.run(60_000_000_000);
    network.assert_right();
    let messages = 4 * 6 * 2; // ranks, steps, requests
    let count = |opcode: Opcode| network.opcodes.get(&opcode.0).copied().unwrap_or(0);
    assert_eq!(count(Opcode::WRITE_FIRST), messages);
    assert_eq!(count(Opcode::WRITE_MIDDLE), messages * 6);
    assert_eq!(count(Opcode::WRITE_LAST_IMM), messages);
    assert_eq!(count(Opcode::WRITE_ONLY), messages, "one clear-to-send a request");
    assert!(count(Opcode::ACKNOWLEDGE) <= messages * 2 && count(Opcode::ACKNOWLEDGE) > messages);
    assert_eq!(network.opcodes.len(), 5);
}

#[test]
fn small_and_empty_requests_go_out_as_single_packets_with_immediate() {
    let change = |c: &mut Config| (c.chunk_bytes, c.requests_per_step) = (8, 4);
    let mut network = Network::new(jobs(3, change), Mischief::default(), 1);
    network.run(60_000_000_000);
    network.assert_right();
    assert_eq!(network.opcodes.get(&Opcode::WRITE_ONLY_IMM.0), Some(&(3 * 4 * 4)));
}

#[test]
fn the_step_tag_shows_in_the_source_port() {
    let change = |c: &mut Config| c.source_port = SourcePort::StepTag;
    let mut network = Network::new(jobs(4, change), Mischief::default(), 1);
    network.run(60_000_000_000);
    network.assert_right();
    assert!((0..6).all(|step| network.sports.contains(&(0xc000 + step))));
}

#[test]
fn lengths_alone_take_the_same_time_as_data() {
    let jct = |data| {
        let change = |c: &mut Config| c.data = data;
        let mut network = Network::new(jobs(4, change), Mischief { mark: 5, ..Mischief::default() }, 7);
        network.run(60_000_000_000);
        network.assert_right();
        (network.jct_ns(), network.sum(|c| c.cnps_received))
    };
    assert_eq!(jct(true), jct(false));
    assert!(jct(true).1 > 0);
}

#[test]
fn a_slow_rank_is_not_taken_for_a_lossy_network() {
    let mut configs = jobs(4, |c| c.chunk_bytes = 1 << 20);
    configs[2].line_rate_bps /= 40; // 1.7 s a step, far beyond the retransmission timeout
    let mut network = Network::new(configs, Mischief::default(), 1);
    network.run(60_000_000_000);
    network.assert_right();
    assert_eq!(network.sum(|c| c.timeouts + c.retransmitted_packets), 0);
}

#[test]
fn one_lost_packet_costs_its_successors_in_flight_and_no_more() {
    let mut network = Network::new(jobs(2, |c| c.chunk_bytes = 1 << 20), Mischief { lose: 1, ..Default::default() }, 5);
    network.run(60_000_000_000);
    network.assert_right();
    assert!(network.lost > 0);
    // At 200 Mbit/s a packet takes 44 us and news of a gap 20 us: a loss is noticed with the next packet, answered
    // before the one after the next.
    assert!(network.sum(|c| c.retransmitted_packets) <= network.lost * 4, "{:?}", network.endpoints[0].counters());
}

#[test]
fn ranks_that_start_late_are_waited_for_and_ranks_that_never_do_are_named() {
    let mut configs = jobs(3, |_| {});
    configs[1].start_at = 5_000_000_000;
    let mut network = Network::new(configs, Mischief::default(), 1);
    network.run(60_000_000_000);
    network.assert_right();

    let mut network = Network::new(jobs(3, |_| {}), Mischief { lose: 1000, ..Default::default() }, 1);
    network.run(60_000_000_000);
    let silent = |rank: usize| Outcome::Failed(Failure::Silent { peer: address(rank) });
    assert_eq!(*network.endpoints[0].outcome(), silent(1));
    assert_eq!(network.now, 10_000_000_000);
}

#[test]
fn a_peer_that_falls_silent_ends_the_run_by_the_retry_limit() {
    let mut network = Network::new(jobs(2, |c| c.chunk_bytes = 1 << 20), Mischief::default(), 1);
    network.run(20_000_000);
    network.mischief.lose = 1000;
    network.run(60_000_000_000);
    let failed = network
        .endpoints
        .iter()
        .any(|e| matches!(e.outcome(), Outcome::Failed(Failure::RetriesExceeded { retries: 7, .. })));
    assert!(failed && network.now < 3_000_000_000);
}

#[test]
fn ranks_that_disagree_about_the_step_size_are_told_so() {
    let mut configs = jobs(2, |_| {});
    configs[1].chunk_bytes = 4096;
    let mut network = Network::new(configs, Mischief::default(), 1);
    network.run(60_000_000_000);
    let told = |e: &Endpoint| matches!(e.outcome(), Outcome::Failed(Failure::Rejected { .. }));
    let saw = |e: &Endpoint| matches!(e.outcome(), Outcome::Failed(Failure::Refused { .. }));
    assert!(network.endpoints.iter().all(|e| told(e) || saw(e)) && network.endpoints.iter().any(saw));
}

#[test]
fn marks_slow_a_flow_down_and_each_interval_brings_one_cnp() {
    let jct = |mark| {
        let change = |c: &mut Config| c.chunk_bytes = 1 << 20;
        let mut network = Network::new(jobs(2, change), Mischief { mark, ..Mischief::default() }, 1);
        network.run(60_000_000_000);
        network.assert_right();
        (network.jct_ns(), network.sum(|c| c.cnps_sent))
    };
    let (clean, none) = jct(0);
    let (marked, cnps) = jct(1000);
    assert_eq!(none, 0);
    assert!(marked > clean * 20, "{marked} ns marked, {clean} ns clean: down to the minimum rate");
    // Four streams (data and clear-to-send each way) of at most one a 2.5 ms, and no fewer than half of that for data.
    assert!(cnps <= 4 * (marked / 2_500_000 + 1) && cnps > marked / 10_000_000, "{cnps} CNPs in {marked} ns");
}

fn collectives() -> impl Strategy<Value = Collective> {
    prop_oneof![
        Just(Collective::AllReduce),
        Just(Collective::AllGather),
        Just(Collective::ReduceScatter),
        (1u32..20).prop_map(|steps| Collective::Stream { steps }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn values_are_right_whatever_the_network_does(
        ranks in 2usize..6,
        collective in collectives(),
        words in 1u32..6_000,
        requests_per_step in 1u32..5,
        channels in 1u32..3,
        iterations in 1u32..3,
        first_psn in prop_oneof![Just(0u32), Just(0xff_fff0), 0u32..=0xff_ffff],
        (lose, double, delay, mark) in (0u64..50, 0u64..50, 0u64..50, 0u64..50),
        by_id: bool,
        seed: u64,
    ) {
        let change = |c: &mut Config| {
            c.collective = collective;
            c.chunk_bytes = words * 4;
            (c.requests_per_step, c.channels, c.iterations) = (requests_per_step, channels, iterations);
            c.path_mtu = 256;
            c.first_psn = first_psn;
            c.line_rate_bps = 1_000_000_000;
            c.retransmit_timeout_ns = 2_000_000;
            c.retry_limit = 50;
            c.seed = seed;
            c.congestion_control = Some(Parameters::DC55);
            c.immediate = if by_id { Immediate::RequestId } else { Immediate::Size };
        };
        let mut network = Network::new(jobs(ranks, change), Mischief { lose, double, delay, mark }, seed);
        network.run(100_000_000_000);
        network.assert_right();
        // What arrived in order, each byte once, is what was sent the first time.
        let first_time = network.sum(|c| c.data_bytes_sent) - network.sum(|c| c.retransmitted_bytes);
        prop_assert_eq!(first_time, network.sum(|c| c.data_bytes_received));
        if lose + delay == 0 {
            prop_assert_eq!(network.sum(|c| c.retransmitted_packets), 0);
        }
    }
}
