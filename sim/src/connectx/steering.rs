//! Flow rules: what matches a frame, in which order, and where it goes.
//!
//! The order is that of the kernel's tables for a program's rules (drivers/infiniband/hw/mlx5/fs.c): sixteen priorities, lowest number first, in
//! each of which rules that let frames go on come before the others; then what matches groups alone, whatever its priority; then the default
//! rules. Which of two rules of one priority takes a frame that both match is in no header: here, the one that was made first (`guessed`).
//! Equal rules of one priority each get a copy, as the kernel makes them one entry with several destinations.

use super::packet::{Headers, TCP, Tunnel, UDP};

#[cfg(test)]
mod tests;

/// The last priority (linux/mlx5/device.h, `MLX5_BY_PASS_NUM_REGULAR_PRIOS` less one).
pub const PRIORITY_MAX: u16 = 15;
/// A tag has 24 bits.
pub const TAG_MAX: u32 = 0xff_ffff;

/// What a rule takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Frames that match all layers.
    Normal(Vec<Layer>),
    /// What no other rule takes.
    AllDefault,
    /// Of that, what is for a group.
    GroupsDefault,
    /// A copy of all that comes and goes.
    Sniffer,
}

/// A header, and bits of it: with `mask`, it must be `value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Ethernet's. A tag that is asked for must be there.
    Ethernet {
        /// Destination, source.
        value: [[u8; 6]; 2],
        /// Of both.
        mask: [[u8; 6]; 2],
        /// Type, and the mask of it.
        ethertype: (u16, u16),
        /// Control information of the tag, and the mask of it.
        vlan: (u16, u16),
    },
    /// IPv4's, or IPv6's.
    Ip {
        /// IPv6.
        v6: bool,
        /// Source, destination; IPv4's in the first four bytes.
        value: [[u8; 16]; 2],
        /// Of both.
        mask: [[u8; 16]; 2],
        /// What it carries, and the mask of it.
        protocol: (u8, u8),
        /// Type of service or traffic class, and the mask of it.
        tos: (u8, u8),
        /// IPv6's flow label, and the mask of it.
        flow_label: (u32, u32),
    },
    /// TCP's, or UDP's.
    Ports {
        /// UDP.
        udp: bool,
        /// Source, destination.
        value: [u16; 2],
        /// Of both.
        mask: [u16; 2],
    },
    /// A VXLAN tunnel's: its identifier, and the mask of it.
    Vxlan(u32, u32),
    /// A header inside of the tunnel.
    Inner(Box<Layer>),
}

/// What becomes of a frame that a rule takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is received, and its completion has the tag, or zero.
    Receive {
        /// Up to [`TAG_MAX`].
        tag: Option<u32>,
    },
    /// It is lost.
    Drop,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it takes.
    pub kind: Kind,
    /// Up to [`PRIORITY_MAX`].
    pub priority: u16,
    /// Later rules see what it takes as well.
    pub goes_on: bool,
    /// What becomes of it.
    pub action: Action,
    /// Number of the queue pair that receives.
    pub target: u32,
}

/// The rule that is there already says something else of the same frames (the kernel's fs_core.c gives EEXIST).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an equal rule has another action or tag")]
pub struct Conflict;

/// A receiver of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Number of the queue pair.
    pub target: u32,
    /// For the completion.
    pub tag: u32,
}

/// All rules of a card.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// In the order in which they are asked, and those of one place in the order in which they were made.
    rules: Vec<(u32, Rule)>,
    last: u32,
}

impl Rule {
    /// Where it is asked: the number of its table.
    fn place(&self) -> u32 {
        const GROUPS: u32 = 2 * (PRIORITY_MAX as u32 + 1);
        match &self.kind {
            // What no frame on its way in comes to.
            Kind::Sniffer => GROUPS + 2,
            Kind::AllDefault | Kind::GroupsDefault => GROUPS + 1,
            Kind::Normal(layers) if is_of_groups(layers) && !self.goes_on => GROUPS,
            Kind::Normal(_) => 2 * u32::from(self.priority) + u32::from(!self.goes_on),
        }
    }

    fn takes(&self, headers: &Headers, tunnel: Option<&Tunnel>) -> bool {
        match &self.kind {
            Kind::Normal(layers) => layers.iter().all(|layer| layer.matches(headers, tunnel)),
            Kind::AllDefault => true,
            Kind::GroupsDefault => headers.dst[0] & 1 != 0,
            Kind::Sniffer => false,
        }
    }
}

/// Whether the first layer matches groups alone (fs.c, `flow_is_multicast_only`).
fn is_of_groups(layers: &[Layer]) -> bool {
    match layers.first() {
        Some(Layer::Ethernet { value, mask, .. }) => value[0][0] & mask[0][0] & 1 != 0,
        Some(Layer::Ip { v6: false, value, .. }) => value[1][0] >> 4 == 0xe,
        _ => false,
    }
}

