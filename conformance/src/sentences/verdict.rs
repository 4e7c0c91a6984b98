//! What a case came to, held against what the device says of itself.

use core::fmt;

use ringway_stack::device::{CyclicError, DeviceMemoryError, RateError, RuleError, SendError, Unsupported};
use ringway_stack::raw::RawError;

/// What a case came to on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The promise is kept.
    Pass,
    /// The device cannot, says so in its capabilities, and refused; or nothing can yet. The reason.
    Cannot(String),
    /// Neither. What is wrong.
    Fail(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Cannot(reason) => write!(f, "cannot: {reason}"),
            Self::Fail(what) => write!(f, "FAIL: {what}"),
        }
    }
}

/// Judges an outcome on a device that says that it `can`, or cannot.
pub fn judge(can: bool, outcome: anyhow::Result<()>) -> Verdict {
    let refused = outcome.as_ref().err().and_then(refusal);
    match (can, outcome, refused) {
        (true, Ok(()), _) => Verdict::Pass,
        (false, Err(_), Some(refused)) => Verdict::Cannot(refused.what.to_owned()),
        (true, Err(_), Some(refused)) => Verdict::Fail(format!("its capabilities name it, and it refused: {refused}")),
        (_, Err(error), None) => Verdict::Fail(format!("{error:#}")),
        (false, Ok(()), _) => Verdict::Fail("its capabilities don't name it, and it did not refuse".to_owned()),
    }
}

/// The device's refusal, if that is what an error is about.
pub fn refusal(error: &anyhow::Error) -> Option<Unsupported> {
    if let Some(error) = error.downcast_ref::<RawError>() {
        return of_raw(*error);
    }
    if let Some(error) = error.downcast_ref::<SendError>() {
        return of_raw((*error).into());
    }
    if let Some(error) = error.downcast_ref::<RuleError>() {
        return of_raw((*error).into());
    }
    if let Some(error) = error.downcast_ref::<DeviceMemoryError>() {
        return of_raw((*error).into());
    }
    if let Some(CyclicError::Unsupported(refused)) = error.downcast_ref::<CyclicError>() {
        return Some(*refused);
    }
    error.downcast_ref::<Unsupported>().copied()
}

fn of_raw(error: RawError) -> Option<Unsupported> {
    match error {
        RawError::Send(SendError::Unsupported(refused))
        | RawError::Rule(RuleError::Unsupported(refused))
        | RawError::Memory(DeviceMemoryError::Unsupported(refused))
        | RawError::Rate(RateError::Unsupported(refused))
        | RawError::Unsupported(refused) => Some(refused),
        RawError::Send(_) | RawError::Rule(_) | RawError::Memory(_) | RawError::Rate(_) | RawError::NoBuffers => None,
    }
}
