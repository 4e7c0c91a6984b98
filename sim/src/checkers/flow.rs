//! Connections as the wire shows them: one [`Endpoint`] a side and incarnation.

use core::hash::{BuildHasherDefault, Hash, Hasher};
use core::time::Duration;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use ringway_stack::Instant;
use ringway_stack::ring::FlowId;

use super::Moment;
use super::ranges::Ranges;
use super::segment::{ACK, FIN, Options, RST, SYN, Segment, before, later};
use super::{fast_open, forged, info, moves, rto, sequence, shadow, stream, timers, window};

mod beside;

/// Local and remote address.
pub(super) type Tuple = (SocketAddr, SocketAddr);

/// One side of one connection.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) tuple: Tuple,
    pub(super) host: usize,
    /// The socket, and the place of its ring, once a program has it.
    pub(super) owner: Option<(usize, FlowId)>,
    /// The other side's endpoint.
    pub(super) peer: Option<usize>,
    /// The one that had these addresses before; and whether this one is another's by now.
    previous: Option<usize>,
    pub(super) succeeded: bool,

    /// What its first SYN said.
    pub(super) iss: u32,
    pub(super) syn: Options,
    pub(super) syn_window: u16,
    /// Behind everything that it ever sent.
    pub(super) nxt: u32,
    /// Where its FIN is.
    pub(super) fin: Option<u32>,
    /// Something of it was thrown away before it reached the wire, and nobody knows how much.
    pub(super) lost: bool,
    /// It has been on several rings: what the one has queued may leave after what the next one sends.
    pub(super) moved: bool,
    /// When it last came to another ring.
    pub(super) moved_at: Instant,
    /// A reset of this connection went out.
    pub(super) reset: bool,
    /// When it left its ring, for another carrier.
    pub(super) left_at: Option<Instant>,
    /// Its host's program has begun another one between the same addresses, whose SYN has yet to come.
    pub(super) followed: bool,

    /// The peer's initial sequence number, and what arrived of its stream.
    pub(super) irs: Option<u32>,
    /// Another that arrived before anything was acknowledged: the NIC may have lost the first, and the peer crashed.
    irs_other: Option<u32>,
    pub(super) rx: Ranges,
    /// Where its FIN is that arrived.
    peer_fin: Option<u32>,
    /// The highest acknowledgment that arrived.
    pub(super) una: u32,
    /// The highest right edge that the peer announced.
    pub(super) edge: Option<u32>,
    /// Its peer is a stranger: what that acknowledged need not have counted.
    pub(super) lawless: bool,
    /// A SYN or RST arrived after the handshake, and not from an attacker: whatever happens now may be its doing.
    pub(super) disturbed: bool,
    /// When something arrived, when that acknowledged something new, and when something was sent.
    pub(super) rx_at: Instant,
    pub(super) una_at: Instant,
    pub(super) tx_at: Instant,

    pub(super) sequence: sequence::State,
    pub(super) window: window::State,
    pub(super) info: info::State,
    pub(super) rto: rto::State,
    pub(super) stream: stream::State,
    pub(super) timers: timers::State,
    pub(super) shadow: shadow::State,
    /// Its first SYN answered the peer's; and when that went out.
    pub(super) passive: bool,
    pub(super) began_at: Instant,
    /// Both SYNs permit SACK.
    pub(super) agrees_on_sack: bool,
    /// Its NIC may merge what arrives; and it loses nothing behind the wire's back.
    pub(super) merges: bool,
    pub(super) calm: bool,
    /// Its device took all that it was given by the last service.
    pub(super) free: bool,
    pub(super) forged: forged::State,
    pub(super) moves: moves::State,
    pub(super) fast_open: fast_open::State,
}

impl Endpoint {
    fn new(host: usize, at: Instant, segment: &Segment) -> Self {
        Self {
            tuple: (segment.src, segment.dst),
            host,
            owner: None,
            peer: None,
            previous: None,
            succeeded: false,
            iss: segment.seq,
            syn: segment.options,
            syn_window: segment.window,
            nxt: segment.seq,
            fin: None,
            lost: false,
            moved: false,
            moved_at: Instant::ZERO,
            reset: false,
            left_at: None,
            followed: false,
            irs: None,
            irs_other: None,
            rx: Ranges::default(),
            peer_fin: None,
            una: segment.seq,
            edge: None,
            lawless: false,
            disturbed: false,
            rx_at: at,
            una_at: at,
            tx_at: at,
            sequence: sequence::State::default(),
            window: window::State::default(),
            info: info::State::default(),
            rto: rto::State::default(),
            stream: stream::State::default(),
            timers: timers::State::default(),
            shadow: shadow::State::default(),
            passive: segment.has(SYN | ACK),
            began_at: at,
            agrees_on_sack: false,
            merges: false,
            calm: false,
            free: false,
            forged: forged::State::default(),
            moves: moves::State::default(),
            fast_open: fast_open::State::default(),
        }
    }

