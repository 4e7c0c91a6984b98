//! Programs that are told, not drawn: one for each known difference, so that none outlives its reason, and some that should
//! come to the same whatever the dice say.

use ringway_conformance::reference::program::{Op, Target};
use ringway_conformance::reference::sockets::{Flags, Host, How, Kind, Setting, Slot};
use ringway_sim::Family;

use Op::{Accept, Bind, Close, Connect, Disconnect, Fill, Listen, Recv, Send, SendTo, Set, Shutdown, Socket, TakeError};

const A0: Slot = Slot::new(Host::A, 0);
const A1: Slot = Slot::new(Host::A, 1);
const B0: Slot = Slot::new(Host::B, 0);
const B1: Slot = Slot::new(Host::B, 1);
const PLAIN: Flags = Flags { peek: false, trunc: false };
const PEEK: Flags = Flags { peek: true, trunc: false };
const TRUNC: Flags = Flags { peek: false, trunc: true };

const TCP_A: Op = Socket(Host::A, Kind::Tcp);
const TCP_B: Op = Socket(Host::B, Kind::Tcp);
const UDP_A: Op = Socket(Host::A, Kind::Udp);
const UDP_B: Op = Socket(Host::B, Kind::Udp);
/// B0 listens, A0 is connected to B1.
const CONNECTED: [Op; 6] = [TCP_B, Bind(B0, 5001), Listen(B0, 2), TCP_A, Connect(A0, Target::Port(5001)), Accept(B0)];

