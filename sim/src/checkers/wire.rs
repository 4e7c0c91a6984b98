//! Frames, as they leave and reach a host's NIC.

use core::time::Duration;
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ringway_stack::Instant;
use ringway_stack::device::ChecksumVerdict;

use super::datagrams::Datagram;
use super::flow::{self, Endpoint};
use super::forged::Forged;
use super::ring_state::RingState;
use super::segment::{ACK, RST, SYN, Segment};
use super::{Checkers, Moment, Question, after_close, fast_open, forged, headers, info, is_tainted, link, rto, sequence, shadow, window};
use crate::apps::is_probers;
use crate::checksum;
use crate::dissect::{self, Ip, Lookup, Payload, TCP, UDP};
use crate::fabric::{Frame, Marks};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// How long the stack waits for an answer, and how often it asks.
const ARP_RETRY: Duration = Duration::from_secs(1);
const ARP_TRIES: u32 = 3;

/// What a packet carries, if it is whole.
enum Carried {
    Segment(Segment),
    Datagram(Datagram),
    Other,
}

impl Carried {
    fn of(bytes: &[u8], payload: &Payload) -> Self {
        match payload {
            Payload::Ip(ip) if ip.protocol == TCP => Segment::parse(bytes, ip).map_or(Self::Other, Self::Segment),
            Payload::Ip(ip) if ip.protocol == UDP => datagram(bytes, ip).map_or(Self::Other, Self::Datagram),
            _ => Self::Other,
        }
    }
}

impl Checkers {
    /// A host's ring sent a frame; `frame`: its number on the wire, if it is there already.
    pub(crate) fn sent(&mut self, now: Instant, host: usize, frame: Option<u64>, bytes: &[u8]) {
        let payload = dissect::payload(bytes);
        if is_probers(bytes) {
            return self.probed(now, host, bytes, &payload);
        }
        let moment = self.at(now, host, frame);
        let carried = Carried::of(bytes, &payload);
        self.looked_up(&moment, bytes, &payload, &carried);
        self.formed(&moment, bytes, &payload);
        match payload {
            Payload::Ip(ip) if ip.protocol == TCP => {
                if let Carried::Segment(segment) = &carried {
                    self.segment_sent(moment, bytes, segment);
                }
            }
            Payload::Ip(ip) if ip.protocol == UDP => {
                if let Carried::Datagram(datagram) = carried {
                    let port = dissect::be16(bytes, ip.l4).unwrap_or(0);
                    let watched = self.places[host].iter().any(|&place| self.ring_states[place].bound.contains_key(&(false, port)));
                    self.datagrams.sent(&moment, datagram, watched);
                }
            }
            Payload::Lookup(lookup) => self.lookup_sent(now, host, &lookup),
            _ => {}
        }
    }

    /// What a prober sent, beside whatever stack its host has.
    fn probed(&mut self, now: Instant, host: usize, bytes: &[u8], payload: &Payload) {
        if let Payload::Ip(ip) = payload
            && ip.protocol == UDP
            && let Some(datagram) = datagram(bytes, ip)
        {
            let moment = self.at(now, host, None);
            self.datagrams.sent(&moment, datagram, false);
        }
    }

    /// What a stack sent has the form that it must have, and answers something if it is an answer.
    fn formed(&mut self, moment: &Moment, bytes: &[u8], payload: &Payload) {
        let host = moment.host;
        if self.is_raw(host) {
            return;
        }
        match payload {
            Payload::Ip(ip) => {
                headers::sent(moment, bytes, ip);
                match ip.protocol {
                    _ if ip.is_icmp() => self.answers(moment, bytes, payload),
                    headers::IGMP => self.reported(moment, bytes, ip),
                    headers::HOP_BY_HOP if ip.is_v6() => self.listening_reported(moment, bytes, ip),
                    UDP => {
                        let (port, places) = (dissect::be16(bytes, ip.l4).unwrap_or(0), &self.places[host]);
                        let options = places.iter().flat_map(|&place| self.ring_states[place].options_of(port));
                        headers::datagram(moment, bytes, ip, options);
                    }
                    _ => {}
                }
            }
            Payload::Lookup(_) => self.answers(moment, bytes, payload),
            Payload::Other(ETHERTYPE_IPV4 | ETHERTYPE_IPV6) => headers::unknown(moment),
            Payload::Other(_) => {}
        }
    }

