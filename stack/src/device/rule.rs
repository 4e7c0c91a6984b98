//! Flow rules: which frames are steered to a ring.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{MacAddr, Unsupported};

/// The transport protocol of a rule or a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// IP protocol 6.
    Tcp,
    /// IP protocol 17.
    Udp,
}

/// What sockets steer by: protocol and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Destination of the frames: our side. `0.0.0.0` and `::` match every local address of their family.
    pub local: SocketAddr,
    /// Source of the frames: the peer. `None` matches every peer.
    pub remote: Option<SocketAddr>,
}

/// Fields of an Ethernet header; `None` matches anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EthernetMatch {
    /// Destination.
    pub dst: Option<MacAddr>,
    /// Source.
    pub src: Option<MacAddr>,
    /// The type behind a VLAN tag, if there is one.
    pub ethertype: Option<u16>,
}

/// Fields of an IP header; `None` matches anything of that version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpMatch {
    /// IPv4.
    V4 {
        /// Source.
        src: Option<Ipv4Addr>,
        /// Destination.
        dst: Option<Ipv4Addr>,
        /// The type-of-service byte: DSCP and ECN as on the wire.
        tos: Option<u8>,
    },
    /// IPv6.
    V6 {
        /// Source.
        src: Option<Ipv6Addr>,
        /// Destination.
        dst: Option<Ipv6Addr>,
        /// The traffic class byte.
        traffic_class: Option<u8>,
    },
}

/// A transport protocol and its ports; `None` matches any port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransportMatch {
    /// TCP or UDP. Fragments behind the first have no ports, and match no rule that names a protocol.
    pub protocol: Protocol,
    /// Source port.
    pub src_port: Option<u16>,
    /// Destination port.
    pub dst_port: Option<u16>,
}

/// Headers from Ethernet to transport; `None` matches anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeaderMatch {
    /// Ethernet.
    pub ethernet: EthernetMatch,
    /// VLAN id (12 bits).
    pub vlan: Option<u16>,
    /// IPv4 or IPv6.
    pub ip: Option<IpMatch>,
    /// TCP or UDP.
    pub transport: Option<TransportMatch>,
}

/// A VXLAN tunnel (RFC 7348) inside the outer headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VxlanMatch {
    /// The tunnel's network identifier (24 bits).
    pub vni: Option<u32>,
    /// The encapsulated frame.
    pub inner: HeaderMatch,
}

/// Which frames are steered to a ring, and with what mark.
///
/// Of the rules that match a frame, the one with the lowest [`FlowRule::priority`] wins; of those, the most specific one (that names
/// the most fields); of those, the one attached first. Frames for a group address are copied to every ring that has a rule for
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRule {
    /// The frame's own headers.
    pub outer: HeaderMatch,
    /// The tunnel inside. `None`: matches with and without.
    pub vxlan: Option<VxlanMatch>,
    /// Lower wins, as with verbs and mlx5.
    pub priority: u16,
    /// Delivered with each frame, as [`super::RxMeta::flow_tag`].
    pub tag: u32,
    /// Rings that attach shared rules with equal fields and priority form a group: each flow goes to one of them, by a Toeplitz
    /// hash over its addresses and ports (RSS), or, where the sender knows the group, by turns. A ring that attaches such a rule several times has
    /// as many shares. Rules that aren't shared are held by one ring only.
    pub shared: bool,
    /// What the kernel calls the socket that stands beside the flow there (socket(7), SO_COOKIE); zero: none does, or nobody knows. A device whose
    /// senders can ask the kernel which socket something is for goes by that.
    pub cookie: u64,
}

fn v4(address: SocketAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(ip) = address.ip() { Some(ip) } else { None }
}

fn v6(address: SocketAddr) -> Option<Ipv6Addr> {
    if let IpAddr::V6(ip) = address.ip() { Some(ip) } else { None }
}

impl FlowRule {
    /// The priority of sockets' rules, and of [`FlowRule::any`]: a program's own rules can go before and behind.
    pub const PRIORITY_DEFAULT: u16 = 16;

    /// Matches every frame.
    pub const fn any() -> Self {
        const ANY: HeaderMatch =
            HeaderMatch { ethernet: EthernetMatch { dst: None, src: None, ethertype: None }, vlan: None, ip: None, transport: None };
        Self { outer: ANY, vxlan: None, priority: Self::PRIORITY_DEFAULT, tag: 0, shared: false, cookie: 0 }
    }

    /// What sockets attach: frames of `protocol` to `local` (`0.0.0.0`, `::`: to every address of that family), from `remote`, of the same family, or anybody.
    pub fn flow(protocol: Protocol, local: SocketAddr, remote: Option<SocketAddr>) -> Self {
        let is_any = local.ip().is_unspecified();
        let ip = match local.ip() {
            IpAddr::V4(dst) => IpMatch::V4 { src: remote.and_then(v4), dst: (!is_any).then_some(dst), tos: None },
            IpAddr::V6(dst) => IpMatch::V6 { src: remote.and_then(v6), dst: (!is_any).then_some(dst), traffic_class: None },
        };
        let transport = TransportMatch { protocol, src_port: remote.map(|r| r.port()), dst_port: Some(local.port()) };
        let outer = HeaderMatch { ip: Some(ip), transport: Some(transport), ..HeaderMatch::default() };
        Self { outer, ..Self::any() }
    }

