//! Where frames go, by the rules that were asked for and not by those that the driver made of them.
//!
//! A frame that a rule takes goes to a queue of that rule and to no other, with its tag. Of several rules that take it, it is one of those that name the most. Of a group,
//! all frames of a flow go to one queue, as long as the group is what it is. What no rule takes goes to the ring that gets the rest, or is lost while that one is made anew.

use std::collections::BTreeMap;

use ringway_sim::connectx::packet::{Headers, TCP, Tunnel, UDP};
use ringway_stack::device::{FlowRule, HeaderMatch, IpMatch, Protocol, RuleId};

/// Steps of priorities that the kernel has for a driver's rules: what names more counts as naming this many.
const STEPS: u32 = 7;

/// Addresses and ports of a flow: source and destination.
type Flow = ([u8; 16], [u8; 16], (u16, u16));

/// A rule that was asked for, and the queues that have it.
struct Asked {
    rule: FlowRule,
    tag: u32,
    members: Vec<(RuleId, u32)>,
    /// Queues that left, of a group that could not be changed then.
    former: Vec<u32>,
    /// Which flow goes where, since the group changed last.
    flows: BTreeMap<Flow, u32>,
    is_moved: bool,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Steering {
    asked: Vec<Asked>,
    /// The card's own address, which rules mean that name none.
    own: [u8; 6],
    /// The ring that gets what no rule takes.
    rest: Option<u32>,
    /// Frames that rules have taken.
    pub(crate) steered: u64,
    /// Of them, those that went to one of several queues of a group, and those whose rule had been moved.
    pub(crate) of_groups: u64,
    pub(crate) after_moves: u64,
}

impl Steering {
    /// The first ring of a card with this address was opened: it gets the rest.
    pub(crate) fn begin(&mut self, own: [u8; 6], ring: u32) {
        (self.own, self.rest) = (own, Some(ring));
    }

    pub(crate) fn attached(&mut self, rule: &FlowRule, id: RuleId, queue: u32) {
        let at = self.asked.iter().position(|asked| asked.rule.shared && rule.shared && asked.rule.collides_with(rule));
        let at = at.unwrap_or_else(|| {
            let (members, former, flows) = (Vec::new(), Vec::new(), BTreeMap::new());
            let asked = Asked { rule: *rule, tag: rule.tag, members, former, flows, is_moved: false };
            self.asked.push(asked);
            self.asked.len() - 1
        });
        self.asked[at].members.push((id, queue));
        self.asked[at].flows.clear();
    }

    pub(crate) fn retargeted(&mut self, id: RuleId, queue: u32, tag: u32) {
        for asked in &mut self.asked {
            if let Some(member) = asked.members.iter_mut().find(|(of, _)| *of == id) {
                member.1 = queue;
                (asked.tag, asked.is_moved) = (tag, true);
                asked.flows.clear();
                asked.former.clear();
            }
        }
    }

    /// Rules end. (While the system refuses objects, a group may go on as it was: `may_stay`.)
    pub(crate) fn ended(&mut self, of: impl Fn(RuleId, u32) -> bool, may_stay: bool) {
        for asked in &mut self.asked {
            let (gone, stay): (Vec<_>, Vec<_>) = asked.members.drain(..).partition(|(id, queue)| of(*id, *queue));
            asked.members = stay;
            if !gone.is_empty() {
                asked.flows.clear();
                if may_stay {
                    asked.former.extend(gone.iter().map(|(_, queue)| *queue));
                }
            }
        }
        self.asked.retain(|asked| !asked.members.is_empty());
    }

    /// Whether somebody asked for rules that lead to a queue.
    pub(crate) fn leads_to(&self, queue: u32) -> bool {
        self.rest == Some(queue) || self.asked.iter().any(|asked| asked.members.iter().any(|(_, member)| *member == queue))
    }

