//! What rping does, by connection management and verbs alone. Each ping the client tells where its text lies, the server reads it (RDMA READ) and says so, the client
//! tells where it wants it, the server writes it there (RDMA WRITE) and says so. Whoever has the text at its end compares all of it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringway_host::Clock;
use ringway_stack::Instant;
use ringway_stack::roce::cm::{Accept, Cm, Config, Connect, ConnectionId, Event};
use ringway_stack::roce::mad::private::{HEADER_LEN, IpHeader, PortSpace, service_id};
use ringway_stack::roce::mad::{Reply, Request};
use ringway_stack::roce::memory::{Access, Pd};
use ringway_stack::roce::packet::datagram::{Addresses, Path};
use ringway_stack::roce::psn::Psn;
use ringway_stack::roce::qp::{Modify, Mtu, Peer, QpConfig, Sending, Transport};
use ringway_stack::roce::work::{Data, SendOp, SendWr, Sge, Status};
use ringway_stack::roce::{Hca, Limits, Tuning};

use super::Failure;
use super::tap::{ETHERNET, Tap};

/// rping's.
const PORT: u16 = 7174;

/// A buffer's address, key and length, in network order.
const ADVERT: usize = 16;

/// The longest text that rping sends.
const TEXT_MAX: usize = 65535;

/// Where the machine's memory lies: what comes by a receive, the text, and where it comes back to.
const RECEIVED: u64 = 0x1_0000;
const SOURCE: u64 = 0x10_0000;
const SINK: u64 = 0x20_0000;

/// Work requests.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const MOVE: u64 = 3;

/// How long to wait for an acknowledgment: 4.096 us * 2^17 is half a second.
const ACK_TIMEOUT: u8 = 17;

/// How long anything may take, and how long the peer may take to say its last.
const PATIENCE: Duration = Duration::from_secs(30);
const LINGER: Duration = Duration::from_secs(1);

type Adapter = Hca<Vec<u8>>;

/// A piece of the peer's memory.
struct Advert {
    address: u64,
    rkey: u32,
    len: u32,
}

/// A machine with one queue pair.
pub(crate) struct Machine {
    clock: Clock,
    tap: Tap,
    hca: Adapter,
    cm: Cm,
    pd: Pd,
    cq: u32,
    qp: u32,
    received: u32,
    /// Keys of the text and of where it comes back to.
    source: u32,
    sink: u32,
    /// Work requests that were completed and not waited for yet.
    done: Vec<u64>,
    events: Vec<(ConnectionId, Event)>,
}

impl Machine {
    pub(crate) fn new(interface: &str) -> Result<Self, Failure> {
        let mut hca = Adapter::new(Limits::default(), Tuning::default());
        let pd = hca.alloc_pd();
        let cq = hca.create_cq(16)?;
        let config = QpConfig {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 4,
            recv_depth: 4,
            sges_max: 1,
            inline_max: ADVERT,
        };
        let qp = hca.create_qp(config)?;
        let received = hca.register(pd, RECEIVED, vec![0; ADVERT], Access::LOCAL_WRITE)?;
        let cm = Cm::new(Config::default(), u64::from(std::process::id()));
        let (done, events) = (Vec::new(), Vec::new());
        Ok(Self { clock: Clock::system(), tap: Tap::attach(interface)?, hca, cm, pd, cq, qp, received, source: 0, sink: 0, done, events })
    }

    /// Answers one client's pings, which are to be `count`.
    pub(crate) fn serve(&mut self, count: u32) -> Result<(), Failure> {
        self.cm.listen(service_id(PortSpace::Tcp, PORT), 1)?;
        let (id, event) = self.event()?;
        let Event::Request { path, request } = event else { return Err(format!("instead of a request: {event:?}").into()) };
        IpHeader::parse(&request.private_data)?;
        self.source = self.hca.register(self.pd, SOURCE, vec![0; TEXT_MAX], Access::LOCAL_WRITE)?;
        let mtu = Mtu::from_code(request.path_mtu).ok_or("a path MTU that there is not")?.min(Mtu::B1024);
        self.make_ready(path, mtu, request.qpn, request.starting_psn)?;
        let accept = Accept {
            qpn: self.qp,
            starting_psn: first_psn(),
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: true,
            rnr_retry_count: 7,
            private_data: [0; Reply::PRIVATE_LEN],
        };
        self.cm.accept(self.now(), id, &accept)?;
        let mut pings = 0;
        let mut bytes = 0;
        while let Some(from) = self.advert()? {
            let expected = text(pings, from.len as usize);
            self.move_text(SendOp::Read { address: from.address, rkey: from.rkey }, from.len)?;
            if self.bytes(self.source, expected.len()) != Some(&expected[..]) {
                return Err(format!("what was read is not the text of ping {pings}").into());
            }
            self.say(0, 0, 0)?;
            let to = self.advert()?.ok_or("it ended in the middle of a ping")?;
            self.move_text(SendOp::Write { address: to.address, rkey: to.rkey, immediate: None }, to.len)?;
            self.say(0, 0, 0)?;
            pings += 1;
            bytes += expected.len();
        }
        if pings != count {
            return Err(format!("{pings} pings instead of {count}").into());
        }
        println!("{pings} pings, {bytes} bytes read and written back");
        self.linger()
    }

