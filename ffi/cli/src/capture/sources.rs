//! The rings that are captured, and their frames in the order of their times.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ringway_host::Clock;
use ringway_host::capture::{Answer, Frame, RINGS_MAX, Reader, Watched};
use ringway_host::members::MemberName;

use super::file::{CaptureFile, Interface};
use super::once::UnderWay;
use super::{Direction, Options};

/// How long a process may take to answer: its progress thread does, whatever the program does, unless it is stopped.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module's documentation.
pub(super) struct Sources<'a> {
    options: &'a Options,
    bytes: usize,
    device: Option<String>,
    processes: Vec<Process>,
    /// Those that have ended, or do not show anything.
    gone: Vec<MemberName>,
    /// Whose frames are read.
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
    /// Since when its answer is awaited.
    asked: Option<Instant>,
    /// It was said that another one captures it.
    is_told_of: bool,
}

/// What is known of a process after a look at its answers.
enum Heard {
    /// It has shown what it has.
    All,
    /// Its answer is awaited.
    Nothing,
    Gone,
    /// Why it is not captured.
    Refused(String),
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

    /// Looks for processes that have begun, and asks all for rings that they have opened.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn search(&mut self, members: &[MemberName]) -> Result<()> {
        let is_meant = |pid: i32| self.options.pids.is_empty() || self.options.pids.iter().any(|&p| i64::from(p) == i64::from(pid));
        for member in members.iter().filter(|member| is_meant(member.pid)) {
            if self.gone.contains(member) || self.processes.iter().any(|process| process.member == *member) {
                continue;
            }
            match Watched::new(member) {
                Ok(watched) => {
                    self.processes.push(Process { member: member.clone(), watched, next: 0, asked: None, is_told_of: false });
                }
                // (It has no room for us now, and is asked again.)
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // (It may have ended since it was listed.)
                Err(_) => self.gone.push(member.clone()),
            }
        }
        self.ask_all();
        // (Of those that were asked for, it is to be known that they were there.)
        self.gone.retain(|gone| members.contains(gone) || self.options.pids.iter().any(|&pid| i64::from(pid) == i64::from(gone.pid)));
        Ok(())
    }

    /// Asks each process for its next ring that has not been asked yet.
    pub(super) fn ask_all(&mut self) {
        let mut at = 0;
        while at < self.processes.len() {
            if self.processes[at].asked.is_none() && self.ask(at).is_err() {
                self.part_with(at);
            } else {
                at += 1;
            }
        }
    }

    /// Whether some have not answered yet.
    pub(super) fn are_asked(&self) -> bool {
        self.processes.iter().any(|process| process.asked.is_some())
    }

    fn ask(&mut self, at: usize) -> io::Result<()> {
        let process = &mut self.processes[at];
        if process.next < RINGS_MAX {
            process.watched.ask(process.next, self.bytes, self.options.snapshot_length, self.device.as_deref())?;
            process.asked = Some(Instant::now());
        }
        Ok(())
    }

    fn part_with(&mut self, at: usize) {
        let process = self.processes.remove(at);
        self.rings.iter_mut().filter(|ring| ring.member == process.member).for_each(|ring| ring.is_over = true);
        self.gone.push(process.member);
    }

    /// Looks at what the processes have answered, and waits for none.
    ///
    /// # Errors
    /// A process that was asked for by its number does not show anything; the file cannot be written.
    pub(super) fn hear(&mut self, file: &mut CaptureFile<impl Write>) -> Result<()> {
        let mut at = 0;
        while at < self.processes.len() {
            match self.hear_one(at, file)? {
                Heard::All | Heard::Nothing => {
                    at += 1;
                    continue;
                }
                Heard::Gone => {}
                Heard::Refused(why) => {
                    let (pid, why) = (self.processes[at].member.pid, ringway_report::printable(why));
                    if !self.options.pids.is_empty() {
                        bail!("process {pid} cannot be captured: {why}");
                    }
                    eprintln!("process {pid} is not captured: {why}");
                }
            }
            self.part_with(at);
        }
        Ok(())
    }

    fn hear_one(&mut self, at: usize, file: &mut CaptureFile<impl Write>) -> Result<Heard> {
        while let Some(since) = self.processes[at].asked {
            let answer = match self.processes[at].watched.answer() {
                Ok(Some(answer)) => answer,
                Ok(None) if since.elapsed() < PATIENCE => return Ok(Heard::Nothing),
                Ok(None) => return Ok(Heard::Refused("it does not answer".to_owned())),
                Err(_) => return Ok(Heard::Gone),
            };
            let process = &mut self.processes[at];
            process.asked = None;
            match answer {
                Answer::Shown { device, program, reader } => {
                    let (device, program) = (ringway_report::printable(device), ringway_report::printable(program));
                    let description = format!("{program}[{}] ring {}", process.member.pid, process.next);
                    let interface = file.describe(&Interface { name: &device, description: &description })?;
                    let (is_shared_memory, member) = (device == "shm", process.member.clone());
                    self.rings.push(Ring { member, is_shared_memory, reader, interface, read: 0, lost: 0, is_over: false });
                }
                Answer::Other => {}
                Answer::None => return Ok(Heard::All),
                Answer::Busy => {
                    const WHY: &str = "another capture of it is under way";
                    if !self.options.pids.is_empty() {
                        return Ok(Heard::Refused(WHY.to_owned()));
                    }
                    // (It is asked again: that one may end.)
                    if !core::mem::replace(&mut process.is_told_of, true) {
                        eprintln!("process {} is not captured yet: {WHY}", process.member.pid);
                    }
                    return Ok(Heard::All);
                }
                Answer::Refused(why) => return Ok(Heard::Refused(why)),
            }
            self.processes[at].next += 1;
            if self.ask(at).is_err() {
                return Ok(Heard::Gone);
            }
        }
        Ok(Heard::All)
    }

    /// Whether a process of that number was found, at any time.
    pub(super) fn knows(&self, pid: u32) -> bool {
        let members = self.processes.iter().map(|process| &process.member).chain(&self.gone);
        members.into_iter().any(|member| i64::from(member.pid) == i64::from(pid))
    }

    /// Writes, in their order, the frames that were seen by then.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn take_until(&mut self, until_ns: u64, file: &mut CaptureFile<impl Write>) -> Result<()> {
        let Self { options, rings, waiting, under_way, bytes, .. } = self;
        let mut at = 0;
        while at < rings.len() {
            let ring = &mut rings[at];
            let is_read = ring.read(options, *bytes, under_way.as_mut(), waiting);
            if ring.is_over && is_read {
                // (Its memory goes with it.)
                rings.remove(at).tell_count(file)?;
            } else {
                at += 1;
            }
        }
        // (A time is not believed that has not come yet: that frame would be kept until it does.)
        let now_ns = Clock::system().now().as_nanos();
        waiting.iter_mut().for_each(|seen| seen.frame.time_ns = seen.frame.time_ns.min(now_ns));
        // (Stable: what has one time stays in its ring's order.)
        waiting.sort_by_key(|seen| seen.frame.time_ns);
        let due = waiting.partition_point(|seen| seen.frame.time_ns <= until_ns);
        waiting.drain(..due).try_for_each(|seen| {
            let is_received = seen.is_shared_memory && !seen.frame.is_sent;
            if is_received && under_way.as_mut().is_some_and(|it| it.has_come(&seen.frame)) {
                file.pass_over(&seen);
                return Ok(());
            }
            file.write(seen)
        })
    }

    /// Writes how many frames each ring had, and how many of them were lost.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn tell_counts(&self, file: &mut CaptureFile<impl Write>) -> Result<()> {
        self.rings.iter().try_for_each(|ring| ring.tell_count(file))
    }
}

/// What a frame takes in this process's memory, at least.
const MEMORY_MIN: usize = 128;

impl Ring {
    /// Reads what there is, up to so many bytes. Whether that is all.
    fn read(&mut self, options: &Options, bytes: usize, mut under_way: Option<&mut UnderWay>, into: &mut Vec<Seen>) -> bool {
        // (Whoever writes as fast as this reads would be read for ever, and all of it kept.)
        let mut left = bytes;
        while let Some(mut frame) = self.reader.next_frame() {
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
            if left == 0 {
                return false;
            }
        }
        true
    }

    fn tell_count(&self, file: &mut CaptureFile<impl Write>) -> Result<()> {
        let seen = self.reader.seen().max(self.read);
        file.tell_count(self.interface, seen, seen - self.read)
    }
}

fn is_asked_for(options: &Options, frame: &Frame) -> bool {
    match options.direction {
        Some(Direction::In) => !frame.is_sent,
        Some(Direction::Out) => frame.is_sent,
        Some(Direction::Inout) | None => true,
    }
}