    /// A sequence number of its own, counted from its first.
    pub(super) fn relative(&self, seq: u32) -> u32 {
        seq.wrapping_sub(self.iss)
    }

    /// A sequence number of its peer's, counted from that one's first.
    pub(super) fn peer_relative(&self, seq: u32) -> u32 {
        seq.wrapping_sub(self.irs.unwrap_or(0))
    }

    /// The sequence number of a byte of the stream.
    pub(super) fn sequence_of(&self, offset: u64) -> u32 {
        self.iss.wrapping_add(1).wrapping_add(u32::try_from(offset & 0xffff_ffff).unwrap_or(0))
    }

    /// Whether this may be the number that it awaits next of its peer. (What came with a timestamp that is too old did not count, RFC 7323 s5.3: then it is
    /// what was acknowledged last.)
    pub(super) fn awaits(&self, seq: u32) -> bool {
        seq == self.rx.next || self.shadow.receiver.awaits(seq) || self.sequence.acked() == Some(seq)
    }

    /// Bytes, SYN and FIN that were sent and, for all that arrived, not acknowledged.
    pub(super) fn flight(&self) -> u32 {
        self.nxt.wrapping_sub(self.una)
    }

    /// Whether its peer's whole stream arrived, and the end of it.
    pub(super) fn peer_ended(&self) -> bool {
        self.peer_fin.is_some_and(|fin| before(fin, self.rx.next))
    }

    /// Whether both streams ended, and all of that arrived.
    pub(super) fn has_ended(&self) -> bool {
        self.peer_ended() && self.fin.is_some_and(|fin| before(fin, self.una))
    }

    /// Bytes of its peer's stream that arrived in order.
    pub(super) fn arrived(&self) -> u32 {
        self.peer_relative(self.rx.next).wrapping_sub(1 + u32::from(self.peer_ended()))
    }

    /// Whether something of that waits for its reader, for all that is known.
    pub(super) fn has_unread(&self) -> bool {
        self.irs.is_some() && u64::from(self.arrived()) != self.stream.taken() & 0xffff_ffff
    }

    /// Whether the connection goes on, for all that is known to who may not ask it: nothing came or was told that ends it.
    pub(super) fn goes_on(&self) -> bool {
        !(self.reset || self.disturbed || self.shadow.failed || self.shadow.aborted || self.is_closed_unread() || self.has_ended())
    }

    /// Whether bytes came that nobody will read, which ends a connection whose program closed it (RFC 9293 s3.10.4, RFC 1122 s4.2.2.13).
    pub(super) fn is_closed_unread(&self) -> bool {
        self.shadow.closed && self.has_unread()
    }

    /// Whether nobody owns it any more, and it may have been given up for want of answers, of which nobody hears (RFC 9293 s3.8.3).
    pub(super) fn may_be_given_up(&self) -> bool {
        self.shadow.closed && self.rto.may_have_tried_enough()
    }

    /// Bytes that were written, or an end of theirs, and were not sent.
    pub(super) fn has_unsent(&self) -> bool {
        let end = self.sequence_of(self.stream.written());
        self.stream.is_watched() && (before(self.nxt, end) || self.stream.has_ended() && self.fin.is_none())
    }

    /// Which byte of the stream has this number.
    pub(super) fn offset(&self, seq: u32) -> u64 {
        let below = self.stream.written();
        // Streams of more than 4 GiB wrap: the offset is the one nearest to what was written.
        let low = seq.wrapping_sub(self.iss).wrapping_sub(1);
        let last = u32::try_from(below & 0xffff_ffff).unwrap_or(0);
        let distance = low.wrapping_sub(last).cast_signed();
        below.saturating_add_signed(i64::from(distance))
    }

