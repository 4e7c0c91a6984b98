//! What is to be known of an interface.

use std::ffi::CString;
use std::io;

use ringway_host::Fd;
use ringway_stack::device::MacAddr;
use ringway_stack::wire::ethernet;

use crate::error::AttachError;
use crate::umem::CHUNK;

const SIOCETHTOOL: libc::c_ulong = 0x8946;
/// include/uapi/linux/ethtool.h.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Bytes of an Ethernet header, with a VLAN tag.
pub(crate) const ETHERNET_MAX: usize = 18;

/// The length of a frame is counted in 16 bits here, with its headers: of an interface that has longer ones (veth) these are not made use of.
const MTU_MAX: usize = u16::MAX as usize - ETHERNET_MAX;

/// Bytes of a frame that fit behind what the kernel keeps in front of it in a chunk (XDP_PACKET_HEADROOM).
const RECEIVED_MAX: usize = CHUNK - 256;

/// The longest frame that begins with these bytes: an IP packet of the MTU, behind the Ethernet header that it has.
pub(crate) fn longest(interface: &Interface, head: &[u8]) -> usize {
    let ethernet_len = ethernet::Header::parse(head).map_or(ethernet::LEN, |(_, len)| len);
    interface.mtu + ethernet_len
}

/// An interface of this network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) mac: MacAddr,
    /// Of an IP packet, in bytes.
    pub(crate) mtu: usize,
    /// Its receive queues.
    pub(crate) queues: u32,
    /// Its longest frame takes several chunks of memory: multi-buffer frames (Documentation/networking/af_xdp.rst, "Multi-Buffer Support").
    pub(crate) is_long: bool,
    /// Its frames come from the same machine (veth): one whose sender left the checksum to the device has it unfinished.
    pub(crate) is_virtual: bool,
}

impl Interface {
    pub(crate) fn find(name: &str) -> Result<Self, AttachError> {
        let no_interface = || AttachError::NoInterface(name.to_owned());
        let c_name = CString::new(name).map_err(|_| no_interface())?;
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(no_interface());
        }
        // SAFETY: the name ends with a zero.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if index == 0 {
            return Err(no_interface());
        }
        let ask = Asker::new(name).map_err(AttachError::system("socket"))?;
        let (mac, mtu) = (|| Ok((ask.hardware_address()?, ask.mtu()?)))().map_err(AttachError::system("ioctl of an interface"))?;
        let mac = mac.ok_or_else(|| AttachError::NotEthernet(name.to_owned()))?;
        let mtu = mtu.min(MTU_MAX);
        let is_long = mtu + ETHERNET_MAX > RECEIVED_MAX;
        Ok(Self { index, mac, mtu, queues: ask.channels().max(1), is_long, is_virtual: ask.driver() == "veth" })
    }
}

impl Interface {
    /// The number of the XDP program in front of it.
    pub(crate) fn program(&self) -> io::Result<u32> {
        Ok(self.in_front()?.id)
    }