    /// The same rule, at this priority.
    #[must_use]
    pub const fn priority(self, priority: u16) -> Self {
        Self { priority, ..self }
    }

    /// The same rule, with this flow tag.
    #[must_use]
    pub const fn tag(self, tag: u32) -> Self {
        Self { tag, ..self }
    }

    /// The same rule, as one ring's part of a group.
    #[must_use]
    pub const fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// The rule as [`FlowRule::flow`] made it, whatever its priority, tag and sharing. `None`: it names other fields.
    pub fn addresses(&self) -> Option<FiveTuple> {
        let HeaderMatch { ethernet, vlan: None, ip: Some(ip), transport: Some(transport) } = self.outer else { return None };
        let (src, dst) = match ip {
            IpMatch::V4 { src, dst, tos: None } => (src.map(IpAddr::V4), dst.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4)),
            IpMatch::V6 { src, dst, traffic_class: None } => {
                (src.map(IpAddr::V6), dst.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6))
            }
            _ => return None,
        };
        if ethernet != EthernetMatch::default() || self.vxlan.is_some() {
            return None;
        }
        let remote = match (src, transport.src_port) {
            (None, None) => None,
            (Some(ip), Some(port)) => Some(SocketAddr::new(ip, port)),
            _ => return None,
        };
        let local = SocketAddr::new(dst, transport.dst_port?);
        Some(FiveTuple { protocol: transport.protocol, local, remote })
    }

    /// The rule as [`FlowRule::flow`] made it, for devices that steer by nothing else. `None`: it asks for more than that.
    pub fn as_five_tuple(&self) -> Option<FiveTuple> {
        let plain = self.priority == Self::PRIORITY_DEFAULT && self.tag == 0 && !self.shared;
        self.addresses().filter(|_| plain)
    }

    /// What a device must be able to steer by for this rule.
    pub fn needs(&self) -> Steering {
        let mut needs = self.outer.needs();
        if let Some(vxlan) = &self.vxlan {
            needs |= Steering::VXLAN | vxlan.inner.needs();
        }
        needs.set(Steering::PRIORITY, self.priority != Self::PRIORITY_DEFAULT);
        needs.set(Steering::TAG, self.tag != 0);
        needs.set(Steering::RSS, self.shared);
        needs
    }

    /// How many fields the rule names.
    pub fn specificity(&self) -> u32 {
        let vxlan = self.vxlan.map_or(0, |vxlan| 1 + u32::from(vxlan.vni.is_some()) + vxlan.inner.specificity());
        self.outer.specificity() + vxlan
    }

    /// Whether two rules match the same frames at the same priority: one ring has them, or a group.
    pub fn collides_with(&self, other: &Self) -> bool {
        self.priority == other.priority && self.outer == other.outer && self.vxlan == other.vxlan
    }
}

impl HeaderMatch {
    fn needs(&self) -> Steering {
        let mut needs = Steering::empty();
        needs.set(Steering::ETHERNET, self.ethernet != EthernetMatch::default());
        needs.set(Steering::VLAN, self.vlan.is_some());
        needs.set(Steering::TOS, matches!(self.ip, Some(IpMatch::V4 { tos: Some(_), .. } | IpMatch::V6 { traffic_class: Some(_), .. })));
        needs.set(Steering::IPV6, matches!(self.ip, Some(IpMatch::V6 { .. })));
        needs
    }

    fn specificity(&self) -> u32 {
        let count = |named: &[bool]| named.iter().map(|&named| u32::from(named)).sum::<u32>();
        let EthernetMatch { dst, src, ethertype } = self.ethernet;
        let ip = match self.ip {
            None => 0,
            Some(IpMatch::V4 { src, dst, tos }) => 1 + count(&[src.is_some(), dst.is_some(), tos.is_some()]),
            Some(IpMatch::V6 { src, dst, traffic_class }) => 1 + count(&[src.is_some(), dst.is_some(), traffic_class.is_some()]),
        };
        let transport = self.transport.map_or(0, |t| 1 + count(&[t.src_port.is_some(), t.dst_port.is_some()]));
        count(&[dst.is_some(), src.is_some(), ethertype.is_some(), self.vlan.is_some()]) + ip + transport
    }
}

bitflags::bitflags! {
    /// What a device can steer by, beside the flows of sockets ([`FlowRule::flow`]).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Steering: u16 {
        /// Ethernet addresses and type.
        const ETHERNET = 1;
        /// VLAN id.
        const VLAN = 2;
        /// IPv4's type of service, IPv6's traffic class.
        const TOS = 4;
        /// IPv6 addresses.
        const IPV6 = 8;
        /// VXLAN's network identifier and the headers inside.
        const VXLAN = 16;
        /// Priorities.
        const PRIORITY = 32;
        /// Flow tags.
        const TAG = 64;
        /// Groups of rings: [`FlowRule::shared`].
        const RSS = 128;
    }
}

/// Names an attached rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u64);

/// Why a rule was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Another ring (perhaps another process) holds it.
    #[error("another ring holds this flow rule")]
    Taken,
    /// The device's table is full, or the system refused a resource.
    #[error("no room for another flow rule")]
    Full,
    /// The caller: the device cannot steer by these fields.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The caller: no such ring, or no such cyclic queue.
    #[error("no such receive queue")]
    NoQueue,
    /// It has ended: its ring did, or it failed ([`super::DeviceEvent::RuleFailed`]).
    #[error("the flow rule has ended")]
    Ended,
}

#[cfg(test)]
mod tests;