    /// A segment of its went out, and was found lawful.
    fn sent(&mut self, at: Instant, segment: &Segment) {
        self.tx_at = at;
        if segment.has(FIN) {
            self.fin = Some(segment.end().wrapping_sub(1));
        }
        self.nxt = later(self.nxt, segment.end());
        while let Some((ack, edge)) = self.window.take_early(self.nxt) {
            self.una = later(self.una, ack);
            self.widen(edge);
        }
    }

    /// A segment for it arrived. All that is noted only ever lets it do more.
    pub(super) fn delivered(&mut self, moment: &Moment, segment: &Segment, peer_scale: u8) {
        let at = moment.at;
        self.rx_at = at;
        self.rto.delivered();
        let acks = segment.has(ACK) && before(self.iss, segment.ack) && !before(self.nxt, segment.ack);
        if segment.has(SYN) || segment.has(RST) {
            self.disturbed |= self.irs.is_some();
        }
        if segment.has(RST) {
            if !forged::is_seen_through(segment, self) {
                self.forged.reset();
            }
            return;
        }
        if segment.has(SYN) && self.irs.is_none() && (acks || !segment.has(ACK)) {
            self.begin_receiving(segment.seq);
        }
        // (A stranger's SYN-ACK in the middle of a connection is nobody's.)
        if segment.has(SYN) && acks && self.irs.is_some_and(|irs| irs != segment.seq) && !self.sequence.has_acknowledged() {
            self.irs_other = Some(segment.seq);
        }
        let repeats = self.irs.is_some() && before(segment.seq, self.rx.next) && !before(self.rx.next, segment.end());
        if self.irs.is_some() {
            // (What lies before all that arrived is an earlier connection's, or comes again.)
            let ends = segment.has(FIN) && !before(segment.end().wrapping_sub(1), self.rx.next);
            self.rx.add(segment.seq, segment.end());
            if repeats {
                shadow::repeats(self);
            }
            if ends {
                self.peer_fin = Some(segment.end().wrapping_sub(1));
            }
        }
        if acks {
            self.info.delivered((self.una, self.nxt), segment, self.lawless, repeats);
            if before(self.una, segment.ack) {
                self.una = segment.ack;
                self.una_at = at;
                self.rto.acknowledged(moment);
            }
        }
        // (What acknowledges nothing that was ever sent is another connection's, or an attacker's, and says nothing of this one's window: RFC 9293 s3.10.7.4.)
        let scale = if segment.has(SYN) { 0 } else { peer_scale };
        let edge = segment.ack.wrapping_add(u32::from(segment.window) << scale);
        if acks {
            self.widen(edge);
        } else if segment.has(ACK) && before(self.nxt, segment.ack) {
            self.window.hear_early(segment.ack, edge);
        }
    }

    pub(super) fn begin_receiving(&mut self, irs: u32) {
        self.irs = Some(irs);
        self.peer_fin = None;
        self.rx = Ranges::from(irs.wrapping_add(1));
    }

    /// It acknowledges something for the first time, perhaps: which of two SYNs that is tells whom it is connected to.
    pub(super) fn settle_peer(&mut self, ack: u32) {
        if let Some(irs) = self.irs_other.take_if(|irs| irs.wrapping_add(1) == ack) {
            self.shadow.blurred = true;
            self.begin_receiving(irs);
            self.peer = None;
        }
    }

    fn widen(&mut self, edge: u32) {
        self.edge = Some(self.edge.map_or(edge, |highest| later(highest, edge)));
    }
}

/// Addresses as a key. Those of IPv4 are hashed as two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(Tuple);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0 {
            (SocketAddr::V4(local), SocketAddr::V4(remote)) => {
                state.write_u64(u64::from(local.ip().to_bits()) << 32 | u64::from(remote.ip().to_bits()));
                state.write_u64(u64::from(local.port()) << 16 | u64::from(remote.port()));
            }
            others => others.hash(state),
        }
    }
}

/// All endpoints.
#[derive(Debug, Default)]
pub(super) struct Flows {
    ids: HashMap<Key, usize, BuildHasherDefault<TupleHasher>>,
    /// (They are large: the table's growth moves none of them.)
    endpoints: Vec<Box<Endpoint>>,
    free: Vec<usize>,
    /// See [`Flows::unsteered`].
    unsteered: BTreeSet<(usize, Tuple)>,
    /// Paths that somebody called narrow: their hosts know it for connections to come as well.
    narrow: BTreeSet<(usize, IpAddr)>,
}

