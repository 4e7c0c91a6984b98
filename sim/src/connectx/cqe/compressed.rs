//! Compressed completions: one title, and eight bytes for each receive.
//!
//! A run of `n` receives takes `n` entries of the queue. The first is the title: the first receive's completion with format 3 and `n` in
//! place of the byte count. The second holds the first eight minis, the one at 8 the next eight, the one at 16 those after, and so on; the
//! other entries keep what they held. Only the title has an owner's bit. (Layout: linux/mlx5/device.h; where arrays lie: what open drivers
//! read, `guessed` as far as it is in no header.)

use super::{Cqe, CqeBytes, NoCqe, Received, at, owner, put, striding};
use crate::connectx::constants as c;

/// Minis in an entry.
pub const ARRAY: usize = 8;

/// What a mini says beside the byte count (mlx5dv.h, `mlx5dv_cqe_comp_res_format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MiniFormat {
    /// The hash of receive side scaling.
    Hash,
    /// The checksum.
    Checksum,
    /// The checksum, and the index of the first stride.
    ChecksumStride,
}

/// How a queue's completions are compressed: set once, when the completion queue is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// What a mini says.
    pub format: MiniFormat,
    /// The receive queue is a striding one.
    pub striding: bool,
    /// Most receives in a run, two or more.
    pub run_max: u32,
}

impl Compression {
    /// How many from the front of `run` can share a title: all but what a mini says, and the time, is equal, and the indices follow each
    /// other. 0 or 1 says that nothing is gained.
    pub fn run(&self, run: &[Received]) -> usize {
        let Some(title) = run.first() else { return 0 };
        let mut previous = *title;
        let follows = |next: &&Received| {
            let same = self.expanded(title, &previous, &self.mini(next));
            previous = **next;
            let comparable = Received { timestamp: title.timestamp, ..**next };
            same == self.without_the_unsaid(&comparable, title)
        };
        1 + run[1..].iter().take(self.run_max.saturating_sub(1) as usize).take_while(follows).count()
    }

    /// Entries to write for `run`, by their distance from the title's; all of it is compressed, so that the caller cuts it by
    /// [`run`](Self::run). The title comes last: until it is there, nothing else is read.
    pub fn compress(&self, run: &[Received], owner: bool) -> Vec<(u32, CqeBytes)> {
        let Some(first) = run.first() else { return Vec::new() };
        let mut entries = Vec::new();
        for (index, minis) in run.chunks(ARRAY).enumerate() {
            let mut bytes = [0; 64];
            for (mini, bytes) in minis.iter().zip(bytes.chunks_exact_mut(8)) {
                bytes.copy_from_slice(&self.mini(mini));
            }
            entries.push((array_at(index), bytes));
        }
        let title = Received { byte_count: run.len() as u32, ..*first };
        let mut bytes = Cqe::Received(title).encode(owner);
        bytes[63] |= c::CQE_FORMAT_COMPRESSED << 2;
        entries.push((0, bytes));
        entries
    }

    /// The receives of a run. `entry` reads the entry at a distance from the title's; `entries` is what the queue has.
    ///
    /// # Errors
    /// `title` begins no run, or one longer than the queue.
    pub fn expand(&self, title: &CqeBytes, entries: u32, mut entry: impl FnMut(u32) -> CqeBytes) -> Result<Vec<Received>, NoCqe> {
        let mut plain = *title;
        plain[63] &= !(c::CQE_FORMAT_COMPRESSED << 2);
        if Cqe::decode(title) != Err(NoCqe::Compressed) {
            return Err(NoCqe::Opcode(title[63] >> 4));
        }
        let title = Received::decode(&plain).ok_or(NoCqe::Opcode(title[63] >> 4))?;
        let count = title.byte_count;
        if count < 2 || count > entries {
            return Err(NoCqe::Run(count));
        }
        let mut run: Vec<Received> = Vec::new();
        let mut array = [0; 64];
        for index in 0..count as usize {
            if index.is_multiple_of(ARRAY) {
                array = entry(array_at(index / ARRAY));
            }
            let mini = at(&array, 8 * (index % ARRAY));
            let next = match run.last() {
                None => self.said(&title, &mini),
                Some(previous) => self.expanded(&title, previous, &mini),
            };
            run.push(next);
        }
        Ok(run)
    }

    /// Eight bytes for one receive.
    fn mini(&self, received: &Received) -> [u8; 8] {
        let [c1, c0] = received.checksum.to_be_bytes();
        let [s1, s0] = received.wqe_counter.to_be_bytes();
        let [h3, h2, h1, h0] = match self.format {
            MiniFormat::Hash => received.rss_hash.to_be_bytes(),
            MiniFormat::Checksum => [c1, c0, 0, 0],
            MiniFormat::ChecksumStride => [c1, c0, s1, s0],
        };
        let [b3, b2, b1, b0] = received.byte_count.to_be_bytes();
        [h3, h2, h1, h0, b3, b2, b1, b0]
    }

    /// The title, with what the mini says.
    fn said(&self, title: &Received, mini: &[u8; 8]) -> Received {
        let [h3, h2, h1, h0, count @ ..] = *mini;
        let (checksum, stride) = (u16::from_be_bytes([h3, h2]), u16::from_be_bytes([h1, h0]));
        let counted = Received { byte_count: u32::from_be_bytes(count), ..*title };
        match self.format {
            MiniFormat::Hash => Received { rss_hash: u32::from_be_bytes([h3, h2, h1, h0]), ..counted },
            MiniFormat::Checksum => Received { checksum, rss_hash: 0, rss_hash_type: 0, ..counted },
            MiniFormat::ChecksumStride => Received { checksum, rss_hash: 0, rss_hash_type: 0, wqe_counter: stride, ..counted },
        }
    }

    /// The receive after `previous`.
    fn expanded(&self, title: &Received, previous: &Received, mini: &[u8; 8]) -> Received {
        let said = self.said(title, mini);
        let step = match self.striding {
            true => striding::split(previous.byte_count).0 as u16,
            false => 1,
        };
        match self.format {
            MiniFormat::ChecksumStride => said,
            _ => Received { wqe_counter: previous.wqe_counter.wrapping_add(step), ..said },
        }
    }

    /// `received`, less what a run in this format cannot say.
    fn without_the_unsaid(&self, received: &Received, title: &Received) -> Received {
        match self.format {
            MiniFormat::Hash => Received { checksum: title.checksum, ..*received },
            _ => Received { rss_hash: 0, rss_hash_type: 0, ..*received },
        }
    }
}

/// Whether an entry that software owns begins a run.
pub fn begins_run(bytes: &CqeBytes, lap: bool) -> bool {
    owner(bytes) == lap && Cqe::decode(bytes) == Err(NoCqe::Compressed)
}

/// Distance of an array of minis from its title.
fn array_at(index: usize) -> u32 {
    (index * ARRAY).max(1) as u32
}

/// Marks an entry as never written, as a driver does before the queue is first used.
pub fn invalidate(bytes: &mut CqeBytes) {
    put(bytes, 63, [c::CQE_INVALID << 4]);
}
