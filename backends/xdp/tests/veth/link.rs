//! Two network namespaces and a cable between them.

use core::time::Duration;
use std::fs::File;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;

use ringway_stack::device::MacAddr;

use crate::namespaces::{enter, ip, mac, new_namespace, offloads_off};

pub(crate) const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
pub(crate) const PEERS_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);

/// What is between us and the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cable {
    pub(crate) is_v6: bool,
    /// The peer leaves checksums, and cutting, to its device.
    pub(crate) offloads: bool,
    /// Of each interface.
    pub(crate) queues: u32,
    pub(crate) mtu: u32,
}

impl Default for Cable {
    fn default() -> Self {
        Self { is_v6: false, offloads: true, queues: 1, mtu: 1500 }
    }
}

/// The cable, laid, with an interface at each end: `a0` is ours, `b0` the peer's.
pub(crate) struct Link {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    /// The peer's namespace. (Ours is the calling thread's, and its children's.)
    there: File,
}

impl Link {
    /// The calling thread is in our namespace from now on. `None`: there are none to be had.
    pub(crate) fn make(Cable { is_v6, offloads, queues, mtu }: Cable) -> Option<Self> {
        let here = new_namespace()?;
        let there = new_namespace()?;
        Command::new("ip").arg("-V").output().ok()?;
        let (id, fd) = (std::process::id(), here.as_raw_fd());
        ip(&format!(
            "link add b0 address {} numrxqueues {queues} numtxqueues {queues} type veth peer name a0 address {} numrxqueues {queues} \
             numtxqueues {queues}\nlink set a0 netns /proc/{id}/fd/{fd}\n",
            mac(PEERS_MAC),
            mac(OUR_MAC)
        ));
        ip(&format!("link set b0 mtu {mtu}\n"));
        ip("link set lo up\nlink set b0 up\naddr add 10.77.0.2/24 dev b0\naddr add fd77::2/64 dev b0 nodad\n");
        if !offloads {
            offloads_off("b0");
        }
        enter(&here);
        ip(&format!("link set a0 mtu {mtu}\n"));
        ip("link set lo up\nlink set a0 up\naddr add 10.77.0.1/24 dev a0\naddr add fd77::1/64 dev a0 nodad\n");
        let [local, remote] = if is_v6 { ["fd77::1", "fd77::2"] } else { ["10.77.0.1", "10.77.0.2"] };
        let [local, remote] = [local, remote].map(|ip| ip.parse().expect("an address"));
        let link = Self { local, remote, there };
        link.await_carrier();
        Some(link)
    }

    /// The interfaces are up a little later than they are set so.
    fn await_carrier(&self) {
        let to = SocketAddr::new(self.remote, 9);
        for _ in 0..200 {
            match TcpStream::connect(to) {
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return,
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        panic!("no way from {} to {}", self.local, self.remote);
    }

    /// Does something as the peer, in a thread of its own.
    pub(crate) fn as_peer<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> std::thread::JoinHandle<T> {
        let there = self.there.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            enter(&there);
            work()
        })
    }
}