impl Flows {
    pub(super) fn id(&self, tuple: Tuple) -> Option<usize> {
        self.ids.get(&Key(tuple)).copied()
    }

    /// A connection with these addresses was accepted. A SYN that came again, or a client that did, may have begun another one since: where both wait to be
    /// accepted, or the first does, it is not known which of them it is. Gives whose it is, if that is not the one that its addresses find.
    pub(super) fn accepted(&mut self, tuple: Tuple, host: usize) -> Option<usize> {
        let current = self.id(tuple)?;
        if self.is_unsteered(host, tuple) && self.endpoints[current].host == host {
            return self.accepted_beside(current);
        }
        let waits = |&id: &usize| {
            let own = &self.endpoints[id];
            own.host == host && own.passive && own.owner.is_none() && own.una != own.iss
        };
        if let Some(first) = self.endpoints[current].previous.filter(waits) {
            // What the program is told of may have befallen the other, and so may what it reads.
            let tainted = self.endpoints[first].stream.is_tainted();
            let own = &mut self.endpoints[current];
            own.shadow.blurred = true;
            own.forged.reset();
            if tainted {
                own.stream.taint();
            }
        }
        None
    }

    /// Whether an endpoint may be that of a connection which was just accepted, and whose handshake is not over (RFC 7413). Where another waits as well, it is not
    /// known which of them it is.
    pub(super) fn may_be_early(&mut self, id: usize) -> bool {
        self.pair(id);
        let own = &self.endpoints[id];
        let waits = |own: &Endpoint| own.passive && own.owner.is_none() && !own.reset && !own.shadow.reset;
        let shows = own.peer.is_some_and(|peer| self.endpoints[peer].fast_open.shows());
        let is_alone = own.previous.is_none_or(|previous| self.endpoints[previous].host != own.host || !waits(&self.endpoints[previous]));
        waits(own) && shows && is_alone
    }