    /// A frame went to these queues, with these tags. What is wrong with that.
    pub(crate) fn wrong(&mut self, headers: &Headers, tunnel: Option<&Tunnel>, to: &[(u32, u32)], may_lag: bool) -> Option<String> {
        let own = self.own;
        let takes = |asked: &Asked| takes(&asked.rule, own, headers, tunnel).then(|| asked.rule.specificity().min(STEPS));
        let most = self.asked.iter().filter_map(takes).max();
        let Some(most) = most else {
            let is_right = to.iter().all(|(queue, tag)| Some(*queue) == self.rest && *tag == 0) && to.len() <= 1;
            return (!is_right).then(|| format!("a frame that no rule takes goes to {to:x?}"));
        };
        let [(queue, tag)] = *to else { return Some(format!("a frame that rules take goes to {} queues", to.len())) };
        let ports = headers.ip.and_then(|ip| ip.ports).unwrap_or_default();
        let flow = headers.ip.map(|ip| (ip.src, ip.dst, ports));
        let mut found = false;
        for asked in self.asked.iter_mut().filter(|asked| takes(asked) == Some(most)) {
            let is_member = asked.members.iter().any(|(_, member)| *member == queue);
            let is_former = may_lag && asked.former.contains(&queue);
            if !(is_member || is_former) || asked.tag != tag {
                continue;
            }
            found = true;
            self.of_groups += u64::from(asked.members.len() > 1);
            self.after_moves += u64::from(asked.is_moved);
            if let Some(flow) = flow.filter(|_| asked.members.len() > 1 && asked.former.is_empty()) {
                let before = *asked.flows.entry(flow).or_insert(queue);
                if before != queue {
                    return Some(format!("a flow of a group comes to {queue:#x}, and came to {before:#x}"));
                }
            }
        }
        self.steered += 1;
        let rules = || self.asked.iter().filter(|asked| takes(asked) == Some(most)).map(|asked| (asked.tag, &asked.members));
        (!found).then(|| format!("a frame goes to {queue:#x} with the tag {tag:#x}, and its rules are {:x?}", rules().collect::<Vec<_>>()))
    }
}

/// Whether a rule takes a frame. (One that is of packets, and names no address of Ethernet, is of those that come to the card's own.)
fn takes(rule: &FlowRule, own: [u8; 6], headers: &Headers, tunnel: Option<&Tunnel>) -> bool {
    let is_any = rule.outer.ethernet.dst.is_some() || rule.outer.ip.is_none() && rule.vxlan.is_none();
    (is_any || headers.dst == own)
        && matches(&rule.outer, headers)
        && rule.vxlan.is_none_or(|vxlan| {
            tunnel.is_some_and(|tunnel| vxlan.vni.is_none_or(|vni| vni == tunnel.id) && matches(&vxlan.inner, &tunnel.inner))
        })
}

fn is<T: PartialEq>(named: Option<T>, found: T) -> bool {
    named.is_none_or(|named| named == found)
}

fn matches(of: &HeaderMatch, headers: &Headers) -> bool {
    let ethernet = is(of.ethernet.dst.map(|mac| mac.0), headers.dst)
        && is(of.ethernet.src.map(|mac| mac.0), headers.src)
        && is(of.ethernet.ethertype, headers.ethertype);
    let vlan = of.vlan.is_none_or(|id| headers.vlan.is_some_and(|tag| tag & 0xfff == id));
    let ip = of.ip.is_none_or(|named| {
        headers.ip.is_some_and(|ip| match named {
            IpMatch::V4 { src, dst, tos } => {
                let four = |address: [u8; 16]| [address[0], address[1], address[2], address[3]];
                !ip.v6 && is(src.map(|src| src.octets()), four(ip.src)) && is(dst.map(|dst| dst.octets()), four(ip.dst)) && is(tos, ip.tos)
            }
            IpMatch::V6 { src, dst, traffic_class } => {
                ip.v6 && is(src.map(|src| src.octets()), ip.src) && is(dst.map(|dst| dst.octets()), ip.dst) && is(traffic_class, ip.tos)
            }
        })
    });
    let transport = of.transport.is_none_or(|named| {
        headers.ip.is_some_and(|ip| {
            let protocol = if named.protocol == Protocol::Tcp { TCP } else { UDP };
            let has = |port: Option<u16>, found: Option<u16>| port.is_none_or(|port| found == Some(port));
            let ports = ip.ports;
            ip.protocol == protocol && has(named.src_port, ports.map(|(src, _)| src)) && has(named.dst_port, ports.map(|(_, dst)| dst))
        })
    });
    ethernet && vlan && ip && transport
}
