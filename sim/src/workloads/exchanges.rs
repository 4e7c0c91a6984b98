//! Conversations over TCP between hosts of which each may serve and connect: streams, questions and answers, half-closed connections,
//! resets, sides that leave, slow readers.

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;

use ringway_stack::ring::FlowId;
use ringway_stack::tcp::Config;

use super::{Ground, Site, Standing, Verdict, Workload, WorkloadSet, sides};
use crate::apps::{Client, Dialogue, Ending, Pace, Parting, Server, Shared, Side, Transfer};
use crate::world::World;

/// Linux's TCP_RTO_MAX, which the stack follows.
const RTO_MAX: Duration = Duration::from_secs(120);

/// One conversation.
#[derive(Debug)]
struct Exchange {
    client: usize,
    server: usize,
    kind: &'static str,
    /// From the client's point of view.
    dialogue: Dialogue,
    /// The client's and the server's.
    transfers: [Shared<Transfer>; 2],
}

impl Exchange {
    /// What comes for who sleeps may lie in all receive buffers of his host, if it has few. Then nobody else there hears anything until he is up; and then not
    /// before a peer's timer runs out, which has backed off meanwhile.
    fn silence(&self, ground: &Ground<'_>) -> Duration {
        let of = |host: usize, own: Side, peer: Side| {
            let options = &ground.hosts[host];
            // (Each byte may come alone in a frame.)
            let holds_all = options.has_few_rx_buffers() && peer.total >= options.nic.rx_buffers_max as u64;
            if holds_all && !own.nap.is_zero() { own.nap + RTO_MAX } else { Duration::ZERO }
        };
        let Dialogue { own, peer } = self.dialogue;
        of(self.client, own, peer) + of(self.server, peer, own)
    }
}

/// All conversations of one kind.
#[derive(Debug)]
pub(super) struct Exchanges {
    exchanges: Vec<Exchange>,
    /// See [`Workload::silence`].
    silence: Duration,
    standing: Standing,
}

impl Exchanges {
    pub(super) fn draw(workload: WorkloadSet, ground: &mut Ground<'_>) -> Self {
        let count = ground.stream.between(1, 3);
        let exchanges: Vec<_> = (0..count).map(|_| exchange(workload, ground)).collect();
        let silence = exchanges.iter().map(|exchange| exchange.silence(ground)).sum();
        Self { exchanges, silence, standing: Standing::default() }
    }
}

impl fmt::Display for Exchanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Exchange { client, server, kind, dialogue, .. } in &self.exchanges {
            writeln!(f, "host {client} talks to host {server}, {kind}:\n  client {:?}\n  server {:?}", dialogue.own, dialogue.peer)?;
        }
        Ok(())
    }
}

impl Workload for Exchanges {
    fn set_up(&mut self, site: &mut Site<'_>) {
        let port = site.server_port(0);
        for host in 0..site.hosts.len() {
            let own = self.exchanges.iter().zip(0..).filter(|(exchange, _)| exchange.server == host);
            let expected: Vec<_> = own
                .map(|(exchange, number)| {
                    (site.address(exchange.client, site.client_port(number)), exchange.dialogue.turned(), exchange.transfers[1].clone())
                })
                .collect();
            if !expected.is_empty() {
                site.add_server(host, &mut self.standing, move |config, socket| server(port, config, socket, &expected));
            }
        }
        for (exchange, number) in self.exchanges.iter().zip(0..) {
            let (server, config) = (site.address(exchange.server, port), site.options[exchange.client].tcp.clone());
            let client = Client::new(site.client_port(number), server, exchange.dialogue, config, exchange.transfers[0].clone());
            let ring = site.ring(exchange.client);
            site.world.add_app_on(site.hosts[exchange.client], ring, client);
        }
    }

    fn silence(&self) -> Duration {
        self.silence
    }

    fn pauses(&self) -> bool {
        self.exchanges.iter().any(|exchange| [exchange.dialogue, exchange.dialogue.turned()].iter().any(lets_wait))
    }

    fn progress(&self) -> Vec<String> {
        let line = |exchange: &Exchange| {
            let [client, server] = exchange.transfers.each_ref().map(|transfer| *transfer.read());
            let sides = progress(&exchange.dialogue, client, server);
            format!("hosts {} and {} ({}): {sides}", exchange.client, exchange.server, exchange.kind)
        };
        self.exchanges.iter().map(line).collect()
    }