    /// All endpoints, those of connections that are over included.
    pub(super) fn all(&self) -> impl Iterator<Item = &Endpoint> + '_ {
        self.endpoints.iter().map(|endpoint| &**endpoint)
    }

    /// Where all of them are.
    pub(super) fn ids(&self) -> impl Iterator<Item = usize> + use<> {
        0..self.endpoints.len()
    }

    pub(super) fn at(&self, id: usize) -> &Endpoint {
        &self.endpoints[id]
    }

    pub(super) fn at_mut(&mut self, id: usize) -> &mut Endpoint {
        &mut self.endpoints[id]
    }

    /// An endpoint and its peer's.
    pub(super) fn both(&mut self, id: usize) -> (&mut Endpoint, Option<&mut Endpoint>) {
        match self.endpoints[id].peer {
            Some(peer) if peer != id => match self.endpoints.get_disjoint_mut([id, peer]) {
                Ok([own, peer]) => (&mut **own, Some(&mut **peer)),
                Err(_) => unreachable!("two endpoints of the table"),
            },
            _ => (&mut self.endpoints[id], None),
        }
    }

    /// The endpoint that sends `segment`: a SYN with a new number begins one.
    /// `current`: the one that has its addresses.
    pub(super) fn sender(&mut self, current: Option<usize>, host: usize, at: Instant, segment: &Segment) -> Option<usize> {
        let tuple = (segment.src, segment.dst);
        if !segment.has(SYN) || segment.has(RST) {
            return current;
        }
        if let Some(id) = current
            && self.endpoints[id].iss == segment.seq
        {
            return current;
        }
        if segment.has(ACK)
            && let Some(id) = current
            && self.endpoints[id].forged.answers_forged(segment.ack)
        {
            self.endpoints[id].forged.answered(at, segment.seq);
            return None;
        }
        let mut endpoint = Endpoint::new(host, at, segment);
        if let Some(since) = current.and_then(|id| self.endpoints[id].forged.answered_since(segment.seq)) {
            endpoint.rto.began(since);
        }
        endpoint.previous = current;
        if let Some(id) = current {
            self.endpoints[id].succeeded = true;
        }
        if self.narrow.contains(&(host, tuple.1.ip())) {
            endpoint.shadow.sender.narrow();
        }
        if self.is_unsteered(host, tuple) {
            self.begins_beside(current);
        } else if let Some(oldest) = current.and_then(|id| self.endpoints[id].previous.take()) {
            self.retire(oldest);
        }
        let id = match self.free.pop() {
            Some(id) => {
                *self.endpoints[id] = endpoint;
                id
            }
            None => {
                self.endpoints.push(Box::new(endpoint));
                self.endpoints.len() - 1
            }
        };
        self.ids.insert(Key(tuple), id);
        Some(id)
    }

    /// Who answered, beside this endpoint, the SYN that it answers, and has not been acknowledged: two rings of a host may, where a rule or a group changes while
    /// a SYN comes again. (Not the host before it crashed and began anew: that answers nothing any more.)
    fn twin(&self, id: usize) -> Option<usize> {
        let own = &self.endpoints[id];
        let answers_the_same = |&id: &usize| {
            let other = &self.endpoints[id];
            other.passive && other.host == own.host && !other.reset && other.una == other.iss && other.irs == own.irs && own.irs.is_some()
        };
        own.previous.filter(|_| own.passive).filter(answers_the_same)
    }

    /// The one of two such that begins with this number, if it is not the one that has the addresses.
    pub(super) fn twin_from(&self, current: usize, iss: u32) -> Option<usize> {
        self.twin(current).filter(|&id| self.endpoints[id].iss == iss)
    }

    /// A peer acknowledges what one of two rings answered to its SYN: which of them has the connection its number tells (RFC 9293 s3.10.7.3: to the other one's
    /// answer, a client that has its own says no more than that).
    pub(super) fn tell_twins_apart(&mut self, tuple: Tuple, ack: u32) {
        let Some(current) = self.id(tuple) else { return };
        let Some(twin) = self.twin(current) else { return };
        let took = |id: usize| {
            let own = &self.endpoints[id];
            before(own.iss, ack) && !before(own.nxt, ack)
        };
        if took(current) || !took(twin) || self.endpoints[current].una != self.endpoints[current].iss {
            return;
        }
        self.ids.insert(Key(tuple), twin);
        (self.endpoints[twin].previous, self.endpoints[current].previous) = (Some(current), None);
        (self.endpoints[twin].succeeded, self.endpoints[current].succeeded) = (false, true);
    }

    /// An endpoint will be another's: whoever takes it for its peer (a connection that outlives two of its peer's crashes) has none any more.
    fn retire(&mut self, id: usize) {
        let (local, remote) = self.endpoints[id].tuple;
        let mut candidate = self.id((remote, local));
        while let Some(other) = candidate {
            let other = &mut self.endpoints[other];
            other.peer = other.peer.filter(|&peer| peer != id);
            candidate = other.previous;
        }
        self.free.push(id);
    }

    /// Notes what a lawful segment says of its sender, and finds the peer when both are known.
    pub(super) fn sent(&mut self, id: usize, at: Instant, segment: &Segment) {
        self.endpoints[id].sent(at, segment);
        self.answers_syn(id, segment);
        self.pair(id);
    }

    /// A SYN-ACK says whose SYN it answers, and which of its bytes it takes (RFC 7413 s3).
    pub(super) fn answers_syn(&mut self, id: usize, segment: &Segment) {
        let own = &self.endpoints[id];
        if !segment.has(SYN | ACK) || own.irs.is_some() {
            return;
        }
        let mut candidate = self.id((own.tuple.1, own.tuple.0));
        let mut irs = segment.ack.wrapping_sub(1);
        while let Some(peer) = candidate.map(|peer| &self.endpoints[peer]) {
            let bytes = peer.fast_open.bytes();
            if bytes > 0 && segment.ack == peer.iss.wrapping_add(1).wrapping_add(bytes) {
                irs = peer.iss;
            }
            candidate = peer.previous;
        }
        let own = &mut self.endpoints[id];
        own.begin_receiving(irs);
        own.rx.add(irs.wrapping_add(1), segment.ack);
    }

    /// Finds the endpoint's peer by the number that its stream begins with.
    pub(super) fn pair(&mut self, id: usize) {
        let Endpoint { peer: None, irs: Some(irs), tuple: (local, remote), iss, .. } = *self.endpoints[id] else { return };
        let mut candidate = self.id((remote, local));
        while let Some(peer) = candidate {
            if self.endpoints[peer].iss == irs {
                let window = self.endpoints[peer].syn_window;
                let permits_sack = self.endpoints[peer].syn.sack_permitted;
                let own = &mut self.endpoints[id];
                own.peer = Some(peer);
                own.agrees_on_sack = own.syn.sack_permitted && permits_sack;
                if own.edge.is_none() {
                    // A SYN's window counts from our first byte, and is never scaled (RFC 7323 s2.2).
                    own.widen(iss.wrapping_add(1).wrapping_add(u32::from(window)));
                }
                return;
            }
            candidate = self.endpoints[peer].previous;
        }
    }

    /// A host heard something beside segments (an ICMP error, a neighbour's address, its link's carrier): what its endpoints send again now may
    /// be an answer to that.
    pub(super) fn heard(&mut self, host: usize) {
        for endpoint in self.endpoints.iter_mut().filter(|endpoint| endpoint.host == host) {
            endpoint.rto.delivered();
            endpoint.shadow.sender.told();
        }
    }

    /// A host was told that a segment of a connection's was too long for its path: that one may send again at once, and no other on the same path (RFC 1191
    /// s6.4, RFC 8201 s5.4).
    pub(super) fn heard_by(&mut self, host: usize, tuple: Tuple) {
        let id = self.id(tuple).filter(|&id| self.endpoints[id].host == host);
        if let Some(endpoint) = id.map(|id| &mut self.endpoints[id]) {
            endpoint.rto.delivered();
            endpoint.shadow.sender.told();
        }
    }

    /// A host was told something about its path to `peer`.
    pub(super) fn heard_of(&mut self, host: usize, peer: IpAddr) {
        let to = |endpoint: &&mut Box<Endpoint>| endpoint.host == host && endpoint.tuple.1.ip() == peer;
        for endpoint in self.endpoints.iter_mut().filter(to) {
            endpoint.rto.delivered();
            endpoint.shadow.sender.told();
        }
    }

    /// A host was told that its path to `peer` is narrow.
    pub(super) fn narrowed(&mut self, host: usize, peer: IpAddr) {
        let to = |endpoint: &&mut Box<Endpoint>| endpoint.host == host && endpoint.tuple.1.ip() == peer;
        self.endpoints.iter_mut().filter(to).for_each(|endpoint| endpoint.shadow.sender.narrow());
        self.narrow.insert((host, peer));
    }

    /// What a host's endpoints wanted to send to `peer` may count as sent there, and be lost: its neighbour's address is not known.
    pub(super) fn lose_silently(&mut self, host: usize, peer: IpAddr) {
        let to = |endpoint: &&mut Box<Endpoint>| endpoint.host == host && endpoint.tuple.1.ip() == peer;
        self.endpoints.iter_mut().filter(to).for_each(|endpoint| endpoint.lost = true);
    }

    /// Nobody knows any more which connections with this address left their rings.
    pub(super) fn forget_leaving(&mut self, host: usize, local: SocketAddr) {
        let of = |endpoint: &&mut Box<Endpoint>| endpoint.host == host && endpoint.tuple.0 == local;
        self.endpoints.iter_mut().filter(of).for_each(|endpoint| endpoint.left_at = None);
    }

    /// The endpoints of a host are no more: it crashed.
    pub(super) fn forget(&mut self, host: usize) {
        let gone: Vec<usize> = (0..self.endpoints.len()).filter(|&id| self.endpoints[id].host == host).collect();
        for id in gone {
            let endpoint = &mut self.endpoints[id];
            endpoint.reset = true;
            endpoint.left_at = None;
            endpoint.shadow.blurred = true;
            endpoint.owner = None;
            endpoint.timers.forget();
        }
        self.unsteered.retain(|&(whose, _)| whose != host);
    }
}

/// For how long a ring that a connection has left may still have frames of it to send: a full queue on the slowest link.
const QUEUED_MAX: Duration = Duration::from_secs(5);

impl Endpoint {
    /// Whether frames of two rings may overtake each other.
    pub(super) fn just_moved(&self, at: Instant) -> bool {
        self.moved && at < self.moved_at + QUEUED_MAX
    }
}

/// The shift that an endpoint's window field is scaled by: if both offered (RFC 7323 s2.2).
pub(super) fn scale(own: &Options, peer: &Options) -> u8 {
    own.scale.filter(|_| peer.scale.is_some()).unwrap_or(0).min(14)
}

/// A multiply-and-rotate hash; nobody chooses addresses to collide here, and the order of the map is never looked at.
#[derive(Debug, Default)]
pub(super) struct TupleHasher(u64);

impl Hasher for TupleHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
