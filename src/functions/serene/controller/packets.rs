//! What the controller puts in at the CPU port.

use super::super::request::control_frame;
use super::close::Close;
use super::event::SwapRecord;
use super::swap::RETRY_NS;
use super::{Command, Controller};
use crate::dataplane::{Nanos, parse};
use crate::wire::aggregation::{Align, Code, Control, Repr, Type};

impl Controller {
    /// Sends the swap's request, for the first time or again.
    pub(super) fn resend(&mut self, now: Nanos) {
        let Some(swap) = self.swap.as_mut() else { return };
        let Some(kind) = swap.request().filter(|_| swap.send_at <= now) else { return };
        swap.send_at = now + RETRY_NS;
        let SwapRecord { id, boundary, version, .. } = swap.record;
        self.next_id = self.next_id.max(id + 1);
        let control = Control {
            swap_id: id,
            boundary,
            from_version: self.rule.version,
            to_version: version,
            align: Align::Jump,
            code: Code::Done,
        };
        let header = Repr { rule_version: self.rule.version, ..Repr::new(kind, self.job.id) };
        self.commands.push(Command::Inject(self.frame(&header, &control)));
    }

    pub(super) fn close_command(&self, close: Close) -> Command {
        let Close { segment, round, required, at_least } = close;
        let header = Repr {
            segment,
            round,
            norm: at_least,
            incarnation_or_included: required,
            ..Repr::new(Type::Close, self.job.id)
        };
        let control = Control {
            swap_id: 0,
            boundary: 0,
            from_version: self.rule.version,
            to_version: self.rule.version,
            align: Align::Jump,
            code: Code::Done,
        };
        Command::Inject(self.frame(&header, &control))
    }

    fn frame(&self, header: &Repr, control: &Control) -> Vec<u8> {
        control_frame(self.service.address, self.service.mac, header, control)
    }
}

/// The UDP payload of a frame.
pub(super) fn payload(frame: &[u8]) -> Option<&[u8]> {
    let phv = parse(frame, 0, 0).ok()?;
    super::super::request::udp_payload(frame, phv.l3_offset.into())
}
