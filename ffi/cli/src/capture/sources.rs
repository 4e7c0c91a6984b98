//! The rings that are captured, and their frames in the order of their times.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use ringway_host::capture::{Answer, Frame, Reader, Watched};
use ringway_host::members::MemberName;

use super::file::{CaptureFile, Interface};
use super::once::UnderWay;
use super::{Direction, Options};

/// How long a process may take to answer: its progress thread does, whatever the program does.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module's documentation.
pub(super) struct Sources<'a> {
    options: &'a Options,
    bytes: usize,
    device: Option<String>,
    processes: Vec<Process>,
    /// Those that have ended, or do not show anything.
    gone: Vec<MemberName>,
    rings: Vec<Ring>,
    /// What was read, and is not written yet.
    waiting: Vec<Seen>,
    /// `None`: what is seen at both ends is shown at both.
    under_way: Option<UnderWay>,
}

struct Process {
    member: MemberName,
    watched: Watched,
    /// The ring that is asked for next.
    next: u16,
}

struct Ring {
    member: MemberName,
    is_shared_memory: bool,
    reader: Reader,
    interface: u32,
    /// Frames that were read.
    read: u64,
    /// Lost before the next frame that is shown.
    lost: u64,
    is_over: bool,
}

/// A frame of a ring's.
pub(super) struct Seen {
    /// The ring's number in the file.
    pub(super) interface: u32,
    /// Nobody computes a checksum on that device.
    pub(super) is_shared_memory: bool,
    pub(super) frame: Frame,
}

impl<'a> Sources<'a> {
    pub(super) fn new(options: &'a Options, bytes: usize) -> Self {
        let device = options.interface.as_ref().map(|name| match &**name {
            "shm" => name.clone(),
            other if other.starts_with("xdp:") => name.clone(),
            other => format!("xdp:{other}"),
        });
        let under_way = (options.pids.is_empty() && options.direction.is_none()).then(UnderWay::default);
        Self { options, bytes, device, processes: Vec::new(), gone: Vec::new(), rings: Vec::new(), waiting: Vec::new(), under_way }
    }

    /// Looks for processes that have begun, and for rings that processes have opened.
    ///
    /// # Errors
    /// A process that was asked for by its number does not show anything; the file cannot be written.
    pub(super) fn search(&mut self, members: &[MemberName], file: &mut CaptureFile<impl Write>) -> Result<()> {
        let is_meant = |pid: i32| self.options.pids.is_empty() || self.options.pids.iter().any(|&p| i64::from(p) == i64::from(pid));
        for member in members.iter().filter(|member| is_meant(member.pid)) {
            if self.gone.contains(member) || self.processes.iter().any(|process| process.member == *member) {
                continue;
            }
            match Watched::new(member) {
                Ok(watched) => self.processes.push(Process { member: member.clone(), watched, next: 0 }),
                // (It may have ended since it was listed.)
                Err(_) => self.gone.push(member.clone()),
            }
        }
        let mut at = 0;
        while at < self.processes.len() {
            if self.ask(at, file)? {
                at += 1;
            } else {
                let process = self.processes.remove(at);
                self.rings.iter_mut().filter(|ring| ring.member == process.member).for_each(|ring| ring.is_over = true);
                self.gone.push(process.member);
            }
        }
        // (What is over and read to its end has been told of.)
        self.gone.retain(|gone| members.contains(gone) || self.options.pids.iter().any(|&pid| i64::from(pid) == i64::from(gone.pid)));
        Ok(())
    }