/// A program with its name.
pub(crate) type Told = (&'static str, Vec<Op>);

/// Programs that come to the same in both worlds.
pub(crate) fn alike(family: Family) -> Vec<Told> {
    // The longest datagram that a frame of 1500 bytes carries, and one that is longer than any.
    let (longest, too_long) = if family == Family::V4 { (1472, 65_508) } else { (1452, 65_528) };
    vec![
        (
            "request and response",
            connected(&[
                Send(A0, 100, false),
                Recv(B1, 40, PEEK),
                Recv(B1, 200, PLAIN),
                Send(B1, 1400, false),
                Recv(A0, 1000, TRUNC),
                Recv(A0, 1000, PLAIN),
            ]),
        ),
        (
            "half-close",
            connected(&[
                Send(A0, 10, false),
                Shutdown(A0, How::Write),
                Recv(B1, 5, PLAIN),
                Recv(B1, 50, PLAIN),
                Recv(B1, 50, PLAIN),
                Send(B1, 9, false),
                Close(B1),
                Recv(A0, 99, PLAIN),
                Recv(A0, 99, PLAIN),
                Send(A0, 1, false),
                Shutdown(A0, How::Write),
            ]),
        ),
        (
            "refused",
            vec![
                TCP_A,
                Connect(A0, Target::Port(5002)),
                Connect(A0, Target::Port(5002)),
                Connect(A0, Target::Port(5002)),
                TakeError(A0),
                Connect(A0, Target::Port(5002)),
                Shutdown(A0, How::Both),
                Connect(A0, Target::Port(5001)),
            ],
        ),
        (
            "closed with bytes unread",
            connected(&[Send(A0, 10, false), Close(B1), Send(A0, 1, false), Recv(A0, 1, PLAIN), Send(A0, 1, false), Recv(A0, 1, PLAIN)]),
        ),
        (
            "aborted",
            connected(&[
                Set(B1, Setting::LingerZero(true)),
                Close(B1),
                TakeError(A0),
                TakeError(A0),
                Recv(A0, 1, PLAIN),
                Shutdown(A0, How::Both),
            ]),
        ),
        (
            "both directions ended, and bytes for nobody",
            connected(&[
                Send(B1, 116, false),
                Shutdown(A0, How::Both),
                Send(B1, 133, false),
                Recv(A0, 99, PLAIN),
                Recv(A0, 99, PLAIN),
                Recv(A0, 99, PLAIN),
                TakeError(B1),
            ]),
        ),
        (
            "reading ended, and an error after it",
            connected(&[
                Shutdown(A0, How::Read),
                Recv(A0, 9, PLAIN),
                Send(B1, 5, false),
                Recv(A0, 9, PLAIN),
                Set(B1, Setting::LingerZero(true)),
                Close(B1),
                Recv(A0, 9, PLAIN),
                Recv(A0, 9, PLAIN),
            ]),
        ),
        (
            "a connection that was reset is nobody's, though still open",
            connected(&[
                Bind(A0, 5003),
                Set(B1, Setting::LingerZero(true)),
                Close(B1),
                Close(B0),
                TCP_B,
                Bind(B0, 5001),
                Connect(B0, Target::Of(A0)),
                TakeError(B0),
            ]),
        ),
        (
            "a backlog of none takes one",
            vec![
                TCP_B,
                Bind(B0, 5001),
                Listen(B0, 0),
                TCP_A,
                Connect(A0, Target::Port(5001)),
                TCP_A,
                Connect(A1, Target::Port(5001)),
                Connect(A1, Target::Port(5001)),
                Recv(A1, 1, PLAIN),
                Send(A1, 1, false),
                Accept(B0),
                Accept(B0),
                Shutdown(A1, How::Write),
                TakeError(A1),
            ],
        ),
        (
            "a port given after the connection ended",
            connected(&[
                Disconnect(B1),
                Connect(B1, Target::Port(5001)),
                Bind(B1, 0),
                Bind(B1, 5001),
                Connect(B1, Target::Port(5001)),
                Bind(B1, 5002),
            ]),
        ),
        (
            "cork and no delay",
            connected(&[
                Set(A0, Setting::Cork(true)),
                Send(A0, 100, false),
                Send(A0, 50, true),
                Set(A0, Setting::Cork(false)),
                Send(A0, 7, true),
                Set(A0, Setting::NoDelay(true)),
                Recv(B1, 999, PLAIN),
            ]),
        ),
        ("a write of nothing lets nothing go", connected(&[Send(A0, 1, true), Send(A0, 0, false), Send(B1, 1, false), Recv(B1, 9, PLAIN)])),
        ("full, and empty again", connected(&[Fill(A0), Fill(B1), Shutdown(A0, How::Write), Fill(B1), Close(B1), Recv(A0, 1, PLAIN)])),
        (
            "a stream told to connect elsewhere",
            connected(&[
                Connect(A0, Target::Port(5001)),
                Connect(A0, Target::Port(5001)),
                Disconnect(A0),
                TakeError(A0),
                Recv(B1, 1, PLAIN),
                Connect(A0, Target::Port(5001)),
                Accept(B0),
                Listen(A0, 1),
                Bind(A0, 5002),
            ]),
        ),
        (
            "datagrams",
            vec![
                UDP_B,
                Bind(B0, 5002),
                UDP_A,
                Send(A0, 1, false),
                SendTo(A0, 0, Target::Of(B0)),
                SendTo(A0, longest, Target::Of(B0)),
                Recv(B0, 0, PLAIN),
                Recv(B0, 10, TRUNC),
                Recv(B0, 10, PLAIN),
                SendTo(B0, 3, Target::Of(A0)),
                Recv(A0, 2, PEEK),
                Recv(A0, 2, PLAIN),
                SendTo(A0, too_long, Target::Of(B0)),
            ],
        ),
        (
            "a port that nobody has",
            vec![
                UDP_A,
                Connect(A0, Target::Port(5002)),
                Send(A0, 1, false),
                Send(A0, 1, false),
                Send(A0, 1, false),
                TakeError(A0),
                SendTo(A0, 5, Target::Port(5003)),
                Recv(A0, 9, PLAIN),
            ],
        ),
        (
            "strangers at a connected UDP socket",
            vec![
                UDP_B,
                Bind(B0, 5002),
                UDP_A,
                Connect(A0, Target::Of(B0)),
                UDP_A,
                Connect(A1, Target::Of(B0)),
                Connect(B0, Target::Of(A0)),
                Send(A1, 8, false),
                TakeError(A1),
                Send(A0, 8, false),
                Recv(B0, 9, PLAIN),
            ],
        ),
        (
            "a UDP socket shut down before it is connected",
            vec![
                UDP_A,
                Shutdown(A0, How::Read),
                Recv(A0, 9, PLAIN),
                UDP_B,
                Bind(B0, 5002),
                SendTo(A0, 1, Target::Of(B0)),
                SendTo(B0, 1, Target::Of(A0)),
                Recv(A0, 9, PLAIN),
                Recv(A0, 9, PLAIN),
                Shutdown(A0, How::Write),
                Send(A0, 1, false),
                SendTo(A0, 1, Target::Of(B0)),
            ],
        ),
    ]
}

/// Programs that show a known difference, by its name.
pub(crate) fn witnesses() -> Vec<Told> {
    vec![
        ("udp-more", vec![UDP_B, Bind(B0, 5002), UDP_A, Connect(A0, Target::Of(B0)), Send(A0, 9, true)]),
        ("no-fragments", vec![UDP_B, Bind(B0, 5002), UDP_A, SendTo(A0, 2000, Target::Of(B0))]),
        (
            "udp-disconnect-port",
            vec![
                UDP_A,
                UDP_B,
                Connect(A0, Target::Port(5002)),
                Bind(B0, 5002),
                Connect(B0, Target::Of(A0)),
                Disconnect(A0),
                Send(B0, 1, false),
            ],
        ),
        ("port-still-used", connected(&[Close(B0), TCP_B, Close(B1), Bind(B0, 5001)])),
        (
            "time-wait-second",
            connected(&[
                Shutdown(B1, How::Both),
                Shutdown(A0, How::Both),
                Shutdown(A0, How::Both),
                Shutdown(B0, How::Read),
                Connect(B0, Target::Of(A0)),
            ]),
        ),
        ("early-shutdown", vec![TCP_B, Bind(B0, 5001), Listen(B0, 2), TCP_A, Shutdown(A0, How::Read), Connect(A0, Target::Port(5001))]),
    ]
}

fn connected(then: &[Op]) -> Vec<Op> {
    [&CONNECTED, then].concat()
}
