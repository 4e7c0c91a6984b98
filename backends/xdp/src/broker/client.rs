//! A program's end of its connection to a broker.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, IntoRawFd as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ringway_host::{Fd, Lender};
use ringway_stack::device::{FiveTuple, RuleError};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use super::message::{Answer, MESSAGE_MAX, Question, Refusal, VERSION, encode, namespace};
use super::wire;
use crate::bpf;
use crate::loan::Loan;
use crate::watch::Front;

/// How long an answer may take. The broker does one thing after the other, and nothing that takes long; whoever waits may hold up the program.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How long a ring is waited for that the kernel still clears up after another program, and how often it is asked for.
const FREE_WITHIN: Duration = Duration::from_secs(2);
const FREE_LOOK: Duration = Duration::from_millis(10);

/// Why a broker has not done something.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// Nobody listens there, or it may not be connected to.
    #[error("it does not answer: {0}")]
    NotThere(io::Error),
    /// It has ended, or answers no more.
    #[error("it is gone: {0}")]
    Gone(io::Error),
    /// It says why not.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// What it answers is no answer.
    #[error("its answer makes no sense")]
    Strange,
}

impl From<BrokerError> for io::Error {
    fn from(error: BrokerError) -> Self {
        match error {
            BrokerError::Refused(Refusal::Kernel { errno: Some(errno), .. }) => Self::from_raw_os_error(errno),
            BrokerError::Refused(_) => Self::new(io::ErrorKind::PermissionDenied, error),
            _ => Self::other(error),
        }
    }
}

/// The interfaces that the broker serves which listens there, if it serves this user.
///
/// # Errors
/// [`BrokerError`].
pub fn interfaces_served(broker: &Path) -> Result<Vec<String>, BrokerError> {
    match Connection::new(broker)?.ask(&Question::Served { version: VERSION }, &[], &[])? {
        (Answer::Served { interfaces }, _) => Ok(interfaces),
        _ => Err(BrokerError::Strange),
    }
}

/// The connection that a ring hangs on.
#[derive(Debug)]
pub(crate) struct Client {
    connection: Mutex<Connection>,
    is_gone: AtomicBool,
    /// What the ring is to be made of.
    loan: Mutex<Option<Loan>>,
    injects: bool,
    /// The broker's program is in front of the interface as long as this is open: so the ring outlives the broker.
    link: Fd,
    /// Its number, if the kernel says so.
    program: Option<u32>,
}

impl Client {
    /// The ring of an interface.
    pub(crate) fn open(broker: &Path, interface: &str) -> Result<Self, BrokerError> {
        let connection = Connection::new(broker)?;
        let question = Question::Open { version: VERSION, interface: interface.to_owned(), namespace: namespace() };
        let began = Instant::now();
        let (answer, descriptors) = loop {
            match connection.ask(&question, &[], &[]) {
                Err(BrokerError::Refused(Refusal::NotYet(_))) if began.elapsed() < FREE_WITHIN => std::thread::sleep(FREE_LOOK),
                answer => break answer?,
            }
        };
        let Answer::Opened { receives, sends, injects } = answer else { return Err(BrokerError::Strange) };
        let mut descriptors = descriptors.into_iter();
        let (Some(link), Some(memory)) = (descriptors.next(), descriptors.next()) else { return Err(BrokerError::Strange) };
        let loan = Some(Loan { memory, sockets: descriptors.collect(), receives, sends });
        let (connection, loan, is_gone) = (Mutex::new(connection), Mutex::new(loan), AtomicBool::new(false));
        let program = bpf::link_info(&link).ok().map(|info| info.program);
        Ok(Self { connection, is_gone, loan, injects, link, program })
    }

    /// What is in front of the interface now, as far as this process may know.
    pub(crate) fn front(&self) -> Front {
        self.program.map_or(Front::Ours, |program| Front::of(&self.link, program))
    }

