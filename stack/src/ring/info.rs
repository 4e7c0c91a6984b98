//! A socket as `ss` would show it.

use core::time::Duration;

use super::slots::{Listener, Socket, Stream};
use super::types::SocketInfo;
use super::udp::UdpSocket;
use crate::device::{Device, Protocol};
use crate::tcp;

pub(super) fn of<D: Device>(socket: &Socket<D>) -> SocketInfo {
    match socket {
        Socket::Stream(stream) => of_stream(stream),
        Socket::Listener(listener) => of_listener(listener),
        Socket::Udp(udp) => of_udp(udp),
    }
}

fn of_stream<D: Device>(stream: &Stream<D>) -> SocketInfo {
    let connection = &stream.connection;
    SocketInfo {
        protocol: Protocol::Tcp,
        local: stream.local,
        remote: Some(stream.remote),
        state: Some(connection.state()),
        recv_queue: connection.available(),
        next_len: connection.available(),
        send_queue: connection.send_queue(),
        srtt: connection.srtt(),
        mss: connection.mss(),
        cwnd: connection.cwnd(),
        counters: connection.counters(),
    }
}

fn of_listener(listener: &Listener) -> SocketInfo {
    SocketInfo {
        protocol: Protocol::Tcp,
        local: listener.local,
        remote: None,
        state: Some(tcp::State::Listen),
        recv_queue: listener.ready.len(),
        next_len: 0,
        send_queue: 0,
        srtt: Duration::ZERO,
        mss: 0,
        cwnd: 0,
        counters: listener.counters,
    }
}

fn of_udp<D: Device>(udp: &UdpSocket<D>) -> SocketInfo {
    let (recv_queue, next_len) = udp.waiting();
    SocketInfo {
        protocol: Protocol::Udp,
        local: udp.local,
        remote: udp.remote.map(|(address, _)| address),
        state: None,
        recv_queue,
        next_len,
        send_queue: 0,
        srtt: Duration::ZERO,
        mss: 0,
        cwnd: 0,
        counters: udp.counters,
    }
}
