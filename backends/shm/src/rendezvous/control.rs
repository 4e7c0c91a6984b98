//! The control socket: one line in, JSON out, end. For `ringway stats` and `ringway doctor`.

use std::io;
use std::sync::PoisonError;

use super::serve::{Token, accept_or_refuse};
use super::{Rendezvous, State};
use crate::fd::Fd;
use crate::sys;

/// Clients at a time; the oldest gives way.
const CLIENTS_MAX: usize = 16;
/// Bytes of a request, its line end included.
const REQUEST_MAX: usize = 256;

/// A control connection.
pub(super) struct Client {
    number: u64,
    pub(super) socket: Fd,
    request: Vec<u8>,
    reply: Option<Vec<u8>>,
    sent: usize,
}

/// A request that was read whole.
pub(super) struct Request {
    number: u64,
    line: String,
}

impl Rendezvous {
    pub(super) fn accept_clients(&self, state: &mut State) {
        while let Some(socket) = self.control.as_ref().and_then(|control| accept_or_refuse(control, &mut state.spare)) {
            let is_welcome = sys::peer_credentials(&socket).is_ok_and(|peer| peer.uid == self.member.uid || peer.uid == 0);
            let number = state.number();
            if !is_welcome || self.epoll.add(&socket, libc::EPOLLIN, Token::Client(number).pack()).is_err() {
                continue;
            }
            if state.clients.len() >= CLIENTS_MAX
                && let Some(oldest) = state.clients.pop_front()
            {
                self.discard(oldest.socket);
            }
            state.clients.push_back(Client { number, socket, request: Vec::new(), reply: None, sent: 0 });
        }
    }

    /// Reads more of a request, or writes more of a reply.
    pub(super) fn serve_client(&self, state: &mut State, number: u64) -> Option<Request> {
        let at = state.clients.iter().position(|client| client.number == number)?;
        let client = &mut state.clients[at];
        let step = if client.reply.is_some() { client.write() } else { client.read() };
        match step {
            Step::More => None,
            Step::Request(line) => {
                // Not to be told again of what it sends before it has its reply.
                let _ = self.epoll.modify(&client.socket, 0, Token::Client(number).pack());
                Some(Request { number, line })
            }
            Step::Done => {
                if let Some(client) = state.clients.remove(at) {
                    self.discard(client.socket);
                }
                None
            }
        }
    }
}

/// Calls the handler, without a lock, and begins the reply.
pub(super) fn answer(rendezvous: &Rendezvous, request: Request) {
    let handler = rendezvous.handler.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let reply = handler.map_or_else(|| r#"{"error":"not ready"}"#.to_owned(), |handler| handler(&request.line));
    let mut state = rendezvous.lock();
    if let Some(client) = state.clients.iter_mut().find(|client| client.number == request.number) {
        client.reply = Some(reply.into_bytes());
        let _ = rendezvous.epoll.modify(&client.socket, libc::EPOLLOUT, Token::Client(request.number).pack());
    }
    rendezvous.serve_client(&mut state, request.number);
}

enum Step {
    More,
    Request(String),
    Done,
}

impl Client {
    fn read(&mut self) -> Step {
        let mut bytes = [0; REQUEST_MAX];
        // (What is passed with it is dropped, which recv(2) would do here and now.)
        match sys::receive_with(&self.socket, &mut bytes) {
            Ok((0, _)) => return Step::Done,
            Ok((len, _)) => self.request.extend_from_slice(&bytes[..len]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Step::More,
            Err(_) => return Step::Done,
        }
        match self.request.iter().position(|&byte| byte == b'\n') {
            Some(end) => String::from_utf8(self.request[..end].to_vec()).map_or(Step::Done, |line| Step::Request(line.trim().to_owned())),
            None if self.request.len() >= REQUEST_MAX => Step::Done,
            None => Step::More,
        }
    }

    fn write(&mut self) -> Step {
        let Some(reply) = &self.reply else { return Step::More };
        while self.sent < reply.len() {
            match sys::send(&self.socket, &reply[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Step::More,
                Err(_) => return Step::Done,
            }
        }
        Step::Done
    }
}