    /// What was sent says whom its host asked for, and whom it believes to know.
    fn looked_up(&mut self, moment: &Moment, bytes: &[u8], payload: &Payload, carried: &Carried) {
        let host = moment.host;
        match payload {
            &Payload::Lookup(Lookup { asks, sender, target, .. }) => {
                link::claims(moment, sender);
                let is_question = asks && sender != target;
                if let Some(to) = dissect::mac_at(bytes, 0).filter(|_| is_question && self.asks_alone(host)) {
                    self.neighbours.entry((host, target)).or_default().asked(moment, target, to);
                    if to.is_multicast() {
                        self.asked_for(moment, target);
                    }
                }
                if sender == target {
                    self.neighbour_tables[host].moved = false;
                }
            }
            Payload::Ip(ip) if ip.is_icmp() && dissect::is_icmp_error(bytes) => link::error_sent(moment, bytes, ip),
            // (A reset goes back to where it is asked for.)
            Payload::Ip(ip) if ip.protocol == UDP || matches!(carried, Carried::Segment(segment) if !segment.has(RST)) => {
                // (A SYN is answered where it came from, however long nobody answers that, and nobody is asked: or a flood of SYNs made one of questions.)
                let is_answer = matches!(carried, Carried::Segment(segment) if segment.has(SYN) && segment.has(ACK));
                if self.asks_alone(host)
                    && let Some(neighbour) = self.neighbours.get(&(host, ip.dst)).filter(|_| !is_answer)
                {
                    neighbour.used(moment, ip.dst, || self.places[host].iter().any(|&place| self.ring_states[place].refused));
                }
                let said = if let Carried::Datagram(datagram) = carried { Some(*datagram) } else { None };
                self.went_to(moment, bytes, ip.dst, said, is_answer);
            }
            _ => {}
        }
    }

    /// Whether a program beside the stack sends and takes frames there, too, or one calls the stack unseen.
    pub(super) fn is_raw(&self, host: usize) -> bool {
        self.places[host].iter().any(|&place| self.ring_states[place].raw || self.ring_states[place].unseen)
    }

    /// Whether what a host asks is asked by one ring, whose stack is the only one there.
    pub(super) fn asks_alone(&self, host: usize) -> bool {
        !self.introduced && self.places[host].len() == 1 && !self.ring_states[self.places[host][0]].raw
    }

    /// All hosts know one another.
    pub(crate) fn introduce(&mut self) {
        self.introduced = true;
        self.neighbours.clear();
    }

    /// What a host knows of its neighbours may be anything.
    pub(super) fn forget_neighbours(&mut self, host: usize) {
        self.neighbours.retain(|&(whose, _), _| whose != host);
        self.neighbour_tables[host].forget();
    }

    /// A frame that reached a host's NIC may say which MAC address somebody has: by a claim, or by a connection that begins. `lost`: its checksum is wrong.
    fn learned(&mut self, moment: &Moment, bytes: &[u8], payload: &Payload, lost: bool) {
        let sender = match payload {
            Payload::Lookup(lookup) => Some(lookup.sender).filter(|_| lookup.tells(moment.ip)),
            Payload::Ip(ip) if ip.protocol == TCP && bytes.get(ip.l4 + 13).is_some_and(|flags| flags & SYN != 0) => {
                Some(ip.src).filter(|_| !lost)
            }
            _ => None,
        };
        let Some(sender) = sender else { return };
        self.claimed(moment, bytes, payload, sender);
        if let Some(neighbour) = self.neighbours.get_mut(&(moment.host, sender)) {
            neighbour.heard(moment.at);
        }
    }

