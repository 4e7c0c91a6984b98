//! Resources: when a host's last socket is gone, so are its buffers, its flow rules and its addresses.

use ringway_stack::ring::Usage;

use super::Moment;
use crate::nic::Outstanding;

const NAME: &str = "resources";

/// A host whose sockets are all closed and gone holds this.
pub(super) fn check(moment: &Moment, usage: Usage, outstanding: &Outstanding) {
    if outstanding.tx_frames > 0 || outstanding.rx_frames > 0 {
        return;
    }
    if usage != Usage::default() {
        moment.breach(NAME, format_args!("no socket is left, and the ring holds {usage:?}"));
    }
    if *outstanding != Outstanding::default() {
        moment.breach(NAME, format_args!("no socket is left, and the NIC has lent out {outstanding:?}"));
    }
}
