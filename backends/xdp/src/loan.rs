//! What the ring of another process is made of: memory in a file, and a bound socket for each queue of the interface. Whoever holds the descriptors has the ring,
//! and needs no privilege for it. The kernel has pinned the pages when the memory was registered: the lender keeps nothing.

use std::io;

use ringway_host::Fd;

use crate::card::XdpDevice;
use crate::error::AttachError;
use crate::queues::FRAMES_MIN;
use crate::settings::Settings;
use crate::socket::{XskSocket, make_bound};
use crate::umem::Umem;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Loan {
    pub(crate) memory: Fd,
    /// One for each queue.
    pub(crate) sockets: Vec<Fd>,
    /// Frames to receive into, and to send from.
    pub(crate) receives: u32,
    pub(crate) sends: u32,
}

impl Loan {
    /// Of an interface whose queues are all free.
    pub(crate) fn make(device: &XdpDevice, settings: &Settings) -> Result<Self, AttachError> {
        let (queues, interface) = (device.queues(), device.interface().index);
        let (receives, sends) = (settings.received_frames.max(queues * FRAMES_MIN), settings.sent_frames);
        let file = || {
            let memory = memory(receives, sends)?;
            Ok((Umem::map_file(&memory, receives, sends, 0)?, memory))
        };
        let (umem, memory) = file().map_err(AttachError::system("memory for frames"))?;
        let mut sockets = Vec::new();
        for queue in 0..queues {
            sockets.push(make_bound(&umem, interface, queue, sockets.first())?);
        }
        let placed = device.place(sockets.iter().map(Fd::raw));
        placed.map_err(AttachError::system("BPF_MAP_UPDATE_ELEM of a socket"))?;
        Ok(Self { memory, sockets, receives, sends })
    }

    /// The ring's memory and sockets, with room for so many copies of frames.
    pub(crate) fn adopt(self, copies: u32) -> Result<(Umem, Vec<XskSocket>), AttachError> {
        let Self { memory, sockets, receives, sends } = self;
        let umem = Umem::map_file(&memory, receives, sends, copies).map_err(AttachError::system("memory for frames"))?;
        let sockets = sockets.into_iter().map(|socket| XskSocket::of(socket, &umem)).collect::<Result<Vec<_>, _>>()?;
        Ok((umem, sockets))
    }
}

/// A file of that many chunks that nobody makes shorter.
fn memory(receives: u32, sends: u32) -> io::Result<Fd> {
    let name = c"ringway-frames";
    // SAFETY: the name ends with a zero.
    let memory = Fd::make(|| unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no memory is involved.
    let done = unsafe {
        libc::syscall(libc::SYS_ftruncate, memory.raw(), Umem::len_of(receives, sends)) == 0
            && libc::syscall(libc::SYS_fcntl, memory.raw(), libc::F_ADD_SEALS, seals) == 0
    };
    if done { Ok(memory) } else { Err(io::Error::last_os_error()) }
}
