//! What a program sends, in however many pieces, in one: in a buffer of one's own, or in the device's.

use std::io::IoSlice;

use arrayvec::ArrayVec;

use super::SLICES_MAX;
use crate::device::{Queues, SendError, TxBuffer};

#[inline]
pub(in crate::ring) fn gather(data: &[IoSlice<'_>], out: &mut [u8]) {
    let mut at = 0;
    for part in data {
        out[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
}

pub(in crate::ring) fn fill_buffers<Q: Queues>(
    queues: &mut Q,
    data: &[IoSlice<'_>],
    len: usize,
    buffers: &mut ArrayVec<(Q::Tx, usize), SLICES_MAX>,
) -> Result<(), SendError> {
    let mut left = len;
    for part in data {
        let mut part = &part[..];
        while !part.is_empty() {
            let room = buffers.last().map_or(0, |(buffer, used)| buffer.capacity() - used);
            if room == 0 {
                // The length was checked: only because the large buffers are used up do the small ones not do.
                if buffers.is_full() {
                    return Err(SendError::Full);
                }
                let buffer = queues.tx_alloc(left).or_else(|| {
                    queues.reap();
                    queues.tx_alloc(left)
                });
                buffers.push((buffer.ok_or(SendError::Full)?, 0));
                continue;
            }
            let n = part.len().min(room);
            if let Some((buffer, used)) = buffers.last_mut() {
                buffer.write(*used, &part[..n]);
                *used += n;
            }
            left -= n;
            part = &part[n..];
        }
    }
    Ok(())
}
