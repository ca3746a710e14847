//! The last function of the chain: forwards, or, where there are no ports, ends the packet's way.

use crate::dataplane::{Cx, Function, Phv, Tracer, Verdict};
use crate::functions::forward::Forward;

/// Forwarding, if there is any, and a look at the packet in hand as parser and tracking leave it.
pub struct Exit {
    forward: Option<Forward>,
    seen: Phv,
}

impl Exit {
    /// Without `forward`, every packet is consumed.
    pub fn new(forward: Option<Forward>) -> Self {
        Exit { forward, seen: Phv::default() }
    }

    /// The last packet that got here since [`Exit::forget`].
    pub fn seen(&self) -> &Phv {
        &self.seen
    }

    /// A new packet comes; it may be dropped before it gets here.
    pub fn forget(&mut self) {
        self.seen = Phv::default();
    }
}

impl Function for Exit {
    fn ingress<T: Tracer>(&mut self, cx: &mut Cx<'_, T>, phv: &mut Phv) -> Verdict {
        self.seen = *phv;
        match &mut self.forward {
            Some(forward) => forward.ingress(cx, phv),
            None => Verdict::Consume,
        }
    }
}