    /// Sends `count` pings of `size` bytes.
    pub(crate) fn ask(&mut self, from: IpAddr, to: IpAddr, size: usize, count: u32) -> Result<(), Failure> {
        let path = Path::new(Addresses::new(from, to).ok_or("addresses of two families")?, 0);
        self.source = self.hca.register(self.pd, SOURCE, vec![0; size], Access::REMOTE_READ)?;
        self.sink = self.hca.register(self.pd, SINK, vec![0; size], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let id = self.connect(path, from, to)?;
        for ping in 0..count {
            let expected = text(ping, size);
            self.hca.memory_mut(self.source).ok_or("no text")?.copy_from_slice(&expected);
            self.hca.memory_mut(self.sink).ok_or("no room for it")?.fill(0);
            for (address, key) in [(SOURCE, self.source), (SINK, self.sink)] {
                self.say(address, key, size as u32)?;
                self.advert()?.ok_or("the server left")?;
            }
            if self.bytes(self.sink, size) != Some(&expected[..]) {
                return Err(format!("what came back is not the text of ping {ping}").into());
            }
        }
        self.cm.disconnect(self.now(), id)?;
        match self.event()? {
            (_, Event::Disconnected) => {}
            (_, event) => return Err(format!("instead of the end: {event:?}").into()),
        }
        println!("{count} pings of {size} bytes, which came back as they were");
        self.linger()
    }

    fn connect(&mut self, path: Path, from: IpAddr, to: IpAddr) -> Result<ConnectionId, Failure> {
        let mut private_data = [0; Request::PRIVATE_LEN];
        private_data[..HEADER_LEN].copy_from_slice(&IpHeader { src: SocketAddr::new(from, 40_000), dst: to }.emit());
        let connect = Connect {
            path,
            service_id: service_id(PortSpace::Tcp, PORT),
            qpn: self.qp,
            starting_psn: first_psn(),
            mtu: Mtu::B1024,
            ack_timeout: ACK_TIMEOUT,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: true,
            retry_count: 7,
            rnr_retry_count: 7,
            private_data,
        };
        let id = self.cm.connect(self.now(), &connect)?;
        match self.event()? {
            (_, Event::Reply(reply)) => self.make_ready(path, Mtu::B1024, reply.qpn, reply.starting_psn)?,
            (_, event) => return Err(format!("instead of a reply: {event:?}").into()),
        }
        self.cm.establish(self.now(), id)?;
        Ok(id)
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The queue pair from RESET to RTS, with its receive.
    fn make_ready(&mut self, path: Path, mtu: Mtu, dest_qp: u32, sq_psn: Psn) -> Result<(), Failure> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let peer = Peer { path, mtu, dest_qp, rq_psn: first_psn(), max_dest_rd_atomic: 1, min_rnr_timer: 12 };
        let sending = Sending { sq_psn, timeout: ACK_TIMEOUT, ..Sending::default() };
        for modify in [Modify::Init { access, qkey: 0 }, Modify::Rtr(peer), Modify::Rts(sending)] {
            self.hca.modify_qp(self.now(), self.qp, &modify)?;
        }
        self.post_receive()
    }

    fn post_receive(&mut self) -> Result<(), Failure> {
        let sge = Sge { address: RECEIVED, len: ADVERT as u32, lkey: self.received };
        Ok(self.hca.post_recv(self.now(), self.qp, RECEIVE, &[sge])?)
    }

    /// The peer's next message; `None`: it has ended the connection.
    fn advert(&mut self) -> Result<Option<Advert>, Failure> {
        if !self.completion(RECEIVE)? {
            return Ok(None);
        }
        let bytes = self.bytes(self.received, ADVERT).ok_or("a receive without memory")?;
        let (address, rest) = bytes.split_at(8);
        let (rkey, len) = rest.split_at(4);
        let advert = Advert {
            address: u64::from_be_bytes(address.try_into()?),
            rkey: u32::from_be_bytes(rkey.try_into()?),
            len: u32::from_be_bytes(len.try_into()?),
        };
        // (What the peer says is not to lead out of the memory that there is.)
        if advert.len as usize > TEXT_MAX {
            return Err(format!("a text of {} bytes", advert.len).into());
        }
        self.post_receive()?;
        Ok(Some(advert))
    }

    fn say(&mut self, address: u64, key: u32, len: u32) -> Result<(), Failure> {
        let mut bytes = [0; ADVERT];
        bytes[..8].copy_from_slice(&address.to_be_bytes());
        bytes[8..12].copy_from_slice(&key.to_be_bytes());
        bytes[12..].copy_from_slice(&len.to_be_bytes());
        let wr = SendWr::new(SEND, SendOp::Send { immediate: None }, Data::Inline(&bytes));
        self.hca.post_send(self.now(), self.qp, &wr)?;
        self.finished(SEND)
    }

    /// Moves so many bytes between the text here and the peer's memory.
    fn move_text(&mut self, op: SendOp, len: u32) -> Result<(), Failure> {
        let sge = Sge { address: SOURCE, len, lkey: self.source };
        self.hca.post_send(self.now(), self.qp, &SendWr::new(MOVE, op, Data::Gather(&[sge])))?;
        self.finished(MOVE)
    }

    fn finished(&mut self, id: u64) -> Result<(), Failure> {
        if self.completion(id)? { Ok(()) } else { Err("the connection ended in the middle of a ping".into()) }
    }

    fn bytes(&self, key: u32, len: usize) -> Option<&[u8]> {
        self.hca.memory(key)?.get(..len)
    }

    /// Waits for a work request's end; gives whether it came before that of the connection.
    fn completion(&mut self, id: u64) -> Result<bool, Failure> {
        let end = self.now() + PATIENCE;
        loop {
            while let Some(completion) = self.hca.poll_cq(self.cq) {
                if completion.status != Status::Success {
                    return Err(format!("{:?}: {:?}", completion.opcode, completion.status).into());
                }
                self.done.push(completion.id);
            }
            if let Some(at) = self.done.iter().position(|&done| done == id) {
                self.done.remove(at);
                return Ok(true);
            }
            if self.events.iter().any(|(_, event)| *event == Event::Disconnected) {
                return Ok(false);
            }
            self.turn(end)?;
        }
    }

    /// What connection management tells next.
    fn event(&mut self) -> Result<(ConnectionId, Event), Failure> {
        let end = self.now() + PATIENCE;
        loop {
            if !self.events.is_empty() {
                return Ok(self.events.remove(0));
            }
            self.turn(end)?;
        }
    }

    /// Answers the peer's last words.
    fn linger(&mut self) -> Result<(), Failure> {
        let end = self.now() + LINGER;
        while self.now() < end {
            self.turn(end + PATIENCE)?;
        }
        Ok(())
    }

    /// Takes what has come, does what is due, sends what follows, and waits a moment for more.
    fn turn(&mut self, end: Instant) -> Result<(), Failure> {
        if self.now() > end {
            return Err("the peer says nothing".into());
        }
        let mut frame = [0; ETHERNET + Adapter::PACKET_MAX];
        while let Some(packet) = self.tap.receive(&mut frame)? {
            self.hca.on_packet(self.now(), packet);
        }
        let now = self.now();
        while let Some(management) = self.hca.receive_management() {
            self.cm.on_management(now, &management);
        }
        self.hca.on_timer(now);
        self.cm.on_timer(now);
        while let Some(management) = self.cm.poll_transmit() {
            // (Where there is no room it is lost, and sent again.)
            self.hca.send_management(management);
        }
        while let Some(len) = self.hca.poll_transmit(now, &mut frame[ETHERNET..]) {
            self.tap.send(&mut frame, len);
        }
        // (That the connection stands, the first message says as well.)
        self.events.extend(core::iter::from_fn(|| self.cm.poll_event()).filter(|(_, event)| *event != Event::Established));
        let deadline = [self.hca.deadline(), self.cm.deadline()].into_iter().flatten().min();
        self.tap.wait(deadline.map(|at| at.since(self.now())));
        Ok(())
    }
}

/// Which number the peer's first packet is to have: it wraps soon.
const fn first_psn() -> Psn {
    Psn::new(0xff_fff0)
}

/// The text of a ping, as rping has it: its number, letters and what lies between them, from one further each time, and a zero.
fn text(ping: u32, size: usize) -> Vec<u8> {
    let mut text = format!("rdma-ping-{ping}: ").into_bytes();
    text.extend((b'A'..=b'z').cycle().skip((ping % 58) as usize).take(size.saturating_sub(text.len())));
    text.truncate(size);
    if let Some(last) = text.last_mut() {
        *last = 0;
    }
    text
}