    /// A host goes by its own clock.
    pub(super) fn at(&self, now: Instant, host: usize, frame: Option<u64>) -> Moment {
        let place = self.first(host);
        let ahead = self.ring_states.get(place).map_or(Duration::ZERO, |ring_state| ring_state.ahead);
        Moment { at: now + ahead, ..self.moment(place, frame) }
    }

    /// Whatever waits for the answer to a request is excused until it is asked again, or given up.
    fn lookup_sent(&mut self, now: Instant, host: usize, &Lookup { asks, sender, target, .. }: &Lookup) {
        if !asks || sender == target {
            return;
        }
        self.excuse(now, host, ARP_RETRY);
        let by_its_clock = self.at(now, host, None).at;
        let Question { asked, at, by_clock } = self.questions.entry((host, target)).or_default();
        if now > *at + 2 * ARP_RETRY {
            // That one was answered, or given up.
            *asked = 0;
        }
        (*asked, *at, *by_clock) = (*asked + 1, now, by_its_clock);
        // RFC 1122 s2.3.2.2: what waited for it is thrown away in the end. Which ring asked is not to be seen.
        if *asked >= ARP_TRIES {
            self.flows.lose_silently(host, target);
        }
    }

    /// Whether a host has asked for a neighbour as often as it does, and may not have given it up yet.
    fn asks_for_the_last_time(&self, moment: &Moment, target: IpAddr) -> bool {
        let question = self.questions.get(&(moment.host, target));
        question.is_some_and(|question| question.asked >= ARP_TRIES && moment.at <= question.by_clock + 2 * ARP_RETRY)
    }

