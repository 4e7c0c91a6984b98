//! What the ring of another process is made of: memory in a file, and a bound socket for each queue of the interface. Whoever holds the descriptors has the ring,
//! and needs no privilege for it. The kernel has pinned the pages when the memory was registered: the lender keeps nothing.

use std::io;

use ringway_host::Fd;

use crate::card::XdpDevice;
use crate::error::AttachError;
use crate::queues::FRAMES_MIN;
use crate::settings::Settings;
use crate::socket::{XskSocket, bind_at_once, is_mappable, make};
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

/// What takes long of it, and needs no queue: memory that is registered, with a socket that is not bound yet. It is kept while a queue is not free.
#[derive(Debug)]
pub(crate) struct Prepared {
    memory: Fd,
    first: Fd,
}

impl Loan {
    /// Of an interface whose queues are all free. `prepared`: what an earlier try has left, and this one leaves if the first queue is not free.
    pub(crate) fn make(device: &XdpDevice, settings: &Settings, prepared: &mut Option<Prepared>) -> Result<Self, AttachError> {
        let (queues, interface) = (device.queues(), device.interface());
        let (receives, sends) = (settings.received_frames.max(queues * FRAMES_MIN), settings.sent_frames);
        let Prepared { memory, first } = match prepared.take() {
            Some(prepared) => prepared,
            None => prepare(receives, sends)?,
        };
        if let Err(error) = bind_at_once(&first, interface, 0, None) {
            if matches!(error, AttachError::Taken { .. }) {
                *prepared = Some(Prepared { memory, first });
            }
            return Err(error);
        }
        let mut sockets = vec![first];
        for queue in 1..queues {
            let socket = make(None, [receives, sends])?;
            bind_at_once(&socket, interface, queue, sockets.first())?;
            sockets.push(socket);
        }
        let placed = device.place(0, sockets.iter().map(Fd::raw));
        placed.map_err(AttachError::system("BPF_MAP_UPDATE_ELEM of a socket"))?;
        Ok(Self { memory, sockets, receives, sends })
    }

    /// Whether whoever gets it can map it.
    ///
    /// # Errors
    /// [`AttachError::TooOld`].
    pub(crate) fn is_mappable(&self) -> Result<(), AttachError> {
        self.sockets.iter().try_for_each(|socket| is_mappable(socket, self.receives))
    }

    /// The ring's memory and sockets, with room for so many copies of frames.
    pub(crate) fn adopt(self, copies: u32) -> Result<(Umem, Vec<XskSocket>), AttachError> {
        let Self { memory, sockets, receives, sends } = self;
        let umem = Umem::map_file(&memory, receives, sends, copies).map_err(AttachError::system("memory for frames"))?;
        let sockets = sockets.into_iter().map(|socket| XskSocket::of(socket, &umem)).collect::<Result<Vec<_>, _>>()?;
        Ok((umem, sockets))
    }
}

fn prepare(receives: u32, sends: u32) -> Result<Prepared, AttachError> {
    let file = || {
        let memory = memory(receives, sends)?;
        Ok((Umem::map_file(&memory, receives, sends, 0)?, memory))
    };
    // (The kernel pins the pages: nobody needs the mapping any more.)
    let (umem, memory) = file().map_err(AttachError::system("memory for frames"))?;
    Ok(Prepared { first: make(Some(&umem), [receives, sends])?, memory })
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