impl Layer {
    fn matches(&self, headers: &Headers, tunnel: Option<&Tunnel>) -> bool {
        let eq = |found: &[u8], value: &[u8], mask: &[u8]| found.iter().zip(value).zip(mask).all(|((f, v), m)| (f ^ v) & m == 0);
        match self {
            Self::Ethernet { value, mask, ethertype, vlan } => {
                let tag = vlan.1 == 0 || headers.vlan.is_some_and(|tag| (tag ^ vlan.0) & vlan.1 == 0);
                let addresses = eq(&headers.dst, &value[0], &mask[0]) && eq(&headers.src, &value[1], &mask[1]);
                addresses && tag && (headers.ethertype ^ ethertype.0) & ethertype.1 == 0
            }
            Self::Ip { v6, value, mask, protocol, tos, flow_label } => headers.ip.is_some_and(|ip| {
                let addresses = ip.v6 == *v6 && eq(&ip.src, &value[0], &mask[0]) && eq(&ip.dst, &value[1], &mask[1]);
                let rest = (ip.protocol ^ protocol.0) & protocol.1 == 0 && (ip.tos ^ tos.0) & tos.1 == 0;
                addresses && rest && (ip.flow_label ^ flow_label.0) & flow_label.1 == 0
            }),
            Self::Ports { udp, value, mask } => headers.ip.is_some_and(|ip| {
                let [src, dst] = ip.ports.map_or([None; 2], |(src, dst)| [Some(src), Some(dst)]);
                let is = |found: Option<u16>, at: usize| mask[at] == 0 || found.is_some_and(|found| (found ^ value[at]) & mask[at] == 0);
                ip.protocol == if *udp { UDP } else { TCP } && is(src, 0) && is(dst, 1)
            }),
            Self::Vxlan(id, mask) => tunnel.is_some_and(|tunnel| (tunnel.id ^ id) & mask == 0),
            Self::Inner(layer) => tunnel.is_some_and(|tunnel| layer.matches(&tunnel.inner, None)),
        }
    }
}

impl Table {
    /// Adds a rule; its number.
    ///
    /// # Errors
    /// [`Conflict`].
    pub fn add(&mut self, rule: Rule) -> Result<u32, Conflict> {
        let place = rule.place();
        let conflicts = |(_, other): &(u32, Rule)| other.place() == place && other.kind == rule.kind && other.action != rule.action;
        if self.rules.iter().any(conflicts) {
            return Err(Conflict);
        }
        self.last += 1;
        let at = self.rules.partition_point(|(_, other)| other.place() <= place);
        self.rules.insert(at, (self.last, rule));
        Ok(self.last)
    }

    /// Removes a rule, if it is there.
    pub fn remove(&mut self, number: u32) {
        self.rules.retain(|(other, _)| *other != number);
    }

    /// Whether a rule's frames are received by the queue pair `target`.
    pub fn has(&self, target: u32) -> bool {
        self.rules.iter().any(|(_, rule)| rule.target == target)
    }

    /// All rules.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|(_, rule)| rule)
    }

    /// Who receives a frame that comes in, which may be a tunnel's.
    pub fn steer(&self, headers: &Headers, tunnel: Option<&Tunnel>) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let mut rest = &self.rules[..];
        while let Some((_, first)) = rest.first() {
            let (table, later) = rest.split_at(rest.partition_point(|(_, rule)| rule.place() <= first.place()));
            rest = later;
            let Some((_, taking)) = table.iter().find(|(_, rule)| rule.takes(headers, tunnel)) else { continue };
            // Default rules of both kinds are alike for a group's frames.
            let is_default = !matches!(taking.kind, Kind::Normal(_));
            let equal = table.iter().filter(|(_, rule)| rule.kind == taking.kind || is_default && rule.takes(headers, tunnel));
            if let Action::Receive { tag } = taking.action {
                deliveries.extend(equal.map(|(_, rule)| Delivery { target: rule.target, tag: tag.unwrap_or(0) }));
            }
            if !taking.goes_on {
                break;
            }
        }
        deliveries
    }

    /// Who gets a copy of whatever comes and goes.
    pub fn sniffers(&self) -> Vec<u32> {
        self.rules().filter(|rule| rule.kind == Kind::Sniffer).map(|rule| rule.target).collect()
    }

    /// Destination addresses, and masks of them, to at least one of which every frame is that a rule may take; nothing if it may be any.
    pub fn addresses(&self) -> Option<Vec<[[u8; 6]; 2]>> {
        let of = |rule: &Rule| match &rule.kind {
            Kind::Normal(layers) => layers.iter().find_map(|layer| match layer {
                Layer::Ethernet { value, mask, .. } if mask[0] != [0; 6] => Some([value[0], mask[0]]),
                _ => None,
            }),
            Kind::GroupsDefault => Some([[1, 0, 0, 0, 0, 0]; 2]),
            Kind::AllDefault | Kind::Sniffer => None,
        };
        let mut all = self.rules().map(of).collect::<Option<Vec<_>>>()?;
        all.sort_unstable();
        all.dedup();
        Some(all)
    }
}
