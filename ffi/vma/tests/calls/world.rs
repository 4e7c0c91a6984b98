//! A world: actors that run on the kernel's sockets, or with the library preloaded.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{FIRST_PROCESSES, PROCESSES, WORKERS};
use crate::translate::{EPHEMERAL, Home, NAMED};
use crate::wire::{Call, Line, Reply, Request};

/// The ports that are shared out among programs, so many to each: the one before those that it may name says whose they are.
const PORTS_FROM: u16 = 8000;
const PORTS_EACH: u16 = NAMED + 1;
/// What no answer takes.
const PATIENCE: Duration = Duration::from_secs(20);
/// The thread that looks, forks and interrupts; it never blocks.
const OBSERVER: usize = WORKERS as usize;
/// Programs after which an actor ends and another takes its place.
const PROGRAMS_MAX: u32 = 100;

/// What runs the calls.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) actor: PathBuf,
    /// The library to preload, and its parameters; `None`: the kernel's world.
    pub(crate) preload: Option<(PathBuf, Vec<(&'static str, &'static str)>)>,
    /// A directory for sockets, logs and reports, of this world alone.
    pub(crate) scratch: PathBuf,
}

/// See the module.
pub(crate) struct World {
    setup: Setup,
    door: UnixListener,
    actors: [Option<Actor>; PROCESSES as usize],
    programs: u32,
    home: Home,
    _claim: UdpSocket,
}

struct Actor {
    pid: i32,
    /// `None`: another actor forked it.
    child: Option<Child>,
    lines: Vec<Line>,
}

impl Drop for Actor {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            // Gone already: that is what is wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
        match &mut self.child {
            Some(child) => _ = child.wait(),
            // Its parent ignores SIGCHLD, or is no more.
            None => {
                let stat = || fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok().filter(|stat| !stat.contains(") Z"));
                while stat().is_some() {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
        }
    }
}

/// Who makes a call: process and thread.
pub(crate) type Who = (u8, u8);

impl World {
    pub(crate) fn new(setup: Setup) -> io::Result<Self> {
        fs::create_dir_all(&setup.scratch)?;
        let door = setup.scratch.join("door");
        let _ = fs::remove_file(&door);
        let (home, claim) = claim();
        let mut world =
            Self { door: UnixListener::bind(door)?, setup, actors: [const { None }; PROCESSES as usize], programs: 0, home, _claim: claim };
        world.begin()?;
        Ok(world)
    }

    /// Where this program's sockets are, and no earlier program's were: what one left behind (TIME-WAIT) is in no other's way.
    pub(crate) fn home(&self) -> Home {
        self.home
    }

    /// A program begins: there are the processes to run it, with nothing open.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        (self.home, self._claim) = claim();
        self.programs += 1;
        if self.programs.is_multiple_of(PROGRAMS_MAX) {
            self.finish();
        }
        for process in 0..FIRST_PROCESSES {
            if self.actors[usize::from(process)].is_none() {
                self.spawn(process)?;
            }
        }
        Ok(())
    }

    /// Every actor ends in an orderly way, and so reports.
    pub(crate) fn finish(&mut self) {
        for process in 0..PROCESSES {
            self.exit(process);
        }
    }

