//! What connection management says.

use super::{Connected, Kind, Socket, SocketId, Sockets};
use crate::device::messages::{ConnectionEvent, ConnectionId, Connections, IncomingRequest, NoWay};
use crate::error::Error;
use crate::rsocket::stream::Stream;
use crate::rsocket::wire::{ConnectionData, ConnectionDataError};
use crate::time::Instant;

impl Sockets {
    pub(super) fn on_connection<D: Connections>(&mut self, now: Instant, device: &mut D, connection: ConnectionId, event: ConnectionEvent) {
        if let ConnectionEvent::Request(request) = event {
            if self.on_request(now, device, connection, &request).is_none() {
                device.reject(now, connection);
            }
            return;
        }
        let Some(&id) = self.by_connection.get(&connection) else { return };
        let closing = self.closing.get_mut(&id).map(|closing| &mut closing.connected);
        let is_standing = matches!(event, ConnectionEvent::Established(_));
        let name = is_standing.then(|| device.local_name(connection)).flatten();
        let open = self.sockets.get_mut(id).and_then(|socket| {
            socket.local = name.unwrap_or(socket.local);
            match &mut socket.kind {
                Kind::Stream(connected) => Some(connected),
                Kind::Fresh | Kind::Listener(_) => None,
            }
        });
        let Some(stream) = closing.or(open).map(|connected| &mut connected.stream) else { return };
        match event {
            ConnectionEvent::Established(private_data) if stream.is_opening() => match stream.set_peer(&private_data) {
                Ok(()) => stream.on_ready(now, device, true),
                // The peer is told by the connection's end.
                Err(error) => self.give_up(now, device, id, reason(error)),
            },
            ConnectionEvent::Established(_) => stream.on_heard(),
            ConnectionEvent::Rejected if stream.is_opening() => self.give_up(now, device, id, Error::Refused),
            ConnectionEvent::Unreachable if stream.is_opening() => self.give_up(now, device, id, Error::TimedOut),
            ConnectionEvent::Unroutable(why) if stream.is_opening() => self.give_up(now, device, id, why.into()),
            ConnectionEvent::Rejected | ConnectionEvent::Unreachable | ConnectionEvent::Unroutable(_) | ConnectionEvent::Disconnected => {
                stream.on_disconnected(now, device);
            }
            ConnectionEvent::Down if stream.is_opening() => self.give_up(now, device, id, Error::NetworkDown),
            ConnectionEvent::Down => stream.on_down(now, device),
            // (The device makes rsockets' queue pairs ready; and what is over is over.)
            ConnectionEvent::Request(_)
            | ConnectionEvent::Response(_)
            | ConnectionEvent::Question(..)
            | ConnectionEvent::Served(_)
            | ConnectionEvent::TimewaitExit => {}
        }
        let timer = self.sockets.get(id).and_then(Socket::deadline);
        self.has_timer(timer);
    }

    /// A connection that did not come about.
    fn give_up<D: Connections>(&mut self, now: Instant, device: &mut D, id: SocketId, error: Error) {
        let Some(Socket { kind: Kind::Stream(connected), .. }) = self.sockets.get_mut(id) else { return };
        connected.stream.on_refused(error);
        if let Some(connection) = connected.connection.take() {
            self.by_connection.remove(&connection);
            device.destroy(now, connection);
        }
    }

    /// Accepts at once, as librdmacm does: the program takes the connection from the listener's queue. `None`: it is to be rejected.
    fn on_request<D: Connections>(
        &mut self,
        now: Instant,
        device: &mut D,
        connection: ConnectionId,
        request: &IncomingRequest,
    ) -> Option<()> {
        let (listener_id, socket) = self.sockets.iter_mut().find(|(_, socket)| is_asked(socket, request))?;
        let Kind::Listener(listener) = &socket.kind else { return None };
        if listener.waiting.len() >= listener.backlog || ConnectionData::parse(&request.private_data).is_err() {
            return None;
        }
        let options = socket.options.clone();
        let mut stream = Stream::open(now, device, self.pd, self.host, &options).ok()?;
        let accepted = stream.set_peer(&request.private_data).is_ok()
            && device.accept(now, connection, stream.qp(), &stream.connection_data()).is_ok();
        if !accepted {
            stream.destroy(device);
            return None;
        }
        stream.on_ready(now, device, false);
        self.has_timer(stream.deadline());
        let connected = Connected { stream, connection: Some(connection), remote: request.remote };
        let id = self.insert(Socket { options, local: request.local, kind: Kind::Stream(Box::new(connected)) });
        self.by_connection.insert(connection, id);
        if let Some(Socket { kind: Kind::Listener(listener), .. }) = self.sockets.get_mut(listener_id) {
            listener.waiting.push_back(id);
            self.unaccepted += 1;
        }
        Some(())
    }

    /// A message of the peer's says as much as that its connection management knows of ours, which may come late or be lost.
    pub(super) fn look_for_first_messages<D: Connections>(&mut self, now: Instant, device: &mut D) {
        let waiting: Vec<SocketId> = self.waiting().collect();
        for id in waiting {
            let Some(Socket { kind: Kind::Stream(connected), .. }) = self.sockets.get_mut(id) else { continue };
            if connected.stream.is_heard() {
                continue;
            }
            connected.stream.poll(now, device);
            if let Some(connection) = connected.connection.filter(|_| connected.stream.is_heard()) {
                device.on_communication(connection);
            }
        }
    }

    /// All connections that nobody has accepted.
    fn waiting(&self) -> impl Iterator<Item = SocketId> {
        let listeners = self.listening.iter().filter_map(|id| match &self.sockets.get(*id)?.kind {
            Kind::Listener(listener) => Some(listener.waiting.iter().copied()),
            Kind::Fresh | Kind::Stream(_) => None,
        });
        listeners.flatten()
    }
}

fn is_asked(socket: &Socket, request: &IncomingRequest) -> bool {
    let (at, asked) = (socket.local, request.local);
    // `::` takes both families, unless it is not to.
    let takes_all = at.ip().is_unspecified() && (at.is_ipv4() == asked.is_ipv4() || at.is_ipv6() && !socket.options.v6_only);
    matches!(socket.kind, Kind::Listener(_)) && at.port() == asked.port() && (takes_all || at.ip() == asked.ip())
}

const fn reason(error: ConnectionDataError) -> Error {
    match error {
        ConnectionDataError::Version => Error::NotSupported,
        ConnectionDataError::Malformed => Error::Refused,
    }
}

impl From<NoWay> for Error {
    fn from(why: NoWay) -> Self {
        match why {
            NoWay::Network => Self::NetworkUnreachable,
            NoWay::Host => Self::HostUnreachable,
            NoWay::Prohibited => Self::Prohibited,
            NoWay::Device => Self::NoDevice,
        }
    }
}
