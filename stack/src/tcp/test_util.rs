//! Buffers for tests: in ordinary memory, counted.

use std::sync::{Arc, Mutex};

use crate::device::{RxBuffer, TxBuffer};
use crate::wire::checksum;

/// Received bytes.
#[derive(Clone, Debug)]
pub(crate) struct TestRx {
    bytes: Arc<[u8]>,
    offset: usize,
    len: usize,
}

impl TestRx {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), offset: 0, len: bytes.len() }
    }
}

impl RxBuffer for TestRx {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        assert!(offset + out.len() <= self.len, "a range past the end");
        let from = self.offset + offset;
        out.copy_from_slice(&self.bytes[from..from + out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(&self.bytes[self.offset + offset..][..len])
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len, "a range past the end");
        Self { bytes: self.bytes.clone(), offset: self.offset + offset, len }
    }
}

/// A send buffer. Writing a byte twice is a mistake that it notices.
#[derive(Clone, Debug)]
pub(crate) struct TestTx {
    bytes: Arc<Mutex<Vec<u8>>>,
    capacity: usize,
}

impl TestTx {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { bytes: Arc::default(), capacity }
    }

    fn with<V>(&self, look: impl FnOnce(&mut Vec<u8>) -> V) -> V {
        look(&mut self.bytes.lock().expect("no test panics while it holds this"))
    }
}

impl TxBuffer for TestTx {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.capacity, "a range past the end");
        self.with(|all| {
            assert_eq!(offset, all.len(), "bytes are written once, one behind the other");
            all.extend_from_slice(bytes);
        });
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.with(|all| out.copy_from_slice(&all[offset..offset + out.len()]));
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        self.with(|all| checksum::sum(&all[offset..offset + len]))
    }
}
