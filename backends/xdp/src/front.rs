//! The program in front of an interface, with its maps: this process's own, or that of another one which has other queues of the interface.
//!
//! A rule's value says whose it is: the first of the owner's queues, which nobody else can have meanwhile (bind(2) of an AF_XDP socket fails: EBUSY), times
//! [`QUEUES_MAX`]. That and the number of the queue that a frame comes by is its place in the map of sockets; what comes by another's queue finds nothing there, and is the
//! kernel's. So who has some of the queues has a part of what comes for it from the kernel, and nothing of another's.
//!
//! What a process leaves that is killed while others go on is in the map of rules until somebody takes its first queue; nothing has a socket there any more.
//!
//! To open what another process has made takes CAP_SYS_ADMIN (bpf(2), BPF_PROG_GET_FD_BY_ID). It has to be the same program, by its tag: then its maps mean the same.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};

use ringway_host::Fd;

use crate::bpf::{self, Map};
use crate::card::QUEUES_MAX;
use crate::error::AttachError;
use crate::interface::Interface;
use crate::key::{self, Key};
use crate::program::program;
use crate::watch::Front;

/// Flow rules of one interface.
pub(crate) const RULES_MAX: u32 = 1 << 16;
/// In a rule's value: the frame is the kernel's, whatever other rule matches it.
pub(crate) const LEFT: u32 = 1 << 31;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Program {
    rules: Map,
    sockets: Map,
    /// The program, and its number.
    loaded: (Fd, u32),
    /// It is in front of the interface as long as somebody has this open.
    link: Mutex<Arc<Fd>>,
    /// Whose rules are this process's.
    owner: u32,
}

impl Program {
    /// Puts one in front of an interface, for an owner whose first queue that is. `joins`: if another process has one there, that is used.
    pub(crate) fn attach(interface: &Interface, first: u32, joins: bool) -> Result<Self, AttachError> {
        let rules = Map::hash(key::LEN, RULES_MAX).map_err(AttachError::system("BPF_MAP_CREATE of flow rules"))?;
        let sockets = Map::sockets(QUEUES_MAX * QUEUES_MAX).map_err(AttachError::system("BPF_MAP_CREATE of sockets"))?;
        let load = |has_frags| bpf::load(&program(rules.fd(), sockets.fd()), has_frags);
        let mut loaded = load(interface.is_long).map_err(AttachError::of_frames(interface, "BPF_PROG_LOAD"))?;
        let owner = first * QUEUES_MAX;
        let mut attached = bpf::attach(&loaded, interface.index);
        // (Drivers differ in how long a frame may be that lies in one buffer: some say so, some call it unsupported.)
        if !interface.is_long
            && let Err(libc::ERANGE | libc::EOPNOTSUPP | libc::EINVAL) =
                attached.as_ref().map_err(|error| error.raw_os_error().unwrap_or(0))
            && let Ok(other) = load(true)
        {
            loaded = other;
            attached = bpf::attach(&loaded, interface.index);
        }
        match attached {
            Ok(link) => Self::new((rules, sockets), loaded, link, owner).map_err(AttachError::system("BPF_OBJ_GET_INFO_BY_FD")),
            Err(error) if joins && matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                Self::join(interface, &loaded, owner)
            }
            Err(error) => Err(AttachError::of_frames(interface, "BPF_LINK_CREATE")(error)),
        }
    }

    fn new((rules, sockets): (Map, Map), loaded: Fd, link: Fd, owner: u32) -> io::Result<Self> {
        let id = bpf::id_of(&loaded)?;
        Ok(Self { rules, sockets, loaded: (loaded, id), link: Mutex::new(Arc::new(link)), owner })
    }

    fn join(interface: &Interface, own: &Fd, owner: u32) -> Result<Self, AttachError> {
        let there = || -> io::Result<Option<Self>> {
            let id = interface.program()?;
            let program = bpf::program_by_id(id)?;
            if bpf::tag_of(&program)? != bpf::tag_of(own)? {
                return Ok(None);
            }
            let [rules, sockets] = bpf::maps_of(&program, key::LEN)?;
            bpf::link_of(id)?.map(|link| Self::new((rules, sockets), program, link, owner)).transpose()
        };
        let found = there().map_err(AttachError::system("BPF_PROG_GET_FD_BY_ID of the program that another process has there"))?;
        found.ok_or(AttachError::Taken { what: "BPF_LINK_CREATE" })
    }

    /// The link by which it is in front of the interface, or was.
    pub(crate) fn link(&self) -> Arc<Fd> {
        Arc::clone(&self.link.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is in front of the interface now.
    pub(crate) fn front(&self) -> Front {
        Front::of(&self.link(), self.loaded.1)
    }

    /// Puts it in front of the interface again, from which somebody has detached it; or another process has, which has it as well.
    pub(crate) fn attach_again(&self, interface: &Interface) -> io::Result<()> {
        let (program, id) = &self.loaded;
        let link = match bpf::attach(program, interface.index) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => match bpf::link_of(*id) {
                Ok(Some(link)) => link,
                _ => return Err(error),
            },
            attached => attached?,
        };
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(link);
        Ok(())
    }

    /// What an earlier owner of that first queue has left, who was killed, is nobody's. To be called by who has the queue.
    pub(crate) fn clear(&self) {
        let is_its = |value: u32| value & !LEFT == self.owner;
        let mut left = Vec::new();
        let mut last: Option<Key> = None;
        while let Ok(next) = self.rules.next_key(last.as_ref()) {
            if self.rules.value(&next).is_ok_and(is_its) {
                left.push(next);
            }
            last = Some(next);
        }
        left.iter().for_each(|key| drop(self.rules.remove(key)));
    }

    /// Steers what has that key to the owner's sockets.
    pub(crate) fn steer(&self, key: &Key) -> io::Result<()> {
        self.rules.insert(key, self.owner)
    }

    /// Leaves it to the kernel, whatever wider key it has.
    pub(crate) fn leave(&self, key: &Key) -> io::Result<()> {
        self.rules.insert(key, self.owner | LEFT)
    }

    /// Ends either.
    pub(crate) fn end(&self, key: &Key) -> io::Result<()> {
        self.rules.remove(key)
    }

    /// A socket gets what comes for the owner by that queue of the interface.
    pub(crate) fn place(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        self.sockets.put(&(self.owner + queue).to_ne_bytes(), socket as u32)
    }
}