    fn spawn(&mut self, process: u8) -> io::Result<()> {
        let token = token();
        let mut command = Command::new(&self.setup.actor);
        command.arg(self.setup.scratch.join("door")).arg(token.to_string()).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::options().create(true).append(true).open(self.log())?).env_remove("LD_PRELOAD");
        if let Some((library, parameters)) = &self.setup.preload {
            command.env("LD_PRELOAD", library).env(ringway_report::STATS_FILE_ENV, self.reports()).envs(parameters.iter().copied());
        }
        let child = command.spawn()?;
        self.welcome(process, token, Some(child))
    }

    /// Where the actors' complaints go.
    pub(crate) fn log(&self) -> PathBuf {
        self.setup.scratch.join("log")
    }

    /// Where the actors that end leave their reports.
    pub(crate) fn reports(&self) -> PathBuf {
        self.setup.scratch.join("reports")
    }

    /// Waits for a new process's lines.
    fn welcome(&mut self, process: u8, token: i32, child: Option<Child>) -> io::Result<()> {
        let mut lines = BTreeMap::new();
        let mut actor = Actor { pid: 0, child, lines: Vec::new() };
        let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        while lines.len() <= OBSERVER {
            if poll(&mut [PollFd::new(&self.door, PollFlags::IN)], Some(&limit))? == 0 {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a new process does not introduce itself"));
            }
            let (hello, line) = Line::new(self.door.accept()?.0)?;
            if hello.token == token {
                actor.pid = hello.pid;
                lines.insert(hello.thread, line);
            }
        }
        actor.lines = lines.into_values().collect();
        self.actors[usize::from(process)] = Some(actor);
        Ok(())
    }

    fn line(&mut self, who: Who) -> io::Result<&mut Line> {
        let gone = || io::Error::new(io::ErrorKind::NotConnected, format!("no process {}", who.0));
        Ok(&mut self.actors[usize::from(who.0)].as_mut().ok_or_else(gone)?.lines[usize::from(who.1)])
    }

    /// Tells a thread to make a call.
    pub(crate) fn tell(&mut self, who: Who, request: &Request) -> io::Result<()> {
        self.line(who)?.send(request)
    }

    /// A thread's answer, if it comes in time.
    pub(crate) fn hear(&mut self, who: Who, limit: Duration) -> io::Result<Option<Reply>> {
        self.line(who)?.reply(limit)
    }

    /// A call by the thread of a process that never blocks.
    pub(crate) fn observe(&mut self, process: u8, request: &Request) -> io::Result<Reply> {
        let line = self.line((process, OBSERVER as u8))?;
        line.send(request)?;
        let timeout = || io::Error::new(io::ErrorKind::TimedOut, format!("{request:?} does not return"));
        line.reply(PATIENCE)?.ok_or_else(timeout)
    }

    /// Whether a thread sleeps in the middle of its call. (One that was told something, and not yet noticed, does not sleep: the
    /// write that told it woke it.)
    pub(crate) fn asleep(&mut self, who: Who) -> io::Result<bool> {
        let tid = self.line(who)?.tid;
        let pid = self.actors[usize::from(who.0)].as_ref().map_or(0, |actor| actor.pid);
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat"))?;
        // proc_pid_stat(5): the state follows the name, which is in parentheses.
        Ok(stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
    }

    /// A process forks; its child takes a place of its own.
    pub(crate) fn fork(&mut self, process: u8, into: u8) -> io::Result<bool> {
        let token = token();
        let reply = self.observe(process, &Request::new(Call::Fork, &[i64::from(token)]))?;
        if reply.result < 0 {
            return Ok(false);
        }
        self.welcome(into, token, None)?;
        Ok(true)
    }

    /// Ends a process by SIGKILL.
    pub(crate) fn kill(&mut self, process: u8) {
        self.actors[usize::from(process)] = None;
    }

    /// Ends a process by exit(3).
    pub(crate) fn exit(&mut self, process: u8) {
        let Ok(line) = self.line((process, OBSERVER as u8)) else { return };
        if line.send(&Request::new(Call::Exit, &[0])).is_ok() {
            // The line's end is the process's.
            let _ = line.reply(PATIENCE);
        }
        self.actors[usize::from(process)] = None;
    }

    /// A program is over: interrupts what still blocks, and closes everything. Processes that were forked end; one that cannot be brought
    /// to rest is named in the error, and ends as well.
    pub(crate) fn end(&mut self, open: &[(u8, i32)]) -> Result<(), String> {
        let mut stuck = Ok(());
        for process in 0..PROCESSES {
            if self.actors[usize::from(process)].as_ref().is_some_and(|actor| actor.child.is_none()) {
                self.kill(process);
            }
        }
        for process in 0..FIRST_PROCESSES {
            let fds = open.iter().filter(|(of, _)| *of == process).map(|&(_, fd)| fd);
            if let Err(error) = self.tidy_up(process, fds) {
                if self.actors[usize::from(process)].is_some() {
                    stuck = Err(format!("process {process}: {error}"));
                }
                self.kill(process);
            }
        }
        stuck
    }

    fn tidy_up(&mut self, process: u8, fds: impl Iterator<Item = i32>) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for worker in 0..WORKERS {
            while self.line((process, worker))?.busy {
                self.observe(process, &Request::new(Call::Interrupt, &[i64::from(worker), 0]))?;
                self.hear((process, worker), Duration::from_millis(2))?;
                if Instant::now() > deadline {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no signal interrupts thread {worker}")));
                }
            }
        }
        for fd in fds {
            self.observe(process, &Request::new(Call::Close, &[i64::from(fd)]))?;
        }
        self.observe(process, &Request::new(Call::CloseAll, &[]))?;
        Ok(())
    }
}

fn token() -> i32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) as i32
}

/// An address of the loopback's and ports that nobody else uses.
fn claim() -> (Home, UdpSocket) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // The first is a random place, so that two runs on one machine rarely meet.
        let random = || std::process::id().wrapping_mul(0x9e37_79b9) % 0xfd_0000;
        let _ = NEXT.compare_exchange(0, random(), Ordering::Relaxed, Ordering::Relaxed);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        // 127.1.0.0 to 127.253.255.255.
        let ip = Ipv4Addr::from_bits(0x7f01_0000 + next % 0xfd_0000);
        let places = u32::from((EPHEMERAL - PORTS_FROM) / PORTS_EACH);
        let claim = PORTS_FROM + (next % places) as u16 * PORTS_EACH;
        if let Ok(socket) = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, claim))
            && (claim + 1..claim + PORTS_EACH).all(is_free)
        {
            return (Home { ip, first: claim + 1 }, socket);
        }
    }
}

/// Whether a port is nobody's, at any address of either family, and nothing is left of an earlier socket there.
fn is_free(port: u16) -> bool {
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    // (The standard library's listeners have SO_REUSEADDR, and don't see a TIME-WAIT.)
    let tcp = net::socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    UdpSocket::bind(everywhere).is_ok() && tcp.is_ok_and(|tcp| net::bind(&tcp, &everywhere).is_ok())
}