    /// What the ring is to be made of, once.
    pub(crate) fn loan(&self) -> Option<Loan> {
        self.loan.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn attach(&self, flow: &FiveTuple) -> Result<(), RuleError> {
        self.ask(&Question::Attach(flow.into()), &[], &[]).map_err(|error| {
            tracing::info!("{} has no flow rule of the broker's: {error}", flow.local);
            match error {
                BrokerError::Refused(Refusal::FlowTaken | Refusal::AnothersSocket(_)) => RuleError::Taken,
                _ => RuleError::Full,
            }
        })
    }

    pub(crate) fn detach(&self, flow: &FiveTuple) -> io::Result<()> {
        Ok(self.ask(&Question::Detach(flow.into()), &[], &[])?)
    }

    pub(crate) fn leave_to_kernel(&self, flow: &FiveTuple) -> bool {
        self.ask(&Question::LeaveToKernel(flow.into()), &[], &[]).is_ok()
    }

    /// Whether the broker was found to have ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Ends the connection.
    pub(crate) fn end(&self) {
        self.is_gone.store(true, Ordering::Relaxed);
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).end();
    }

    fn ask(&self, question: &Question, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), BrokerError> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_gone() {
            return Err(BrokerError::Gone(io::ErrorKind::NotConnected.into()));
        }
        match connection.ask(question, packet, descriptors) {
            Ok((Answer::Done, _)) => Ok(()),
            Err(error @ BrokerError::Refused(_)) => Err(error),
            // (An answer that came late would be taken for the next question's.)
            lost => {
                // (The connection to a broker that is slow, and not gone, is left open: it would take what the program has when that ends.)
                if !self.is_gone.swap(true, Ordering::Relaxed) {
                    tracing::warn!("the broker is gone: connections go on, and new ones are the kernel's");
                }
                Err(lost.err().unwrap_or(BrokerError::Strange))
            }
        }
    }
}

impl Lender for Client {
    fn use_neighbour(&self, address: IpAddr) -> io::Result<()> {
        Ok(self.ask(&Question::UseNeighbour(address), &[], &[])?)
    }

    fn begin_repair(&self, socket: BorrowedFd<'_>, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        Ok(self.ask(&Question::BeginRepair { local, remote }, &[], &[socket])?)
    }

    fn end_repair(&self, socket: BorrowedFd<'_>, probes: bool) -> io::Result<()> {
        Ok(self.ask(&Question::EndRepair { probes }, &[], &[socket])?)
    }

    fn reserve(&self, socket: BorrowedFd<'_>, receive: usize, send: usize) -> io::Result<()> {
        let [receive, send] = [receive, send].map(|len| u32::try_from(len).unwrap_or(u32::MAX));
        Ok(self.ask(&Question::Reserve { receive, send }, &[], &[socket])?)
    }

    fn injects(&self) -> bool {
        self.injects
    }

    fn inject(&self, packet: &[u8], local: SocketAddr) -> io::Result<()> {
        Ok(self.ask(&Question::Inject { local }, packet, &[])?)
    }
}

#[derive(Debug)]
struct Connection(Fd);

impl Connection {
    fn new(broker: &Path) -> Result<Self, BrokerError> {
        let connect = || -> io::Result<Self> {
            let address = SocketAddrUnix::new(broker)?;
            let fd = Fd::make(|| match net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None) {
                Ok(fd) => fd.into_raw_fd().into(),
                Err(_) => -1,
            })?;
            let connection = Self(fd);
            for which in [Timeout::Recv, Timeout::Send] {
                set_socket_timeout(connection.socket(), which, Some(ANSWERS_WITHIN))?;
            }
            net::connect(connection.socket(), &address)?;
            Ok(connection)
        };
        connect().map_err(BrokerError::NotThere)
    }

    fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the value lives. (In the child of a fork nobody has the value.)
        unsafe { BorrowedFd::borrow_raw(self.0.raw()) }
    }

    fn ask(&self, question: &Question, packet: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(Answer, Vec<Fd>), BrokerError> {
        let words = encode(question, packet);
        if words.len() > MESSAGE_MAX {
            return Err(BrokerError::Refused(Refusal::Malformed("it is too long".to_owned())));
        }
        wire::send(self.socket(), &words, descriptors, SendFlags::empty()).map_err(BrokerError::Gone)?;
        let mut bytes = [0; 4096];
        let (received, passed) = Fd::receive(|| wire::receive(self.socket(), &mut bytes, RecvFlags::empty())).map_err(BrokerError::Gone)?;
        let answer = bytes.get(..received.len).filter(|_| !received.is_cut).and_then(|bytes| serde_json::from_slice(bytes).ok());
        match answer.ok_or(BrokerError::Strange)? {
            Answer::Refused(why) => Err(BrokerError::Refused(why)),
            answer => Ok((answer, passed)),
        }
    }

    fn end(&self) {
        let _ = net::shutdown(self.socket(), Shutdown::Both);
    }
}
