//! Flow rules: what brings frames to this ring, where a device has something to steer.

use super::Ring;
use crate::device::{Device as _, FlowRule, Queues, RuleError, RuleId};

impl<Q: Queues> Ring<Q> {
    /// Steers matching frames to this ring.
    pub(super) fn attach(&mut self, rule: &FlowRule) -> Result<RuleId, RuleError> {
        self.queues.steer(rule).map(|attached| attached.rule)
    }

    /// Ends what [`Ring::attach`] began.
    pub(super) fn detach(&mut self, rule: RuleId) {
        self.queues.device().detach(rule);
    }
}
