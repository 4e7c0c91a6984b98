//! The device's files, as libibverbs and libmlx5 read them (spec of the paths: rdma-core's libibverbs/init.c and the kernel's
//! Documentation/ABI/stable/sysfs-class-infiniband). They are in memory alone: nothing is left when a process dies.

use core::net::Ipv4Addr;

use crate::wire::port::{self, Plug};

/// The device's name.
pub const NAME: &str = "mlx5_0";
/// Its address on the bus. The bus ends on this machine, as this address does. (On an interface, it has [that one's](address).)
pub const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Ethernet's address of everybody on the bus: packets of RoCE are told apart by queue pairs, frames by flow rules.
pub const MAC: [u8; 6] = [0x0c, 0x42, 0xa1, 0x12, 0x34, 0x56];
/// The node's and the port's identifier: below the vendor's prefix, 0c:42:a1.
pub const NODE_GUID: [u8; 8] = [0x0c, 0x42, 0xa1, 0x03, 0x00, 0x12, 0x34, 0x56];
/// Version of the firmware, whose behaviour is the model's own.
pub const FIRMWARE: [u16; 3] = [16, 35, 3006];
/// Vendor's part number: a ConnectX-5.
pub const PART: u32 = 0x1017;
/// The character device stands in for one that has the numbers of /dev/zero, so that fstat(2) needs no answer of ours.
pub const STAND_IN: &str = "/dev/zero";

