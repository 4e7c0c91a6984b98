//! What happens to the device beside completions: each ends the connections that it concerns.

use rdma_core_sys as sys;
use ringway_stack::device::messages::{ConnectionEvent, ConnectionId};

use crate::adapter::{Adapter, PORT};
use crate::memory::CardMemory;
use crate::verbs::Context;

/// An asynchronous event (ibv_get_async_event(3)), as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// A queue pair failed, by number.
    QueuePair(u32),
    /// A message came to a queue pair whose connection does not stand yet.
    Communication(u32),
    /// A completion queue failed.
    CompletionQueue(u32),
    /// A port went down.
    PortDown(u8),
    /// A port is up.
    PortUp(u8),
    /// Addresses have changed.
    Addresses,
    /// The device failed, or is being removed.
    Device,
    /// Nothing that matters.
    Other,
}

/// The next one, if there is one.
pub(crate) fn next(context: &Context) -> Option<Happening> {
    let mut happening = None;
    // SAFETY: which member of the element is there the type says (ibv_get_async_event(3)), and what it points to stays until the event is handed back.
    context.next_event(|event| unsafe {
        let qp = || (*event.element.qp).qp_num;
        happening = Some(match event.event_type {
            sys::IBV_EVENT_QP_FATAL | sys::IBV_EVENT_QP_REQ_ERR | sys::IBV_EVENT_QP_ACCESS_ERR => Happening::QueuePair(qp()),
            sys::IBV_EVENT_COMM_EST => Happening::Communication(qp()),
            sys::IBV_EVENT_CQ_ERR => Happening::CompletionQueue((*event.element.cq).cq_context.addr() as u32),
            sys::IBV_EVENT_PORT_ERR => Happening::PortDown(event.element.port_num as u8),
            sys::IBV_EVENT_PORT_ACTIVE => Happening::PortUp(event.element.port_num as u8),
            sys::IBV_EVENT_GID_CHANGE => Happening::Addresses,
            sys::IBV_EVENT_DEVICE_FATAL => Happening::Device,
            _ => Happening::Other,
        });
    });
    happening
}

impl<M: CardMemory> Adapter<M> {
    /// Takes them, up to so many; how many there were.
    pub(crate) fn take_async_events(&mut self, most: usize) -> usize {
        let mut done = 0;
        while done < most
            && let Some(happening) = self.opened.as_ref().and_then(|opened| next(&opened.context))
        {
            done += 1;
            tracing::debug!("{}: {happening:?}", self.settings.device);
            self.on_happening(happening);
        }
        done
    }

    fn on_happening(&mut self, happening: Happening) {
        match happening {
            Happening::QueuePair(qpn) => self.on_failed(qpn),
            Happening::Communication(qpn) => {
                if let Some(id) = self.connections.values().find(|connection| connection.qp == Some(qpn)).and_then(|it| it.id.as_ref()) {
                    id.communicates();
                }
            }
            Happening::CompletionQueue(cq) => {
                let failed: Vec<u32> = self.qps.iter().filter(|(_, queue)| queue.cqs.contains(&cq)).map(|(qpn, _)| qpn).collect();
                failed.into_iter().for_each(|qpn| self.on_failed(qpn));
            }
            Happening::PortDown(PORT) => {
                tracing::warn!("{}: its port is down; its connections end", self.settings.device);
                self.end_all();
            }
            Happening::Addresses => self.qps.values_mut().for_each(|queue| queue.handles.forget()),
            Happening::Device => {
                tracing::warn!("{} has failed, or is being removed; its connections end", self.settings.device);
                self.on_removed();
            }
            Happening::PortDown(_) | Happening::PortUp(_) | Happening::Other => {}
        }
    }

    /// A queue pair is of no use any more.
    fn on_failed(&mut self, qpn: u32) {
        let concerned = self.connections.iter().filter(|(_, connection)| connection.qp == Some(qpn)).map(|(id, _)| *id);
        for id in concerned.collect::<Vec<_>>() {
            self.happened.push_back((id, ConnectionEvent::Disconnected));
        }
    }

    /// All connections end, and those that are on their way come to nothing.
    pub(crate) fn end_all(&mut self) {
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        self.happened.extend(all.into_iter().map(|id| (id, ConnectionEvent::Down)));
    }
}
