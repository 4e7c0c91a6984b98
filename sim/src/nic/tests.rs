use std::sync::Arc;

use ringway_stack::Instant;
use ringway_stack::device::{ChecksumVerdict, Device, FlowRule, RuleError, RuleId, RxBatch, SendError, TxFrame};

use super::*;

mod ring;
