//! Programs that are told, not drawn: what the generated ones found, and a witness for each known difference, so that none outlives its
//! reason.

use crate::program::*;

use Kind::{Tcp, Udp};
use Op::{Accept, Bind, Close, Connect, Exit, Fork, Kill, Listen, Recv, Send, SendTo, Shutdown, Socket};
use Place::At;
use Target::{Nobody, Port};

/// A program with its name.
pub(crate) type Told = (&'static str, Vec<Step>);

const FLAGS: SendFlags = SendFlags { dontwait: false, more: false, nosignal: true };
const PLAIN: RecvFlags = RecvFlags { dontwait: false, peek: false, waitall: false, trunc: false };

/// 1.0 listens, and has accepted 1.1 from 0.0; then `steps`.
fn connected(steps: &[Step]) -> Vec<Step> {
    let mut all = vec![
        Step(1, 0, Socket(Tcp, false)),
        Step(1, 0, Bind(0, At(5001))),
        Step(1, 0, Listen(0, 8)),
        Step(0, 0, Socket(Tcp, false)),
        Step(0, 0, Connect(0, Port(5001))),
        Step(1, 0, Accept(0, AcceptBy::Accept)),
    ];
    all.extend_from_slice(steps);
    all
}

/// 1.0 listens for both families, and has accepted 1.1 from 0.0, which is one of IPv4; then `steps`.
fn mapped(steps: &[Step]) -> Vec<Step> {
    let mut all = vec![
        Step(1, 0, Socket(Kind::Tcp6, false)),
        Step(1, 0, Bind(0, Place::WildAt(5001))),
        Step(1, 0, Listen(0, 8)),
        Step(0, 0, Socket(Tcp, false)),
        Step(0, 0, Connect(0, Port(5001))),
        Step(1, 0, Accept(0, AcceptBy::Accept)),
    ];
    all.extend_from_slice(steps);
    all
}

/// Programs that come to the same in both worlds.
pub(crate) fn alike() -> Vec<Told> {
    vec![
        (
            "nothing is read of a socket in any state",
            vec![
                Step(1, 0, Socket(Tcp, false)),
                Step(1, 0, Recv(0, RecvBy::Readv, 0, PLAIN)),
                Step(1, 0, Recv(0, RecvBy::Read, 0, PLAIN)),
                Step(1, 0, Recv(0, RecvBy::Recv, 0, PLAIN)),
            ],
        ),
        (
            "a receive call that waits on a socket without an address ends with what is done after it has one",
            vec![
                Step(1, 0, Socket(Kind::Udp6, false)),
                Step(1, 0, Recv(0, RecvBy::Readv, 133, PLAIN)),
                Step(1, 1, Connect(0, Port(5002))),
                Step(1, 1, Shutdown(0, How::Both)),
            ],
        ),
        (
            "a connection between two families that moved to the kernel is of its own, in its owner and in a child",
            mapped(&[
                Step(0, 0, Fork),
                Step(1, 0, Op::Ask(1, Question::Domain)),
                Step(0, 0, Op::Ask(0, Question::Domain)),
                Step(2, 0, Op::Ask(0, Question::Domain)),
            ]),
        ),
        (
            "and so it is where the accepting side forks",
            mapped(&[
                Step(1, 0, Fork),
                Step(2, 0, Op::Ask(1, Question::Domain)),
                Step(1, 0, Op::Ask(1, Question::Domain)),
                Step(0, 0, Op::Ask(0, Question::Domain)),
            ]),
        ),
        ("an accepted connection is bound", connected(&[Step(1, 1, Bind(1, At(5002))), Step(1, 0, Bind(1, At(5001)))])),
        (
            "connections are told to leave IPv4 alone, or not to",
            connected(&[
                Step(1, 0, Op::Set(1, Setting::V6Only(false))),
                Step(1, 0, Op::Set(1, Setting::V6Only(true))),
                Step(1, 0, Op::Ask(1, Question::V6Only)),
                Step(0, 0, Op::Set(0, Setting::V6Only(true))),
                Step(0, 0, Op::Ask(0, Question::V6Only)),
                Step(0, 0, Close(0)),
                Step(1, 0, Op::Set(1, Setting::V6Only(true))),
            ]),
        ),
        (
            "nothing is written to what was reset",
            connected(&[
                Step(1, 1, Send(1, SendBy::SendMsg, 3232, FLAGS)),
                Step(0, 1, Close(0)),
                Step(1, 0, Send(1, SendBy::Writev, 0, FLAGS)),
                Step(1, 0, Send(1, SendBy::Writev, 3, FLAGS)),
            ]),
        ),
        (
            "all is waited for that is only looked at",
            connected(&[
                Step(1, 0, Recv(1, RecvBy::Recv, 59, RecvFlags { peek: true, waitall: true, ..PLAIN })),
                Step(0, 1, Send(0, SendBy::SendTo, 58, FLAGS)),
                Step(0, 1, Send(0, SendBy::SendTo, 1, FLAGS)),
            ]),
        ),
        (
            "all is waited for that is discarded",
            connected(&[
                Step(1, 0, Recv(1, RecvBy::RecvFrom, 18, RecvFlags { waitall: true, trunc: true, ..PLAIN })),
                Step(0, 0, Send(0, SendBy::Write, 15, FLAGS)),
                Step(0, 0, Send(0, SendBy::Write, 3, FLAGS)),
            ]),
        ),
        (
            "an epoll instance does not watch itself by another number",
            connected(&[
                Step(0, 0, Op::EpollCreate),
                Step(0, 0, Op::EpollCtl(1, Ctl::Add, 0, libc::EPOLLIN as u32)),
                Step(0, 1, Op::Dup(1, DupBy::FromCloexec(30))),
                Step(0, 0, Op::EpollCtl(2, Ctl::Del, 1, 0)),
                Step(0, 0, Op::EpollCtl(2, Ctl::Add, 1, libc::EPOLLIN as u32)),
            ]),
        ),
        (
            "what was shut down is connected",
            vec![
                Step(0, 0, Socket(Tcp, false)),
                Step(0, 0, Bind(0, At(5002))),
                Step(0, 0, Listen(0, 8)),
                Step(0, 0, Socket(Tcp, true)),
                Step(0, 0, Connect(1, Port(5002))),
                Step(0, 0, Accept(0, AcceptBy::Accept4)),
                Step(0, 0, Shutdown(1, How::Read)),
                Step(0, 1, Connect(1, Target::Of(0, 0))),
            ],
        ),
        (
            "a process ends, and its peer sees no more of it than its end",
            connected(&[
                Step(0, 0, Send(0, SendBy::Write, 46, FLAGS)),
                Step(0, 0, Exit),
                Step(1, 0, Recv(1, RecvBy::Recv, 100, PLAIN)),
                Step(1, 0, Recv(1, RecvBy::Recv, 100, PLAIN)),
                Step(1, 0, Send(1, SendBy::Write, 1, FLAGS)),
                Step(1, 0, Send(1, SendBy::Write, 1, FLAGS)),
            ]),
        ),
        (
            "a signal ends what has begun to fill",
            connected(&[
                Step(0, 0, Send(0, SendBy::Write, 1, FLAGS)),
                Step(1, 0, Recv(1, RecvBy::Recv, 3797, RecvFlags { waitall: true, ..PLAIN })),
                Step(1, 0, Op::Interrupt(0, true)),
            ]),
        ),
        (
            "nobody is at a datagram's port any more",
            vec![
                Step(1, 0, Socket(Udp, false)),
                Step(1, 0, Bind(0, At(5002))),
                Step(0, 0, Socket(Udp, false)),
                Step(0, 0, Bind(0, At(5003))),
                Step(0, 0, Connect(0, Target::Of(1, 0))),
                Step(1, 1, Close(0)),
                Step(0, 1, Send(0, SendBy::Send, 22, FLAGS)),
            ],
        ),
        (
            "an error is told to who wants no bytes",
            connected(&[
                Step(0, 0, Shutdown(0, How::Both)),
                Step(1, 0, Send(1, SendBy::Write, 1, FLAGS)),
                Step(0, 0, Recv(0, RecvBy::Recv, 0, RecvFlags { dontwait: true, ..PLAIN })),
                Step(0, 0, Recv(0, RecvBy::Recv, 0, RecvFlags { dontwait: true, ..PLAIN })),
            ]),
        ),
        (
            "an error is kept for the next call",
            connected(&[
                Step(1, 0, Send(1, SendBy::Write, 1, FLAGS)),
                Step(0, 1, Recv(0, RecvBy::Recv, 127, RecvFlags { waitall: true, trunc: true, ..PLAIN })),
                Step(0, 0, Send(0, SendBy::Send, 22, FLAGS)),
                Step(1, 1, Close(1)),
                Step(0, 0, Recv(0, RecvBy::Recv, 1, PLAIN)),
            ]),
        ),
        (
            "no piece of a datagram is taken when sending is over",
            vec![
                Step(1, 0, Socket(Udp, false)),
                Step(1, 0, Bind(0, At(5002))),
                Step(0, 0, Socket(Udp, false)),
                Step(0, 0, Bind(0, At(5003))),
                Step(0, 0, Connect(0, Target::Of(1, 0))),
                Step(0, 0, Shutdown(0, How::Write)),
                Step(0, 0, Send(0, SendBy::SendMsg, 123, SendFlags { more: true, ..FLAGS })),
            ],
        ),
        (
            "recvmmsg tells an error before the end",
            connected(&[
                Step(0, 0, Close(0)),
                Step(1, 0, Send(1, SendBy::Write, 1, FLAGS)),
                Step(1, 0, Recv(1, RecvBy::RecvMmsg, 1, PLAIN)),
                Step(1, 0, Recv(1, RecvBy::RecvMmsg, 1, PLAIN)),
            ]),
        ),
        (
            "a connection moves, of which reading was shut down",
            connected(&[
                Step(0, 0, Send(0, SendBy::Write, 3000, FLAGS)),
                Step(1, 0, Send(1, SendBy::Write, 2000, FLAGS)),
                Step(0, 0, Shutdown(0, How::Both)),
                Step(1, 0, Shutdown(1, How::Read)),
                Step(0, 0, Fork),
                Step(2, 0, Recv(0, RecvBy::Recv, 3000, PLAIN)),
                Step(1, 0, Recv(1, RecvBy::Recv, 4000, PLAIN)),
            ]),
        ),
        (
            "a connection moves that had ended, and was reset",
            connected(&[Step(0, 0, Exit), Step(1, 0, Send(1, SendBy::Send, 112, FLAGS)), Step(1, 0, Fork)]),
        ),
        (
            "a connection moves that was reset, as the program knows",
            connected(&[
                Step(0, 1, Shutdown(0, How::Both)),
                Step(1, 1, Send(1, SendBy::Write, 121, FLAGS)),
                Step(0, 0, Send(0, SendBy::Send, 134, FLAGS)),
                Step(0, 0, Fork),
            ]),
        ),
        (
            "a connection moves that was reset, with bytes unread",
            connected(&[
                Step(1, 0, Send(1, SendBy::Write, 76, FLAGS)),
                Step(1, 1, Shutdown(1, How::Both)),
                Step(0, 1, Send(0, SendBy::Write, 188, FLAGS)),
                Step(0, 0, Fork),
                Step(2, 0, Recv(0, RecvBy::Recv, 100, PLAIN)),
            ]),
        ),
        (
            "all is waited for while a connection moves",
            connected(&[
                Step(1, 0, Recv(1, RecvBy::RecvFrom, 1572, RecvFlags { waitall: true, ..PLAIN })),
                Step(0, 0, Send(0, SendBy::SendTo, 897, FLAGS)),
                Step(0, 0, Fork),
                Step(2, 0, Send(0, SendBy::Send, 675, FLAGS)),
            ]),
        ),
        (
            "all is waited for, and discarded, while a connection moves",
            connected(&[
                Step(0, 0, Send(0, SendBy::Send, 10, FLAGS)),
                Step(1, 0, Recv(1, RecvBy::RecvFrom, 156, RecvFlags { waitall: true, trunc: true, ..PLAIN })),
                Step(0, 0, Fork),
                Step(2, 0, Send(0, SendBy::Send, 146, FLAGS)),
            ]),
        ),
        (
            "what moved is connected already",
            connected(&[Step(0, 0, Op::NonBlock(0, true, false)), Step(0, 0, Fork), Step(0, 0, Connect(0, Port(5001)))]),
        ),
        (
            "a wait is interrupted after a fork",
            connected(&[
                Step(1, 0, Op::Poll(PollBy::Ppoll, vec![(0, libc::POLLIN | libc::POLLPRI)], Wait::Forever)),
                Step(1, 0, Fork),
                Step(1, 0, Op::Interrupt(0, false)),
            ]),
        ),
        ("a process is killed that has read everything", connected(&[Step(1, 0, Kill), Step(0, 0, Send(0, SendBy::Write, 166, FLAGS))])),
        (
            "a process is killed that has not",
            connected(&[Step(0, 0, Send(0, SendBy::Write, 46, FLAGS)), Step(1, 0, Kill), Step(0, 0, Send(0, SendBy::Write, 166, FLAGS))]),
        ),
        (
            "a process ends that has not read everything",
            connected(&[Step(0, 0, Send(0, SendBy::Write, 46, FLAGS)), Step(1, 0, Exit), Step(0, 1, Send(0, SendBy::Write, 166, FLAGS))]),
        ),
        ("a move leaves SO_REUSEADDR alone", connected(&[Step(1, 0, Fork), Step(0, 0, Op::Ask(0, Question::ReuseAddress))])),
        (
            "a child leaves SO_REUSEADDR alone",
            vec![
                Step(0, 0, Socket(Tcp, false)),
                Step(0, 0, Bind(0, At(5002))),
                Step(0, 0, Listen(0, 8)),
                Step(0, 0, Socket(Tcp, true)),
                Step(0, 0, Connect(1, Port(5002))),
                Step(0, 0, Accept(0, AcceptBy::Accept4)),
                Step(0, 0, Fork),
                Step(2, 0, Op::Ask(2, Question::ReuseAddress)),
            ],
        ),
        (
            "another process makes a listener non-blocking",
            connected(&[Step(1, 0, Fork), Step(2, 0, Op::NonBlock(0, true, false)), Step(1, 0, Accept(0, AcceptBy::Accept))]),
        ),
        (
            "a listener that was shut down is inherited",
            vec![
                Step(1, 0, Socket(Tcp, false)),
                Step(1, 0, Bind(0, At(5001))),
                Step(1, 0, Listen(0, 8)),
                Step(1, 1, Shutdown(0, How::Both)),
                Step(1, 0, Fork),
                Step(2, 0, Accept(0, AcceptBy::Accept)),
            ],
        ),
    ]
}

/// Programs that show a known difference, by its name.
pub(crate) fn witnesses() -> Vec<Told> {
    vec![
        ("mapped-and-moved", mapped(&[Step(0, 0, Fork), Step(1, 0, Bind(1, Place::WildAt(5001)))])),
        (
            "alone-since-connected",
            connected(&[Step(0, 0, Fork), Step(2, 0, Op::Ask(0, Question::V6Only))]).iter().map(Step::by_ipv6).collect(),
        ),
        (
            "early-shutdown",
            vec![
                Step(1, 0, Socket(Udp, false)),
                Step(1, 0, Bind(0, At(5002))),
                Step(0, 0, Socket(Udp, false)),
                Step(0, 0, Shutdown(0, How::Both)),
                Step(0, 1, SendTo(0, SendBy::SendTo, 190, Target::Of(1, 0))),
            ],
        ),
        (
            "restarted-patience",
            vec![
                Step(1, 0, Socket(Tcp, false)),
                Step(1, 0, Bind(0, At(5001))),
                Step(1, 0, Listen(0, 8)),
                Step(1, 0, Accept(0, AcceptBy::Accept)),
                Step(1, 1, Op::Set(0, Setting::RecvTimeout(12))),
                Step(1, 0, Op::Interrupt(0, true)),
            ],
        ),
        (
            "moved-patience",
            connected(&[
                Step(1, 1, Recv(1, RecvBy::Recv, 10, PLAIN)),
                Step(1, 0, Op::Set(1, Setting::RecvTimeout(12))),
                Step(1, 0, Fork),
                Step(2, 1, Send(1, SendBy::Send, 15, FLAGS)),
            ]),
        ),
        ("disconnected", connected(&[Step(0, 0, Connect(0, Nobody))])),
        ("closed-in-use", connected(&[Step(1, 0, Recv(1, RecvBy::Recv, 10, PLAIN)), Step(1, 1, Close(1))])),
        (
            "bound-after-reset",
            connected(&[Step(0, 0, Shutdown(0, How::Both)), Step(1, 0, Send(1, SendBy::Send, 15, FLAGS)), Step(1, 1, Bind(1, At(5002)))]),
        ),
        (
            "told-by-one-half",
            vec![
                Step(1, 0, Socket(Udp, false)),
                Step(1, 0, Bind(0, At(5002))),
                Step(0, 0, Socket(Udp, false)),
                Step(0, 0, Bind(0, At(5003))),
                Step(1, 0, Connect(0, Port(5001))),
                Step(1, 0, Send(0, SendBy::Write, 1, FLAGS)),
                Step(1, 0, SendTo(0, SendBy::SendTo, 125, Target::Of(0, 0))),
            ],
        ),
        (
            "gathered-unbound",
            vec![Step(1, 0, Socket(Udp, false)), Step(1, 1, Send(0, SendBy::Send, 843, SendFlags { more: true, ..FLAGS }))],
        ),
        (
            "gathered-and-shut",
            vec![
                Step(1, 0, Socket(Udp, false)),
                Step(1, 0, Bind(0, At(5002))),
                Step(0, 0, Socket(Udp, false)),
                Step(0, 0, Bind(0, At(5003))),
                Step(0, 0, Connect(0, Target::Of(1, 0))),
                Step(0, 0, Send(0, SendBy::Send, 1, SendFlags { more: true, ..FLAGS })),
                Step(0, 1, Shutdown(0, How::Both)),
                Step(0, 0, Send(0, SendBy::Send, 113, FLAGS)),
            ],
        ),
        (
            "overtakes-itself",
            vec![
                Step(1, 0, Socket(Udp, false)),
                Step(1, 0, Send(0, SendBy::Send, 63, FLAGS)),
                Step(1, 0, SendTo(0, SendBy::SendTo, 1688, Target::Of(1, 0))),
                Step(1, 0, Connect(0, Port(5001))),
                Step(1, 0, Connect(0, Target::Of(1, 0))),
                Step(1, 0, Send(0, SendBy::Send, 10, FLAGS)),
            ],
        ),
        (
            "looks-on",
            connected(&[
                Step(1, 1, Recv(1, RecvBy::Recv, 42, RecvFlags { peek: true, waitall: true, ..PLAIN })),
                Step(0, 1, Send(0, SendBy::SendTo, 41, FLAGS)),
                Step(1, 0, Op::Interrupt(1, true)),
            ]),
        ),
        (
            "part-of-a-set",
            connected(&[
                Step(0, 1, Socket(Udp, false)),
                Step(0, 0, Op::Poll(PollBy::Poll, vec![(0, libc::POLLOUT), (1, libc::POLLOUT)], Wait::No)),
            ]),
        ),
        (
            "edge-again",
            connected(&[
                Step(0, 0, Op::EpollCreate),
                Step(0, 0, Op::EpollCtl(1, Ctl::Add, 0, (libc::EPOLLET | libc::EPOLLOUT) as u32)),
                Step(0, 0, Op::EpollWait(1, 0, 1, Wait::No)),
                Step(1, 0, Shutdown(1, How::Write)),
            ]),
        ),
        (
            "untold-and-moved",
            vec![
                Step(0, 0, Socket(Tcp, false)),
                Step(0, 0, Bind(0, At(5002))),
                Step(0, 0, Listen(0, 8)),
                Step(0, 0, Socket(Tcp, true)),
                Step(0, 0, Connect(1, Port(5002))),
                Step(0, 0, Accept(0, AcceptBy::Accept4)),
                Step(0, 0, Close(2)),
                Step(0, 0, Send(1, SendBy::Write, 1, FLAGS)),
                Step(0, 0, Send(1, SendBy::SendMsg, 191, FLAGS)),
                Step(0, 0, Fork),
                Step(2, 1, Connect(1, Target::Of(0, 1))),
            ],
        ),
        ("port-held", connected(&[Step(1, 0, Close(0)), Step(1, 0, Socket(Tcp, false)), Step(1, 0, Bind(0, At(5001)))])),
        (
            "inherited-datagrams",
            vec![
                Step(1, 0, Socket(Udp, false)),
                Step(1, 0, Bind(0, At(5002))),
                Step(0, 0, Socket(Udp, false)),
                Step(0, 0, SendTo(0, SendBy::SendTo, 144, Port(5002))),
                Step(1, 0, Fork),
            ],
        ),
        (
            "inherited-epoll",
            connected(&[
                Step(0, 0, Op::EpollCreate),
                Step(0, 0, Op::EpollCtl(1, Ctl::Add, 0, libc::EPOLLOUT as u32)),
                Step(0, 0, Fork),
                Step(2, 0, Op::EpollWait(1, 0, 2, Wait::No)),
            ]),
        ),
        (
            "inherited-listener",
            vec![
                Step(1, 0, Socket(Tcp, false)),
                Step(1, 0, Bind(0, At(5001))),
                Step(1, 0, Listen(0, 8)),
                Step(1, 0, Fork),
                Step(1, 1, Shutdown(0, How::Both)),
            ],
        ),
        ("inherited-fresh", connected(&[Step(0, 0, Socket(Tcp, false)), Step(0, 0, Fork), Step(0, 0, Connect(1, Port(5001)))])),
    ]
}