    fn check(&self, verdict: &Verdict) {
        for exchange in &self.exchanges {
            for (transfer, dialogue) in exchange.transfers.iter().zip([exchange.dialogue, exchange.dialogue.turned()]) {
                let [own, peer] = [dialogue.own.parting, dialogue.peer.parting];
                let transfer = transfer.read();
                // Whoever is left hears of it by a reset, if at all.
                verdict.check_ending(&exchange.kind, &transfer, peer != Parting::Close);
                let meant = match transfer.ending {
                    Some(Ending::Aborted) => own == Parting::Abort,
                    Some(Ending::Left) => matches!(own, Parting::Leave { .. }),
                    _ => true,
                };
                assert!(meant, "{}: a side ended as it was not to: {:?}", exchange.kind, transfer.ending);
            }
        }
    }

    fn wind_down(&mut self, world: &mut World) {
        self.standing.close(world);
    }
}

/// Whether the peer may have to wait, for all that goes well: the own side doesn't read for a while, or never again. (Who has left offers no more than the rest
/// of its buffer, which the peer may not use before a timer says so: RFC 1122 s4.2.3.4, as in the seed 90374377.)
fn lets_wait(Dialogue { own, peer }: &Dialogue) -> bool {
    let leaves_unread = matches!(own.parting, Parting::Leave { read } if read < peer.total);
    leaves_unread || !(own.read_pause + own.nap).is_zero()
}

/// A server that expects these clients. What it had with those that it lost by a crash is forgotten.
pub(super) fn server(
    port: u16,
    config: Config,
    socket: Shared<Option<FlowId>>,
    expected: &[(SocketAddr, Dialogue, Shared<Transfer>)],
) -> Server {
    let mut program = Server::new(port, config, socket);
    for (client, dialogue, transfer) in expected {
        if transfer.read().ending.is_none() {
            transfer.set(Transfer::default());
        }
        program.expect(*client, *dialogue, transfer.clone());
    }
    program
}

/// How far two sides of a conversation got.
pub(super) fn progress(dialogue: &Dialogue, client: Transfer, server: Transfer) -> String {
    let side = |name, own: Side, peer: Side, Transfer { written, read, ending }: Transfer| {
        format!("{name} wrote {written} of {}, read {read} of {}, {ending:?}", own.total, peer.total)
    };
    let client = side("client", dialogue.own, dialogue.peer, client);
    format!("{client}; {}", side("server", dialogue.peer, dialogue.own, server))
}

fn exchange(workload: WorkloadSet, ground: &mut Ground<'_>) -> Exchange {
    let [client, server] = ground.two_hosts();
    let total_max = 1024 << ground.scale;
    let (mut own, mut peer) = (sides::side(ground, total_max), sides::side(ground, total_max));
    let kind = match workload {
        WorkloadSet::REQUEST => "request",
        WorkloadSet::HALF_CLOSE => "half-close",
        WorkloadSet::ABORT => ground.stream.pick(&["client aborts", "server aborts", "client leaves", "server leaves"]),
        WorkloadSet::SLOW => ground.stream.pick(&["slow client", "slow server", "both slow", "client sleeps", "server sleeps"]),
        _ => ground.stream.pick(&["upload", "download", "both ways"]),
    };
    match kind {
        "upload" => peer.total = 0,
        "download" => own.total = 0,
        "half-close" => peer.pace = Pace::AfterPeer,
        "client aborts" => own.parting = Parting::Abort,
        "server aborts" => peer.parting = Parting::Abort,
        "client leaves" => own.parting = Parting::Leave { read: ground.stream.between(0, peer.total) },
        "server leaves" => peer.parting = Parting::Leave { read: ground.stream.between(0, own.total) },
        "slow client" => own.read_pause = sides::rest(ground.stream),
        "slow server" => peer.read_pause = sides::rest(ground.stream),
        "both slow" => (own.read_pause, peer.read_pause) = (sides::rest(ground.stream), sides::rest(ground.stream)),
        "client sleeps" => own.nap = nap(ground),
        "server sleeps" => peer.nap = nap(ground),
        _ => {}
    }
    let dialogue = match kind {
        "request" => sides::exchange(ground.stream, 4 << ground.scale.min(4), 4096, 16 << 10),
        _ => sides::paced(Dialogue { own, peer }),
    };
    Exchange { client, server, kind, dialogue, transfers: [(); 2].map(|()| Shared::new(Transfer::default())) }
}

/// A minute or two, in which its peer's window stays shut if that has enough to say (RFC 9293 s3.8.6.1).
fn nap(ground: &mut Ground<'_>) -> Duration {
    Duration::from_secs(ground.stream.between(61, 120))
}