    /// The XDP program in front of it (rtnetlink(7): IFLA_XDP). There may be one of the driver's and one of the kernel's, of which no number is told here.
    fn in_front(&self) -> io::Result<InFront> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is involved.
        let fd = Fd::make(|| unsafe { libc::syscall(libc::SYS_socket, libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
        // `struct nlmsghdr`, and `struct ifinfomsg`: family, type, index, flags, change.
        let (mut question, mut answer) = ([0_u8; 32], vec![0_u8; 1 << 15]);
        question[..4].copy_from_slice(&32_u32.to_ne_bytes());
        question[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
        question[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
        question[20..24].copy_from_slice(&self.index.to_ne_bytes());
        // SAFETY: both are as long as is said.
        let len = unsafe {
            if libc::syscall(libc::SYS_sendto, fd.raw(), question.as_ptr(), question.len(), 0, 0, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            libc::syscall(libc::SYS_recvfrom, fd.raw(), answer.as_mut_ptr(), answer.len(), 0, 0, 0)
        };
        let answer = answer.get(..usize::try_from(len).map_err(|_| io::Error::last_os_error())?).unwrap_or_default();
        let is_answer = answer.get(4..6) == Some(&libc::RTM_NEWLINK.to_ne_bytes());
        answer.get(32..).filter(|_| is_answer).and_then(InFront::told).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The value of an attribute (`struct rtattr`) of that type.
fn attribute(mut all: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(all.get(..2)?.try_into().ok()?));
        // (Its two highest bits are flags.)
        let kind = u16::from_ne_bytes(all.get(2..4)?.try_into().ok()?) & 0x3fff;
        let value = all.get(4..len)?;
        if kind == wanted {
            return Some(value);
        }
        all = all.get(len.next_multiple_of(4)..)?;
    }
}

/// Asks the kernel about an interface.
pub(crate) struct Asker {
    fd: Fd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Asker {
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is involved.
        let fd = Fd::make(|| unsafe { libc::syscall(libc::SYS_socket, libc::AF_INET, kind, 0) })?;
        let mut bytes = [0; libc::IFNAMSIZ];
        bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
        Ok(Self { fd, name: bytes })
    }

    fn call(&self, request: libc::c_ulong, ifreq: &mut libc::ifreq) -> io::Result<()> {
        ifreq.ifr_name = self.name;
        // SAFETY: the request is readable and writable, and so is what it points to, which is what `ethtool` sees to.
        let result = unsafe { libc::syscall(libc::SYS_ioctl, self.fd.raw(), request, core::ptr::from_mut(ifreq)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn hardware_address(&self) -> io::Result<Option<MacAddr>> {
        let mut ifreq = empty();
        self.call(libc::SIOCGIFHWADDR, &mut ifreq)?;
        // SAFETY: that request has filled in an address.
        let address = unsafe { ifreq.ifr_ifru.ifru_hwaddr };
        let mut mac = [0; 6];
        mac.iter_mut().zip(address.sa_data).for_each(|(to, from)| *to = from as u8);
        Ok((address.sa_family == libc::ARPHRD_ETHER).then_some(MacAddr(mac)))
    }

    fn mtu(&self) -> io::Result<usize> {
        let mut ifreq = empty();
        self.call(libc::SIOCGIFMTU, &mut ifreq)?;
        // SAFETY: that request has filled in a number.
        Ok(unsafe { ifreq.ifr_ifru.ifru_mtu }.max(0) as usize)
    }

    /// Its driver's name, if it tells.
    fn driver(&self) -> String {
        // `struct ethtool_drvinfo`: the command, and the name in 32 bytes.
        let mut info = [0; 49];
        info[0] = ETHTOOL_GDRVINFO;
        if self.ethtool(&mut info).is_err() {
            return String::new();
        }
        let bytes: Vec<u8> = info[1..9].iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How many of its queues receive, as far as it tells; zero: it does not.
    fn channels(&self) -> u32 {
        // `struct ethtool_channels`: the command, four maxima, and of receivers, senders, others, and both, how many there are.
        let mut channels = [0; 9];
        channels[0] = ETHTOOL_GCHANNELS;
        if self.ethtool(&mut channels).is_ok() { channels[5] + channels[8] } else { 0 }
    }

    pub(crate) fn ethtool(&self, structure: &mut [u32]) -> io::Result<()> {
        let mut ifreq = empty();
        ifreq.ifr_ifru.ifru_data = structure.as_mut_ptr().cast();
        self.call(SIOCETHTOOL, &mut ifreq)
    }
}

/// What an interface is found to be, which is only looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Its index in this network namespace.
    pub index: u32,
    /// Its driver's name, if it tells.
    pub driver: String,
    /// Its receive queues.
    pub queues: u32,
    /// The XDP program in front of it, if there is one.
    pub program: Option<InFront>,
}

/// An XDP program that is in front of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFront {
    /// Its number.
    pub id: u32,
    /// Who runs it.
    pub runs: Runs,
}

/// Who runs an XDP program (linux/if_link.h, `XDP_ATTACHED_DRV` and so on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// The driver.
    Driver,
    /// The kernel, behind the driver.
    Kernel,
    /// The network card itself.
    Hardware,
}

impl InFront {
    /// As the attributes of an interface say. `None`: there is none, or it has no number (of several, each has one elsewhere).
    fn told(attributes: &[u8]) -> Option<Self> {
        const IFLA_XDP: u16 = 43;
        const IFLA_XDP_ATTACHED: u16 = 2;
        const IFLA_XDP_PROG_ID: u16 = 4;
        let xdp = attribute(attributes, IFLA_XDP)?;
        let id = u32::from_ne_bytes(attribute(xdp, IFLA_XDP_PROG_ID)?.try_into().ok()?);
        let runs = match attribute(xdp, IFLA_XDP_ATTACHED) {
            Some([1]) => Runs::Driver,
            Some([3]) => Runs::Hardware,
            _ => Runs::Kernel,
        };
        Some(Self { id, runs })
    }
}

impl Survey {
    /// Of an interface of this network namespace.
    ///
    /// # Errors
    /// [`AttachError::NoInterface`], [`AttachError::NotEthernet`], or the system's.
    pub fn of(name: &str) -> Result<Self, AttachError> {
        let interface = Interface::find(name)?;
        let driver = Asker::new(name).map(|ask| ask.driver()).unwrap_or_default();
        let program = interface.in_front().ok().filter(|program| program.id != 0);
        Ok(Self { index: interface.index, driver, queues: interface.queues, program })
    }
}

fn empty() -> libc::ifreq {
    // SAFETY: all zeroes is a valid request.
    unsafe { core::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_behind_others() {
        let all = [5, 0, 7, 0, 1, 0, 0, 0, 8, 0, 43, 0x80, 1, 2, 3, 4];
        assert_eq!(attribute(&all, 7), Some(&[1][..]));
        assert_eq!(attribute(&all, 43), Some(&[1, 2, 3, 4][..]));
        assert_eq!([attribute(&all, 8), attribute(&all[..14], 43), attribute(&[0; 8], 1)], [None; 3]);
    }

    #[test]
    fn a_program_is_the_drivers_the_kernels_or_the_cards() {
        // (IFLA_XDP, with IFLA_XDP_ATTACHED and IFLA_XDP_PROG_ID in it.)
        let of = |attached: u8| [20, 0, 43, 0, 5, 0, 2, 0, attached, 0, 0, 0, 8, 0, 4, 0, 9, 0, 0, 0];
        let runs = [1, 2, 3].map(|attached| InFront::told(&of(attached)).map(|program| (program.id, program.runs)));
        assert_eq!(runs, [Some((9, Runs::Driver)), Some((9, Runs::Kernel)), Some((9, Runs::Hardware))]);
        // (With nothing attached there is no number, and of several programs neither.)
        assert_eq!([InFront::told(&[12, 0, 43, 0, 5, 0, 2, 0, 4, 0, 0, 0]), InFront::told(&[])], [None; 2]);
    }
}
