//! Objects of librdmacm, each of which ends when it is dropped.

use core::ptr::{self, NonNull};
use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use rdma_core_sys as sys;
use rdma_core_sys::Rdmacm;
use ringway_host::Adopted;
use ringway_stack::device::messages::PrivateData;

use crate::address;
use crate::error::OpenError;
use crate::verbs::{made, name_of, set_nonblocking};

/// How often packets are sent again, and after how many waits for a receive a connection fails: 7 is for ever, on which rsockets count.
const RETRIES: u8 = 7;

/// A call's answer: zero, or -1 with errno.
fn done(answer: c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Functions that older libraries lack.
#[derive(Clone, Copy, Debug)]
struct Newer {
    init_qp_attr: unsafe extern "C" fn(*mut sys::rdma_cm_id, *mut sys::ibv_qp_attr, *mut c_int) -> c_int,
    establish: unsafe extern "C" fn(*mut sys::rdma_cm_id) -> c_int,
}

/// Where events of connections come.
#[derive(Debug)]
pub(crate) struct EventChannel {
    cm: &'static Rdmacm,
    newer: Newer,
    raw: NonNull<sys::rdma_event_channel>,
    _adopted: Adopted,
}

// SAFETY: librdmacm's objects may be used by any thread, and by several at once (rdma_cm(7)).
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}

/// Reads and atomics at once: those that we answer, and those that we ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depths {
    pub(crate) responder: u8,
    pub(crate) initiator: u8,
}

/// What happened.
pub(crate) struct Event {
    /// Whose it is: [`Id::set_number`].
    pub(crate) number: u32,
    pub(crate) kind: sys::rdma_cm_event_type,
    /// 0, a negative errno, or why the peer refused.
    pub(crate) status: c_int,
    pub(crate) private_data: PrivateData,
    /// What the peer would have.
    pub(crate) depths: Depths,
    /// Of an answer about datagrams: the queue pair that is asked for, and its key.
    pub(crate) datagrams_to: (u32, u32),
    /// Of a request: the connection.
    pub(crate) incoming: Option<Id>,
}

impl EventChannel {
    /// # Errors
    /// [`OpenError::Library`], [`OpenError::OldLibrary`]; the system's, of /dev/infiniband/rdma_cm.
    pub(crate) fn open() -> Result<Arc<Self>, OpenError> {
        let cm = Rdmacm::get().map_err(Clone::clone)?;
        let newer = Newer {
            init_qp_attr: cm.rdma_init_qp_attr.ok_or(OpenError::OldLibrary("rdma_init_qp_attr"))?,
            establish: cm.rdma_establish.ok_or(OpenError::OldLibrary("rdma_establish"))?,
        };
        // SAFETY: the call has no conditions.
        let raw = made(unsafe { cm.rdma_create_event_channel() }).map_err(OpenError::system("rdma_create_event_channel"))?;
        // SAFETY: just made; the field is never written again.
        let fd = unsafe { (*raw.as_ptr()).fd };
        let channel = Self { cm, newer, raw, _adopted: Adopted::new(fd) };
        set_nonblocking(fd).map_err(OpenError::system("fcntl of the event channel"))?;
        Ok(Arc::new(channel))
    }

    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    /// The next event, if there is one.
    pub(crate) fn next(self: &Arc<Self>) -> Option<Event> {
        let mut raw: *mut sys::rdma_cm_event = ptr::null_mut();
        // SAFETY: the channel is there. The event is copied before it is handed back, once; what it points to lasts as long. A request's identifier is ours from
        // then on.
        unsafe {
            if self.cm.rdma_get_cm_event(self.raw.as_ptr(), &raw mut raw) != 0 {
                return None;
            }
            let event = *raw;
            let is_request = event.event == sys::RDMA_CM_EVENT_CONNECT_REQUEST;
            let conn = event.param.conn;
            let mut private_data = PrivateData::new();
            // (Of other events the parameters are zeros, or a datagram's, whose first two members are the same.)
            if !conn.private_data.is_null() {
                let len = usize::from(conn.private_data_len).min(private_data.capacity());
                let bytes = core::slice::from_raw_parts(conn.private_data.cast::<u8>(), len);
                // (There is room for so many.)
                let _ = private_data.try_extend_from_slice(bytes);
            }
            let incoming = NonNull::new(event.id).filter(|_| is_request).map(|raw| Id { channel: self.clone(), raw });
            let number = (*event.id).context.addr() as u32;
            self.cm.rdma_ack_cm_event(raw);
            let datagrams_to = (event.param.ud.qp_num, event.param.ud.qkey);
            let depths = Depths { responder: conn.responder_resources, initiator: conn.initiator_depth };
            Some(Event { number, kind: event.event, status: event.status, private_data, depths, datagrams_to, incoming })
        }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: no identifier is left that has it.
        unsafe { self.cm.rdma_destroy_event_channel(self.raw.as_ptr()) };
    }
}

