//! What the system refuses to a device that is to be opened.

use std::io;

use crate::capabilities;

/// A call that the system refused, and why, as far as that is known.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The process may not: it lacks a capability, or has it in a user namespace of its own alone.
    #[error("{what}: not permitted; {}", advice(lacks))]
    NotPermitted {
        /// What was tried.
        what: &'static str,
        /// Which of the capabilities that it takes the process lacks.
        lacks: Vec<&'static str>,
    },
    /// Something else: memory that may not be locked (ENOMEM: RLIMIT_MEMLOCK), descriptors, and so on.
    #[error("{what}: {error}")]
    Other {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
}

impl Refused {
    /// What the system said of `what`, which takes these capabilities.
    pub fn of(what: &'static str, takes: &[capabilities::Capability], error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { what, lacks: capabilities::lacking(takes) },
            _ => Self::Other { what, error },
        }
    }
}

fn advice(lacks: &[&str]) -> String {
    if lacks.is_empty() {
        // (bpf(2), and the kernel's RDMA, ask for them in the first user namespace.)
        return "the kernel wants the capabilities in the user namespace of the machine".to_owned();
    }
    format!("the process lacks {}", lacks.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_has_a_name() {
        let refused = |errno, takes: &[_]| Refused::of("socket", takes, io::Error::from_raw_os_error(errno)).to_string();
        assert!(refused(libc::ENOMEM, &capabilities::OF_INTERFACES).starts_with("socket: "));
        assert!(refused(libc::EPERM, &[]).contains("of the machine"));
        let lacking = Refused::NotPermitted { what: "socket", lacks: vec!["CAP_NET_RAW", "CAP_BPF"] };
        assert_eq!(lacking.to_string(), "socket: not permitted; the process lacks CAP_NET_RAW, CAP_BPF");
    }
}