    /// Asks a process for what rings it has more. `false`: it is gone, or shows nothing.
    fn ask(&mut self, at: usize, file: &mut CaptureFile<impl Write>) -> Result<bool> {
        let Process { member, watched, next } = &mut self.processes[at];
        loop {
            match watched.ask(*next, self.bytes, self.options.snapshot_length, self.device.as_deref(), PATIENCE) {
                Ok(Answer::Shown { device, program, reader }) => {
                    let (device, program) = (ringway_report::printable(device), ringway_report::printable(program));
                    let interface = file.describe(&Interface {
                        name: &device,
                        description: &format!("{program}[{}] ring {next}", member.pid),
                        snaplen: u32::try_from(self.options.snapshot_length).unwrap_or(u32::MAX),
                    })?;
                    let is_shared_memory = device == "shm";
                    let member = member.clone();
                    self.rings.push(Ring { member, is_shared_memory, reader, interface, read: 0, lost: 0, is_over: false });
                }
                Ok(Answer::Other) => {}
                Ok(Answer::None) => return Ok(true),
                Ok(Answer::Refused(why)) if self.options.pids.is_empty() => {
                    eprintln!("process {} is not captured: {}", member.pid, ringway_report::printable(why));
                    return Ok(false);
                }
                Ok(Answer::Refused(why)) => bail!("process {} cannot be captured: {}", member.pid, ringway_report::printable(why)),
                Err(_) => return Ok(false),
            }
            *next += 1;
        }
    }

    /// Whether a process of that number was found, at any time.
    pub(super) fn knows(&self, pid: u32) -> bool {
        let members = self.processes.iter().map(|process| &process.member).chain(&self.gone);
        members.into_iter().any(|member| i64::from(member.pid) == i64::from(pid))
    }

    /// Whether nothing is left that could show anything.
    pub(super) const fn are_all_gone(&self) -> bool {
        self.processes.is_empty()
    }

    /// Hands out, in their order, the frames that were seen by then.
    ///
    /// # Errors
    /// Those of `take`.
    pub(super) fn take_until(&mut self, until_ns: u64, mut take: impl FnMut(Seen) -> Result<()>) -> Result<()> {
        let Self { options, rings, waiting, under_way, bytes, .. } = self;
        for ring in rings {
            ring.read(options, *bytes, under_way.as_mut(), waiting);
        }
        // (Stable: what has one time stays in its ring's order.)
        waiting.sort_by_key(|seen| seen.frame.time_ns);
        let due = waiting.partition_point(|seen| seen.frame.time_ns <= until_ns);
        waiting.drain(..due).try_for_each(|seen| {
            let is_shown_already =
                seen.is_shared_memory && !seen.frame.is_sent && under_way.as_mut().is_some_and(|it| it.has_come(&seen.frame));
            if is_shown_already { Ok(()) } else { take(seen) }
        })
    }

    /// Writes how many frames each ring had, and how many of them were lost.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn tell_counts(&self, file: &mut CaptureFile<impl Write>) -> Result<()> {
        for ring in &self.rings {
            let seen = ring.reader.seen().max(ring.read);
            file.tell_count(ring.interface, seen, seen - ring.read)?;
        }
        Ok(())
    }
}

/// What a frame takes in this process's memory, at least.
const MEMORY_MIN: usize = 128;

impl Ring {
    /// Reads what there is, up to so many bytes.
    fn read(&mut self, options: &Options, bytes: usize, mut under_way: Option<&mut UnderWay>, into: &mut Vec<Seen>) {
        if self.is_over && self.reader.seen() == self.read {
            return;
        }
        // (Whoever writes as fast as this reads would be read for ever, and all of it kept.)
        let mut left = bytes;
        while left > 0
            && let Some(mut frame) = self.reader.next_frame()
        {
            left = left.saturating_sub(frame.bytes.len().max(MEMORY_MIN));
            self.read += 1;
            self.lost = self.lost.saturating_add(frame.lost);
            if let Some(under_way) = &mut under_way
                && self.is_shared_memory
                && frame.is_sent
            {
                under_way.sent(&frame);
            }
            if is_asked_for(options, &frame) {
                frame.lost = core::mem::take(&mut self.lost);
                into.push(Seen { interface: self.interface, is_shared_memory: self.is_shared_memory, frame });
            }
        }
    }
}

fn is_asked_for(options: &Options, frame: &Frame) -> bool {
    match options.direction {
        Some(Direction::In) => !frame.is_sent,
        Some(Direction::Out) => frame.is_sent,
        Some(Direction::Inout) | None => true,
    }
}
