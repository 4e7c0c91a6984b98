//! Listeners: a flow in each ring that connections may come to, and one queue of them for the program.

use std::net::SocketAddr;

use super::Env;
use super::kernel::Beside;
use super::merge::{self, Source};
use super::state::{Bound, Socket, SocketId, State};
use super::stream::Stream;
use crate::device::Protocol;
use crate::error::Error;
use crate::ring::FlowId;
use crate::tcp;

/// A listening socket's flows.
#[derive(Debug)]
pub struct Listener {
    pub(super) local: SocketAddr,
    pub(super) flows: Vec<FlowId>,
}

impl Socket {
    /// Lets it accept connections; again: changes its backlog. (Each ring's is as long as the whole, as with the members of a SO_REUSEPORT group.)
    ///
    /// # Errors
    /// [`Error::DestinationRequired`]: it is not bound; [`Error::Invalid`]: it is connected, or not of TCP; and a ring's: nothing listens then.
    pub fn listen(&mut self, env: &mut Env<'_>, backlog: usize) -> Result<(), Error> {
        let &Bound { local } = match &self.state {
            State::Bound(bound) => bound,
            State::Listening(listener) => return set_backlog(env, &listener.flows, self.beside.as_mut(), backlog),
            State::Kernel => return self.beside.as_mut().ok_or(Error::BadSocket)?.part.listen(backlog),
            State::Fresh if self.setup.protocol == Protocol::Tcp => return Err(Error::DestinationRequired),
            State::Closed => return Err(Error::BadSocket),
            _ => return Err(Error::Invalid),
        };
        // (Before the rings have it: what comes by links without one is not to be refused.)
        if let Some(beside) = &mut self.beside {
            beside.part.listen(backlog)?;
        }
        let config = &self.setup.tcp;
        let opened = self.open_everywhere(env, local.ip(), |ring, is_shared| {
            let config = tcp::Config { reuse_port: config.reuse_port || is_shared, ..config.clone() };
            ring.listen(local, backlog, &config)
        });
        self.state = match opened {
            Ok(flows) => State::Listening(Listener { local, flows }),
            Err(_) if self.beside.is_some() => State::Kernel,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Takes the connection that was complete first, whichever ring has it, or the kernel. It is `id` from now on, stays where it is, and has what was set of
    /// the listener.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: there is none; [`Error::Invalid`]: it does not listen; a ring's that lost its flow rule.
    pub fn accept(&mut self, env: &mut Env<'_>, id: SocketId) -> Result<Self, Error> {
        let flows: &[FlowId] = match &self.state {
            State::Listening(listener) => &listener.flows,
            State::Kernel => &[],
            State::Closed => return Err(Error::BadSocket),
            _ => return Err(Error::Invalid),
        };
        match merge::next(env.rings, flows, self.beside.as_mut(), env.now, env.choice.mutation()) {
            None => Err(Error::WouldBlock),
            Some(Source::Kernel) => {
                let beside = self.beside.as_mut().ok_or(Error::BadSocket)?;
                let part = beside.part.accept();
                beside.taken();
                Ok(Self { id, setup: self.setup.clone(), state: State::Kernel, beside: Some(Beside::new(part?)) })
            }
            Some(Source::Flow(listener)) => {
                let ring = env.rings.at(listener.ring).ok_or(Error::BadSocket)?;
                let flow = match ring.accept(listener) {
                    // What befell its flow rule: later connections may still come by the other rings.
                    Err(Error::WouldBlock) => return Err(ring.take_error(listener).unwrap_or(Error::WouldBlock)),
                    accepted => accepted?,
                };
                let info = ring.info(flow).ok_or(Error::BadSocket)?;
                let remote = info.remote.ok_or(Error::BadSocket)?;
                let state = State::Connected(Stream::at(flow, info.local, info.local, remote));
                Ok(Self { id, setup: self.setup.clone(), state, beside: None })
            }
        }
    }
}

fn set_backlog(env: &mut Env<'_>, flows: &[FlowId], beside: Option<&mut Beside>, backlog: usize) -> Result<(), Error> {
    if let Some(beside) = beside {
        beside.part.listen(backlog)?;
    }
    for flow in flows {
        env.rings.at(flow.ring).ok_or(Error::BadSocket)?.set_backlog(*flow, backlog)?;
    }
    Ok(())
}