    /// A host has another Ethernet address: an answer that is under way to the old one is no answer, so how often it has asked is not known.
    pub(crate) fn readdressed(&mut self, host: usize, announced: bool) {
        self.neighbour_tables[host].moved = announced;
        for &place in &self.places[host] {
            self.ring_states[place].readdressed = true;
            // What lies in its NIC is for the old one, too.
            self.ring_states[place].sockets.iter_mut().for_each(|sock| sock.unsummed.clear());
        }
        self.lied_to.extend(0..self.places.len());
        let first = (host, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        for (&(_, target), _) in self.questions.range(first..).take_while(|((asker, _), _)| *asker == host) {
            self.flows.lose_silently(host, target);
        }
        // One that its NIC has taken for the old address, and its stack has yet to look at, is none either.
        let serviced_at = self.places[host].iter().map(|&place| self.ring_states[place].serviced_at).min();
        for (&(_, target), at) in self.answered.range(first..).take_while(|((asker, _), _)| *asker == host) {
            if serviced_at.is_none_or(|serviced_at| *at >= serviced_at) {
                self.flows.lose_silently(host, target);
            }
        }
    }

    /// A host has forgotten its neighbours' MAC addresses, but for those of machines that are no hosts of the world.
    pub(crate) fn forgot_neighbours(&mut self, host: usize) {
        self.forgetful.insert(host);
        self.forget_neighbours(host);
    }

    /// A host is paused, or its device in trouble, for a time from now on: it has a reason to be late, and more.
    fn hamper(&mut self, now: Instant, host: usize, time: Duration) {
        for &place in &self.places[host] {
            let ring_state = &mut self.ring_states[place];
            let at = now + ring_state.ahead;
            if ring_state.hampered == Instant::ZERO || at > ring_state.hampered + rto::STALL_MAX {
                ring_state.hampered_since = at;
            }
            ring_state.hampered = ring_state.hampered.max(at + time);
        }
        self.excuse(now, host, time);
    }

    /// A host has a reason to be late, for a time from now on.
    fn excuse(&mut self, now: Instant, host: usize, time: Duration) {
        for &place in &self.places[host] {
            let ring_state = &mut self.ring_states[place];
            ring_state.excused = ring_state.excused.max(now + ring_state.ahead + time);
        }
    }

    /// A fault struck a host's NIC, and lasts: what the ring wants to send may be refused meanwhile.
    pub(crate) fn struck(&mut self, now: Instant, host: usize, lasts: Duration) {
        self.hamper(now, host, lasts);
    }

    /// A host goes on after a pause: what became due meanwhile begins to be done now, a batch of frames after the other.
    pub(crate) fn resumed(&mut self, now: Instant, host: usize) {
        self.hamper(now, host, Duration::ZERO);
    }

    fn segment_sent(&mut self, moment: Moment, bytes: &[u8], segment: &Segment) {
        let (host, moment) = (moment.host, moment.about((segment.src, segment.dst)));
        if self.strangers.contains(&segment.src) {
            return self.stranger_sent(host, moment.at, segment);
        }
        // (Programs that send raw frames of their own begin no connection that could be followed without a SYN.)
        let before = self.flows.id((segment.src, segment.dst));
        let several = self.places[host].len() > 1;
        let twin = before.filter(|_| several && segment.has(SYN)).and_then(|current| self.flows.twin_from(current, segment.seq));
        let beside = before.filter(|_| several).and_then(|current| self.flows.sender_beside(current, segment));
        let sender = twin.or(beside).or_else(|| self.flows.sender(before, host, moment.at, segment));
        if let Some(id) = sender {
            self.note_begun(moment.at, before, id);
            let asks_last = before != sender && self.asks_for_the_last_time(&moment, segment.dst.ip());
            let own = self.flows.at_mut(id);
            // (Its SYN-ACK went where the SYN came from: what follows waits for the neighbour's answer, as if it had been there when that was asked for.)
            own.lost |= asks_last;
            if before != sender && own.passive && self.strays[host].has_any(own.tuple) {
                own.shadow.may_challenge(moment.at);
            }
        }
        if segment.has(RST) {
            self.strays[host].reset((segment.src, segment.dst));
        }
        if segment.has(RST) && self.is_calm(host) && moment.at > moment.excused {
            let own = sender.map(|id| self.flows.at(id)).filter(|own| own.host == host);
            if own.is_none_or(|own| !own.lawless) {
                shadow::resets::sent(&moment, segment, own, &self.strays[host]);
                if let Some(own) = own {
                    let place = own.owner.map_or(moment.place, |(place, _)| place);
                    shadow::resets::waits(&moment, own, self.ring_states[place].time_wait);
                }
            }
        }
        let Some(id) = sender else { return };
        self.says(&moment, bytes, segment, id);
        self.flows.answers_syn(id, segment);
        if segment.has(ACK) {
            self.flows.at_mut(id).settle_peer(segment.ack);
        }
        let any = |is: fn(&RingState) -> bool| self.places[host].iter().any(|&place| is(&self.ring_states[place]));
        let (calm, scarce, refused) = (self.is_calm(host), any(|ring_state| ring_state.scarce), any(|ring_state| ring_state.refused));
        let refused_since = self.refused_since(id);
        let sender = forged::Sender { lied_to: self.lied_to.contains(&host), gathers: self.ring_states[self.first(host)].gathers };
        let own = self.flows.at_mut(id);
        (own.calm, own.shadow.refused) = (calm, refused);
        own.rto.refused(refused_since);
        own.shadow.receiver.prune(scarce);
        self.flows.pair(id);
        let (own, peer) = self.flows.both(id);
        let owner = own.owner;
        let ended = segment.has(RST) && segment.has(ACK) && segment.seq == own.nxt;
        if segment.has(RST) {
            own.shadow.failed |= own.una != own.iss;
            after_close::reset_sent(&moment, own);
            reset_sent(segment, own);
        } else {
            let peer = peer.map(|peer| &*peer);
            after_close::sent(&moment, segment, own);
            forged::sent(&moment, bytes, segment, own, peer, sender);
            sequence::sent(&moment, bytes, segment, own, peer);
            window::sent(&moment, segment, own, peer);
            info::sent(&moment, segment, own);
            rto::sent(&moment, segment, own);
            fast_open::sent(&moment, segment, own, peer, &mut self.cookies);
            shadow::sent(&moment, segment, own, peer);
            if segment.has(ACK) {
                own.timers.acknowledged();
            }
            self.note_sent(moment.at, id, segment);
            self.flows.sent(id, moment.at, segment);
            if segment.has(SYN | ACK) {
                self.bounds_early(&moment, segment.src.port());
            }
        }
        self.stir(id);
        if let Some((place, socket)) = owner {
            let ring_state = &mut self.ring_states[place];
            if ended && let Some(closed) = ring_state.sockets.get_mut(&socket).and_then(|sock| sock.closed.as_mut()) {
                closed.reset_due = false;
            }
            ring_state.touch(socket);
        }
    }

    /// A host has no more connections under way that began with bytes than its listeners allow.
    fn bounds_early(&self, moment: &Moment, port: u16) {
        let of_listeners = self.places[moment.host].iter().map(|&place| self.ring_states[place].early_max(port));
        fast_open::bounded(moment, self.flows.all(), port, of_listeners.sum());
    }

    /// After which service the device of an endpoint's ring began to refuse frames, if it does. As long as nobody has accepted it, it may be on any of them.
    fn refused_since(&self, id: usize) -> Option<Instant> {
        let own = self.flows.at(id);
        let since = |place: usize| self.ring_states[place].refused_since;
        match own.owner {
            Some((place, _)) => since(place),
            None => self.places[own.host].iter().filter_map(|&place| since(place)).min(),
        }
    }

    /// What a stranger says of itself in its first SYN is all that is noted: the law is its peer's to keep.
    fn stranger_sent(&mut self, host: usize, at: Instant, segment: &Segment) {
        if self.flows.id((segment.src, segment.dst)).is_none()
            && let Some(id) = self.flows.sender(None, host, at, segment)
        {
            self.flows.at_mut(id).shadow.blurred = true;
            self.flows.sent(id, at, segment);
        }
    }

    /// A frame reached a host's NIC, which had no receive buffer for it.
    pub(crate) fn found_no_buffer(&mut self, now: Instant, host: usize) {
        for &place in &self.places[host] {
            self.ring_states[place].overrun_at = now;
        }
    }

    /// A frame reached a host's NIC, which took it.
    pub(crate) fn delivered(&mut self, now: Instant, host: usize, frame: &Frame) {
        // A checksum tells, and the stack must listen to it: for all that can be seen afterwards, this frame never arrived.
        // (One that was changed behind a checksum's back as well is judged by that.)
        let corrupted = frame.marks.contains(Marks::CORRUPTED);
        let lost = corrupted && (!is_tainted(frame.marks) || checksum::verify(&frame.bytes) == ChecksumVerdict::Bad);
        let bytes = &frame.bytes[..];
        let (moment, payload) = (self.at(now, host, None), dissect::payload(bytes));
        self.learned(&moment, bytes, &payload, lost);
        self.asks(&moment, frame, &payload);
        if corrupted {
            self.garbled(host, &payload);
        }
        if lost {
            return;
        }
        let is_forged = frame.marks.contains(Marks::FORGED);
        let ip = match payload {
            Payload::Ip(ip) => ip,
            Payload::Lookup(lookup) => {
                // Of several rings, one may have asked and had no room for the answer.
                if self.places[host].len() == 1 && lookup.tells(moment.ip) {
                    self.questions.remove(&(host, lookup.sender));
                    self.answered.insert((host, lookup.sender), moment.at);
                }
                if is_forged {
                    self.lied_to.insert(host);
                }
                return self.flows.heard(host);
            }
            Payload::Other(_) if is_forged => return,
            Payload::Other(_) => return self.flows.heard(host),
        };
        match ip.protocol {
            // RFC 1191: what was too long for its path is sent again in smaller pieces.
            _ if ip.is_icmp() => {
                let too_big = forged::quoted(bytes, &ip).map(|(tuple, _)| tuple).filter(|_| dissect::is_too_big(bytes, &ip));
                if let Some(tuple) = too_big {
                    self.flows.narrowed(host, tuple.1.ip());
                    self.note_narrowed();
                }
                self.error_delivered(&moment, bytes, &ip);
                match too_big {
                    _ if is_forged => self.error_forged(host, bytes, &ip),
                    Some(tuple) => self.flows.heard_by(host, tuple),
                    None => self.flows.heard(host),
                }
            }
            TCP => {
                if let Some(segment) = Segment::parse(bytes, &ip) {
                    self.cookies.delivered(&segment);
                    self.segment_delivered(moment, frame, &segment);
                }
            }
            UDP => {
                // (What is for another address is not the host's, whoever's MAC address it was sent to; and what its checksum contradicts has not come.)
                let ours = ip.dst.is_multicast() || moment.ip == Some(ip.dst);
                let sound = || frame.sound || checksum::verify(bytes) != ChecksumVerdict::Bad;
                if let Some(datagram) = datagram(bytes, &ip).filter(|_| ours && sound()) {
                    let port = dissect::be16(bytes, ip.l4 + 2).unwrap_or(0);
                    self.datagrams.delivered(host, datagram, is_tainted(frame.marks), is_forged);
                    self.datagram_delivered(&moment, frame, &ip, datagram);
                    if is_forged && dissect::be16(bytes, ip.l4 + 6) == Some(0) {
                        self.unsummed_delivered(host, now, &dissect::ports(bytes, &ip), datagram);
                    }
                    self.touch_bound(host, false, port);
                }
            }
            headers::IGMP => self.asked_about_groups(&moment, bytes, &ip),
            headers::HOP_BY_HOP if ip.is_v6() => self.asked_who_listens(&moment, bytes, &ip),
            _ => {}
        }
    }

    /// A frame reached a host that may be damaged where nobody looks (a short one's padding), or not.
    fn garbled(&mut self, host: usize, payload: &Payload) {
        match payload {
            Payload::Ip(ip) if ip.is_icmp() || matches!(ip.protocol, TCP | UDP) => {}
            Payload::Lookup(_) => drop(self.lied_to.insert(host)),
            _ => self.doubt_groups(host),
        }
    }

    /// A host's link found its carrier: whatever had timed out meanwhile is sent again at once.
    pub(crate) fn carrier_found(&mut self, host: usize) {
        self.flows.heard(host);
    }

    fn segment_delivered(&mut self, moment: Moment, frame: &Frame, segment: &Segment) {
        let host = moment.host;
        if self.places[host].len() > 1 && segment.has(ACK) && !frame.marks.contains(Marks::FORGED) {
            self.flows.tell_twins_apart((segment.dst, segment.src), segment.ack);
        }
        let of_these = self.flows.id((segment.dst, segment.src));
        let known = of_these.filter(|&id| self.flows.at(id).host == host);
        let lawless = self.strangers.contains(&segment.src);
        let calm = self.is_calm(host);
        let segment = &mut Cow::Borrowed(segment);
        let owner = known.and_then(|id| {
            let refused_since = self.refused_since(id);
            let (own, peer) = self.flows.both(id);
            own.lawless |= lawless;
            if segment.has(SYN) {
                own.forged.syn(segment.seq, frame.marks.contains(Marks::FORGED));
            }
            own.calm = calm;
            if frame.marks.contains(Marks::FORGED) {
                own.info.attacked();
                match forged::judge(&frame.bytes, segment, own, peer.as_deref()) {
                    Forged::Harmless => {
                        shadow::attacked(segment, own);
                        return own.owner;
                    }
                    // SACK may be a lie all the same.
                    Forged::Copy => segment.to_mut().options.forget_sack(),
                    Forged::Doubtful => (own.lawless, own.shadow.blurred) = (true, true),
                }
            }
            let scale = peer.map_or(14, |peer| flow::scale(&peer.syn, &own.syn));
            own.rto.refused(refused_since);
            shadow::marks::delivered(segment, own);
            own.delivered(&moment, segment, scale);
            shadow::delivered(segment, own);
            if is_tainted(frame.marks) {
                own.stream.taint();
            }
            let owner = own.owner;
            self.flows.pair(id);
            owner
        });
        if let Some(id) = known {
            self.flows.delivered_beside(&moment, id, segment, frame.marks);
            self.note_refused(id, segment);
            self.stir(id);
        }
        self.strays[host].delivered(segment, of_these.is_some());
        if frame.marks.contains(Marks::FORGED) {
            self.strays[host].forged(segment);
        }
        match owner {
            Some((place, socket)) => self.ring_states[place].touch(socket),
            None => self.touch_bound(host, true, segment.dst.port()),
        }
    }

    /// Whether nothing was ever lost on the host's side of the wire, and its clock never jumped.
    pub(super) fn is_calm(&self, host: usize) -> bool {
        self.places[host]
            .iter()
            .map(|&place| &self.ring_states[place])
            .all(|ring_state| ring_state.hampered == Instant::ZERO && ring_state.ahead.is_zero() && !ring_state.readdressed)
    }

    /// Something came to an endpoint, or went from it.
    pub(super) fn stir(&mut self, id: usize) {
        let own = self.flows.at_mut(id);
        if !core::mem::replace(&mut own.shadow.stirred, true) {
            self.stirred[own.host].push(id);
        }
    }

    /// An attacker's ICMP error counts as heard by the connections on the path of one that may believe it, and by no other. (Where devices refuse frames, what is sent again is seen late, and
    /// what is seen soon after proves nothing.)
    fn error_forged(&mut self, host: usize, bytes: &[u8], ip: &Ip) {
        let calm = self.is_calm(host);
        let quoted = forged::quoted(bytes, ip);
        let known =
            quoted.and_then(|(tuple, seq)| Some((tuple.1.ip(), seq, self.flows.id(tuple).filter(|&id| self.flows.at(id).host == host)?)));
        let Some((peer, seq, id)) = known else { return };
        let believable = forged::error(bytes, ip, seq, self.flows.at_mut(id));
        if !calm {
            self.flows.heard(host);
        } else if believable {
            self.flows.heard_of(host, peer);
        }
    }

    /// A datagram without a checksum arrived: where there is but one socket that it can be for, that one is to hear it.
    fn unsummed_delivered(&mut self, host: usize, now: Instant, ends: &Option<(SocketAddr, SocketAddr)>, datagram: Datagram) {
        let (Some((from, to)), &[place]) = (*ends, &self.places[host][..]) else { return };
        let ring_state = &mut self.ring_states[place];
        // (It may have been sent to a MAC address that the host had before.)
        if ring_state.readdressed {
            return;
        }
        let at = now + ring_state.ahead;
        if let Some(socket) = ring_state.bound.get(&(false, to.port())).and_then(|port| port.only(from, to))
            && let Some(sock) = ring_state.sockets.get_mut(&socket)
            && datagram.len() > 0
        {
            // It is a copy of one that has just come, and of no other that may have been lost since.
            let (read, arrived) = self.datagrams.reads(host, socket, datagram);
            if arrived == read + 2 {
                sock.unsummed.push((at, datagram, arrived));
            }
        }
    }

    fn touch_bound(&mut self, host: usize, listener: bool, port: u16) {
        for &place in &self.places[host] {
            let ring_state = &mut self.ring_states[place];
            let mut at = 0;
            while let Some(socket) = ring_state.bound.get(&(listener, port)).and_then(|port| port.socket(at)) {
                ring_state.touch(socket);
                at += 1;
            }
        }
    }
}

/// A reset of the connection itself, rather than an answer to a stranger's segment (RFC 9293 s3.10.7.1), ends it.
fn reset_sent(segment: &Segment, own: &mut Endpoint) {
    if segment.has(ACK) && segment.seq == own.nxt && own.irs.is_some() {
        own.reset = true;
    }
}

fn datagram(frame: &[u8], ip: &Ip) -> Option<Datagram> {
    let (from, to) = dissect::ports(frame, ip)?;
    let len = usize::from(dissect::be16(frame, ip.l4 + 4)?);
    // RFC 1122 s3.2.1.3: what comes from an address that no one host has is discarded.
    if ip.fragment || len < 8 || ip.l4 + len > ip.end || !ip.src.is_unspecified() && !ip.src.is_loopback() && !dissect::is_one_hosts(ip.src)
    {
        return None;
    }
    Some(Datagram::new(from, to, &frame[ip.l4 + 8..ip.l4 + len]))
}