/// One entry of the tree.
#[derive(Debug)]
pub struct Entry {
    /// Its whole path.
    pub path: &'static str,
    /// What it is.
    pub node: Node,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A folder.
    Folder,
    /// A file with this text.
    File(&'static str),
    /// The character device.
    Device,
    /// The character device of connection management.
    RdmaCm,
}

const fn folder(path: &'static str) -> Entry {
    Entry { path, node: Node::Folder }
}

const fn file(path: &'static str, text: &'static str) -> Entry {
    Entry { path, node: Node::File(text) }
}

/// All entries. What is below a folder has the folder's path before it.
pub static TREE: [Entry; 37] = [
    Entry { path: "/dev/infiniband/rdma_cm", node: Node::RdmaCm },
    folder("/sys/class/misc/rdma_cm"),
    file("/sys/class/misc/rdma_cm/abi_version", "4\n"),
    Entry { path: "/dev/infiniband/uverbs0", node: Node::Device },
    folder("/dev/infiniband"),
    folder("/sys/class/infiniband_verbs"),
    file("/sys/class/infiniband_verbs/abi_version", "6\n"),
    folder("/sys/class/infiniband_verbs/uverbs0"),
    file("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
    file("/sys/class/infiniband_verbs/uverbs0/abi_version", "1\n"),
    // Of /dev/zero.
    file("/sys/class/infiniband_verbs/uverbs0/dev", "1:5\n"),
    folder("/sys/class/infiniband_verbs/uverbs0/device"),
    file("/sys/class/infiniband_verbs/uverbs0/device/modalias", MODALIAS),
    file("/sys/class/infiniband_verbs/uverbs0/device/vendor", "0x15b3\n"),
    file("/sys/class/infiniband_verbs/uverbs0/device/device", "0x1017\n"),
    folder("/sys/class/infiniband"),
    folder("/sys/class/infiniband/mlx5_0"),
    file("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n"),
    file("/sys/class/infiniband/mlx5_0/node_guid", "0c42:a103:0012:3456\n"),
    file("/sys/class/infiniband/mlx5_0/sys_image_guid", "0c42:a103:0012:3456\n"),
    file("/sys/class/infiniband/mlx5_0/node_desc", "Ringway software ConnectX\n"),
    file("/sys/class/infiniband/mlx5_0/board_id", "RWY0000000001\n"),
    file("/sys/class/infiniband/mlx5_0/hca_type", "MT4119\n"),
    file("/sys/class/infiniband/mlx5_0/hw_rev", "0\n"),
    file("/sys/class/infiniband/mlx5_0/fw_ver", "16.35.3006\n"),
    folder("/sys/class/infiniband/mlx5_0/device"),
    file("/sys/class/infiniband/mlx5_0/device/modalias", MODALIAS),
    file("/sys/class/infiniband/mlx5_0/device/vendor", "0x15b3\n"),
    file("/sys/class/infiniband/mlx5_0/device/device", "0x1017\n"),
    file("/sys/class/infiniband/mlx5_0/device/numa_node", "-1\n"),
    folder("/sys/class/infiniband/mlx5_0/ports"),
    folder("/sys/class/infiniband/mlx5_0/ports/1"),
    file("/sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n"),
    file(GID_AT, "0000:0000:0000:0000:0000:ffff:7f00:0001\n"),
    file("/sys/class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff\n"),
    file("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "RoCE v2\n"),
    file(NETDEV_AT, "lo\n"),
];

/// The port's GID.
const GID_AT: &str = "/sys/class/infiniband/mlx5_0/ports/1/gids/0";
/// Which interface has the port; and in the environment, which one it is thought to be.
const NETDEV_AT: &str = "/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0";
const NETDEV: &str = "RINGWAY_CONNECTX_NETDEV";

/// The port's address: the interface's that it is plugged into, or [`ADDRESS`].
pub fn address() -> Ipv4Addr {
    match port::plug() {
        Plug::Interface(port) => port.address,
        Plug::Bus | Plug::Nothing => ADDRESS,
    }
}

fn gid(address: Ipv4Addr) -> String {
    address.to_ipv6_mapped().octets().chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect::<Vec<_>>().join(":")
}

impl Entry {
    /// The text of a file.
    pub fn text(&self) -> String {
        match self.node {
            Node::File(text) if self.path == NETDEV_AT => match port::name().or_else(|| std::env::var(NETDEV).ok()) {
                Some(interface) => format!("{interface}\n"),
                None => text.to_owned(),
            },
            Node::File(_) if self.path == GID_AT => format!("{}\n", gid(address())),
            Node::File(text) => text.to_owned(),
            Node::Folder | Node::Device | Node::RdmaCm => String::new(),
        }
    }
}

/// By which libibverbs finds the driver.
const MODALIAS: &str = "pci:v000015B3d00001017sv000015B3sd00000016bc02sc00i00\n";

/// Where the tree is rooted. Paths elsewhere are the kernel's.
const ROOTS: [&str; 4] = ["/sys/class/infiniband", "/sys/class/infiniband_verbs", "/sys/class/misc/rdma_cm", "/dev/infiniband"];

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Not the device's to say.
    Elsewhere,
    /// The device's, and there is nothing.
    Nothing,
    /// An entry's place in the tree.
    At(usize),
}

/// Looks at an absolute path. A slash at its end, and doubled ones, are as if they were not there.
pub fn find(path: &str) -> Found {
    let clean = clean(path);
    let is_ours = |root: &str| clean.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if !ROOTS.iter().any(|root| is_ours(root)) {
        return Found::Elsewhere;
    }
    match TREE.iter().position(|entry| entry.path == clean) {
        Some(at) => Found::At(at),
        None => Found::Nothing,
    }
}

/// Looks at a path that begins in a folder of the tree.
pub fn find_below(folder: usize, path: &str) -> Found {
    let base = TREE.get(folder).map_or("", |entry| entry.path);
    match path.starts_with('/') {
        true => find(path),
        false => find(&format!("{base}/{path}")),
    }
}

/// Names of what is in a folder, and whether each is a folder.
pub fn children(folder: usize) -> Vec<(&'static str, bool)> {
    let base = TREE.get(folder).map_or("", |entry| entry.path);
    let name = |entry: &'static Entry| {
        let name = entry.path.strip_prefix(base)?.strip_prefix('/')?;
        (!name.contains('/')).then_some((name, entry.node == Node::Folder))
    };
    TREE.iter().filter_map(name).collect()
}

fn clean(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.fold(String::new(), |path, part| path + "/" + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> &'static str {
        match find(path) {
            Found::At(at) => match TREE[at].node {
                Node::File(text) => text,
                other => panic!("{path} is {other:?}"),
            },
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn files_say_what_the_constants_are() {
        let guid = NODE_GUID.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect::<Vec<_>>().join(":");
        assert_eq!(text("/sys/class/infiniband/mlx5_0/node_guid").trim(), guid);
        let [major, minor, sub] = FIRMWARE;
        assert_eq!(text("/sys/class/infiniband/mlx5_0/fw_ver").trim(), format!("{major}.{minor}.{sub:04}"));
        assert_eq!(text("/sys/class/infiniband_verbs/uverbs0/ibdev").trim(), NAME);
        assert!(MODALIAS.contains(&format!("d{PART:08X}sv")));
        assert_eq!(text(GID_AT).trim(), gid(ADDRESS));
    }

    #[test]
    fn paths_lead_to_entries_to_nothing_or_elsewhere() {
        assert_eq!(find("/sys/class//infiniband/./mlx5_0/"), find("/sys/class/infiniband/mlx5_0"));
        assert_eq!(find("/sys/class/infiniband/mlx5_1"), Found::Nothing);
        assert_eq!(find("/sys/class/infiniband_mad"), Found::Elsewhere);
        assert_eq!(find("/etc/passwd"), Found::Elsewhere);
        let Found::At(folder) = find("/sys/class/infiniband_verbs") else { panic!("a folder") };
        assert_eq!(children(folder), [("abi_version", false), ("uverbs0", true)]);
        assert_eq!(find_below(folder, "uverbs0/dev"), find("/sys/class/infiniband_verbs/uverbs0/dev"));
    }
}
