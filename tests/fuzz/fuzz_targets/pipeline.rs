//! Any bytes as a train of frames through the whole switch: nothing panics, and every packet is accounted for.
//!
//! A frame is a length (one byte, times 8), a port (two bits), a time step and its bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symphony::dataplane::{HeapFrames, NoTrace, PortConfig, Red, Switch, SwitchConfig};
use symphony::functions::forward::{Forward, ForwardConfig};
use symphony::functions::symphony::{Job, Parameters, StepSource, Symphony};

fn switch() -> Switch<(Symphony, Forward), Vec<u8>> {
    let port = PortConfig {
        name: "p".into(),
        rate_bps: Some(1_000_000),
        buffer_bytes: 20_000,
        red: Some(Red { kmin_bytes: 1000, kmax_bytes: 5000, pmax: 0.5 }),
        pfc: None,
        fault: None,
    };
    let config = SwitchConfig { buffer_bytes: 50_000, seed: 1, ports: vec![port; 4] };
    let mut symphony = Symphony::new(Parameters::default(), 64, 4);
    let job = Job {
        id: 1,
        name: "ring".into(),
        ring: (1..=4u8).map(|host| [10, 99, 0, host].into()).collect(),
        step_source: StepSource::Message,
        requests_per_step: 1,
        step_ns: Some(100_000),
        packets_per_step: Some(16),
        path_mtu: 1024,
        steps_per_collective: 6,
        idle_ns: 1_000_000,
        enabled: true,
    };
    symphony.add_job(&job, 0).expect("a sound job");
    Switch::new(&config, (symphony, Forward::new(&ForwardConfig::Learning, 4, 1)))
}

fuzz_target!(|input: &[u8]| {
    let (mut switch, mut frames, mut now) = (switch(), HeapFrames, 0);
    let mut rest = input;
    while let Some(([len, port, step], more)) = rest.split_first_chunk() {
        let (frame, more) = more.split_at(more.len().min(usize::from(*len) * 8));
        rest = more;
        now += u64::from(*step) << 16;
        for out in 0..4 {
            while switch.dequeue(out, now, &mut frames, &mut NoTrace).is_some() {}
        }
        switch.receive(u16::from(port % 4), now, frame.to_vec(), &mut frames, &mut NoTrace);
        assert!(switch.counters().conservation.holds());
    }
    for out in 0..4 {
        while switch.dequeue(out, u64::MAX, &mut frames, &mut NoTrace).is_some() {}
    }
    let conservation = switch.counters().conservation;
    assert!(conservation.holds() && conservation.queued == 0);
});
