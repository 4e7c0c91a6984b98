//! The form of the file in which a process publishes its report: `VMA_STATS_SHMEM_DIR/vmastat.PID`.
//!
//! The process makes it when it begins to use a device, and fills it in only when it is asked to. At its beginning stands a [`Header`], which
//! the process alone writes, and behind it a [`Request`], which readers write; the report follows at [`BODY`], as JSON. A version in the
//! header (odd while the process writes) and a checksum tell a reader whether what it has read belongs together. Neither side maps the
//! file: whoever cuts it short, or fills the disk, makes a read or a write fail, and nobody's memory vanish.
//!
//! The process holds a write lock of its open file description on all of the file (fcntl_locking(2)), which ends with that: a file without one was left by
//! a process that was killed. Nobody can have one who cannot write to the file; so whoever asks, asks whether a read lock is kept out. (flock(2)'s could be had
//! by all who can read; and a process's own would end when the program, which knows nothing of this, closes that file as any other.) A clone that
//! the library has not heard of may have the lock still: where the process's number counts, [`Header::birth`] tells.

use crate::birth::Birth;

/// What the file's name begins with; the process id follows.
pub const FILE_PREFIX: &str = "vmastat.";

/// What the control socket is told after a [`Request`] was written.
pub const LOOK: &str = "look";

/// Where the process's part begins, and how long it is.
pub const HEADER: core::ops::Range<usize> = 0..192;

/// Where the readers' part lies.
pub const REQUEST: core::ops::Range<usize> = 192..232;

/// Where the report begins.
pub const BODY: usize = 256;

/// The longest report that is read, in bytes.
pub const BODY_MAX: usize = 16 << 20;

const MAGIC: u64 = u64::from_le_bytes(*b"RINGSTAT");
/// Moves when the form changes; readers of another version refuse it.
const VERSION: u64 = 3;
/// The longest name of a control socket (unix(7): an abstract name has up to 107 bytes).
const NAME_MAX: usize = 107;
const NAME: usize = 80;

/// The process's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The process, in its own pid namespace.
    pub pid: u32,
    /// Which of all that have that number.
    pub birth: Birth,
    /// Moves with each publication, and is odd in the middle of one.
    pub version: u64,
    /// Bytes of the report; 0: none was published yet.
    pub len: u64,
    /// Of the report: [`checksum`].
    pub checksum: u64,
    /// The [`Request::number`] that it answers.
    pub answers: u64,
    /// When it was published: nanoseconds since 1970.
    pub taken_ns: u64,
    /// The process's control socket, by which it is woken.
    pub control: String,
}

impl Header {
    /// As it stands in the file.
    pub fn encode(&self) -> [u8; HEADER.end] {
        let mut bytes = [0; HEADER.end];
        let name = &self.control.as_bytes()[..self.control.len().min(NAME_MAX)];
        let process = u64::from(self.birth.namespace) << 32 | u64::from(self.pid);
        let Self { version, len, checksum, answers, taken_ns, birth: Birth { started, .. }, .. } = *self;
        put_words(&mut bytes, &[MAGIC, VERSION, process, version, len, checksum, answers, taken_ns, started, name.len() as u64]);
        bytes[NAME..NAME + name.len()].copy_from_slice(name);
        bytes
    }

    /// `None`: that is none, or one of another version.
    pub fn decode(bytes: &[u8; HEADER.end]) -> Option<Self> {
        let word = |at| word(bytes, at);
        if word(0) != MAGIC || word(1) != VERSION {
            return None;
        }
        let name_len = usize::try_from(word(9)).ok().filter(|&len| len <= NAME_MAX)?;
        Some(Self {
            pid: word(2) as u32,
            birth: Birth { namespace: (word(2) >> 32) as u32, started: word(8) },
            version: word(3),
            len: word(4),
            checksum: word(5),
            answers: word(6),
            taken_ns: word(7),
            control: std::str::from_utf8(&bytes[NAME..NAME + name_len]).ok()?.to_owned(),
        })
    }
}

/// The readers' part: what the last of them asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Another one than before asks for a report. Zero: nobody ever asked.
    pub number: u64,
    /// The log's level from now on, as VMA_TRACELEVEL has it.
    pub log_level: Option<u8>,
    /// What a line of the log begins with, as VMA_LOG_DETAILS has it.
    pub log_details: Option<u8>,
    /// A socket (0: all) whose statistics are to be logged, and at which level.
    pub dump: Option<(i32, u8)>,
}

impl Request {
    /// As it stands in the file.
    pub fn encode(&self) -> [u8; REQUEST.end - REQUEST.start] {
        let mut bytes = [0; REQUEST.end - REQUEST.start];
        let some = |value: Option<u8>| value.map_or(0, |value| u64::from(value) + 1);
        let (fd, level) = self.dump.unzip();
        let words =
            [self.number, some(self.log_level) | some(self.log_details) << 32, u64::from(fd.unwrap_or(0).cast_unsigned()), some(level)];
        put_words(&mut bytes, &words);
        let sum = checksum(&bytes[..32]);
        bytes[32..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// `None`: nobody asked, or it is being written just now.
    pub fn decode(bytes: &[u8; REQUEST.end - REQUEST.start]) -> Option<Self> {
        let word = |at| word(bytes, at);
        if word(0) == 0 || word(4) != checksum(&bytes[..32]) {
            return None;
        }
        let some = |word: u64| u8::try_from((word & u64::from(u32::MAX)).checked_sub(1)?).ok();
        let fd = u32::try_from(word(2)).ok()?.cast_signed();
        Some(Self {
            number: word(0),
            log_level: some(word(1)),
            log_details: some(word(1) >> 32),
            dump: some(word(3)).map(|level| (fd, level)),
        })
    }
}

/// Of what was published: not against forgery, but against reading two publications as one.
pub fn checksum(bytes: &[u8]) -> u64 {
    // FNV-1a's constants, a word at a time: a byte at a time would cost more than making the text.
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let sum = words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &word| step(sum, u64::from_le_bytes(word)));
    step(step(sum, u64::from_le_bytes(last)), bytes.len() as u64)
}

fn put_words(bytes: &mut [u8], words: &[u64]) {
    for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
}

/// Invariant: `at` is within the part.
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.as_chunks::<8>().0.get(at).map_or(0, |&word| u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests;