/// An identifier: a listener, a connection, or what may become one.
#[derive(Debug)]
pub(crate) struct Id {
    channel: Arc<EventChannel>,
    raw: NonNull<sys::rdma_cm_id>,
}

// SAFETY: as of the channel.
unsafe impl Send for Id {}

impl Id {
    pub(crate) fn new(channel: &Arc<EventChannel>, space: sys::rdma_port_space, number: u32) -> io::Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is there; its own pointer is a number to the library.
        done(unsafe { channel.cm.rdma_create_id(channel.raw.as_ptr(), &raw mut raw, name(number), space) })?;
        Ok(Self { channel: channel.clone(), raw: made(raw)? })
    }

    fn raw(&self) -> *mut sys::rdma_cm_id {
        self.raw.as_ptr()
    }

    /// Gives it the number by which its events are known: a request's identifier has its listener's before.
    pub(crate) fn set_number(&mut self, number: u32) {
        // SAFETY: the identifier is ours, and the library never looks at this field.
        unsafe { (*self.raw()).context = name(number) };
    }

    /// The name of its device, once that is known.
    pub(crate) fn device(&self, verbs: &sys::Ibverbs) -> Option<String> {
        // SAFETY: the identifier is there, and so is its device while it is.
        unsafe {
            let context = NonNull::new((*self.raw()).verbs)?;
            Some(name_of(verbs, (*context.as_ptr()).device))
        }
    }

    /// Our address, and the peer's, as far as they are known.
    pub(crate) fn names(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        // SAFETY: the identifier is there; both have room for any address.
        unsafe {
            let local = sys::rdma_get_local_addr(self.raw());
            let peer = sys::rdma_get_peer_addr(self.raw());
            (address::from_c(local), address::from_c(peer))
        }
    }

    /// Binds it; with `::` to IPv6's addresses alone.
    pub(crate) fn bind(&self, at: SocketAddr) -> io::Result<()> {
        let mut only: c_int = 1;
        let mut at_c = address::to_c(at);
        let cm = self.channel.cm;
        // SAFETY: the identifier is there; the option has as many bytes as are said, and the address as many as its family has.
        unsafe {
            if at.is_ipv6() {
                let (level, option) = (sys::RDMA_OPTION_ID, sys::RDMA_OPTION_ID_AFONLY);
                done(cm.rdma_set_option(self.raw(), level, option, (&raw mut only).cast(), size_of_val(&only)))?;
            }
            done(cm.rdma_bind_addr(self.raw(), (&raw mut at_c).cast()))
        }
    }

    pub(crate) fn listen(&self, backlog: usize) -> io::Result<()> {
        // SAFETY: the identifier is there.
        done(unsafe { self.channel.cm.rdma_listen(self.raw(), c_int::try_from(backlog).unwrap_or(c_int::MAX)) })
    }

    /// Begins to look for the device, and the neighbour, by which `to` is reached.
    pub(crate) fn resolve_address(&self, from: Option<SocketAddr>, to: SocketAddr, timeout_ms: c_int) -> io::Result<()> {
        let mut from = from.map(address::to_c);
        let mut to = address::to_c(to);
        let from = from.as_mut().map_or(ptr::null_mut(), |from| (&raw mut *from).cast());
        // SAFETY: the identifier is there, and the addresses have as many bytes as their families.
        done(unsafe { self.channel.cm.rdma_resolve_addr(self.raw(), from, (&raw mut to).cast(), timeout_ms) })
    }

    /// Begins to look for the way there.
    pub(crate) fn resolve_route(&self, timeout_ms: c_int) -> io::Result<()> {
        // SAFETY: the identifier is there.
        done(unsafe { self.channel.cm.rdma_resolve_route(self.raw(), timeout_ms) })
    }

    /// Asks for a connection of the queue pair of that number.
    pub(crate) fn connect(&self, qpn: u32, depths: Depths, private_data: &[u8]) -> io::Result<()> {
        let mut param = parameters(qpn, depths, private_data)?;
        // SAFETY: the identifier is there; the library copies the private data.
        done(unsafe { self.channel.cm.rdma_connect(self.raw(), &raw mut param) })
    }

    /// Agrees to one.
    pub(crate) fn accept(&self, qpn: u32, depths: Depths, private_data: &[u8]) -> io::Result<()> {
        let mut param = parameters(qpn, depths, private_data)?;
        // SAFETY: as above.
        done(unsafe { self.channel.cm.rdma_accept(self.raw(), &raw mut param) })
    }

    /// Says to the peer that its agreement has arrived.
    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: the identifier is there, and has no queue pair of the library's.
        done(unsafe { (self.channel.newer.establish)(self.raw()) })
    }

    pub(crate) fn reject(&self) {
        // SAFETY: the identifier is there. What has ended meanwhile needs no refusal.
        unsafe { self.channel.cm.rdma_reject(self.raw(), ptr::null(), 0) };
    }

    /// Ends the connection, or agrees that it has ended.
    pub(crate) fn disconnect(&self) {
        // SAFETY: the identifier is there. What has ended already needs no end.
        unsafe { self.channel.cm.rdma_disconnect(self.raw()) };
    }

    /// A message came before the peer's last word on the connection.
    pub(crate) fn communicates(&self) {
        // SAFETY: the identifier is there. Once the connection stands, this is refused.
        unsafe { self.channel.cm.rdma_notify(self.raw(), sys::IBV_EVENT_COMM_EST) };
    }

    /// What the queue pair's next state takes: its attributes, and which of them count.
    pub(crate) fn attributes(&self, state: sys::ibv_qp_state) -> io::Result<(sys::ibv_qp_attr, u32)> {
        let mut attr = sys::ibv_qp_attr { qp_state: state, ..sys::ibv_qp_attr::default() };
        let mut mask = 0;
        // SAFETY: the identifier is there, and both are writable.
        done(unsafe { (self.channel.newer.init_qp_attr)(self.raw(), &raw mut attr, &raw mut mask) })?;
        // (The kernel's own bits, of Ethernet addresses, mean nothing to ibv_modify_qp(3).)
        Ok((attr, mask.cast_unsigned() & STANDARD_BITS))
    }
}

/// The bits of ibv_qp_attr_mask from IBV_QP_STATE to IBV_QP_DEST_QPN.
const STANDARD_BITS: u32 = 0x001f_ffff;

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: ours, and ended once. It waits for events that were not handed back, of which there are none.
        if let Err(error) = done(unsafe { self.channel.cm.rdma_destroy_id(self.raw()) }) {
            tracing::debug!("an identifier does not end: {error}");
        }
    }
}

/// A number as the library keeps it.
const fn name(number: u32) -> *mut c_void {
    ptr::without_provenance_mut(number as usize)
}

fn parameters(qp_num: u32, depths: Depths, private_data: &[u8]) -> io::Result<sys::rdma_conn_param> {
    Ok(sys::rdma_conn_param {
        private_data: private_data.as_ptr().cast(),
        private_data_len: u8::try_from(private_data.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        responder_resources: depths.responder,
        initiator_depth: depths.initiator,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        srq: 0,
        qp_num,
    })
}
