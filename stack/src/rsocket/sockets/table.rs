//! Sockets by their names, in the order in which they were made.

use super::{Socket, SocketId};

/// See the module's documentation. Names only grow, so what is new is last; and the one that was asked for last is mostly asked for again.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Invariant: names ascend.
    sockets: Vec<(SocketId, Box<Socket>)>,
    /// Where the one is that was asked for last, unless others went away.
    last: usize,
}

impl Table {
    /// A socket whose name is greater than all that there were.
    pub(super) fn push(&mut self, id: SocketId, socket: Socket) {
        debug_assert!(self.sockets.last().is_none_or(|(last, _)| *last < id), "names only grow");
        self.sockets.push((id, Box::new(socket)));
    }

    #[inline(always)]
    fn at(&self, id: SocketId) -> Option<usize> {
        if self.sockets.get(self.last).is_some_and(|(last, _)| *last == id) {
            return Some(self.last);
        }
        self.find(id)
    }

    #[inline(never)]
    fn find(&self, id: SocketId) -> Option<usize> {
        self.sockets.binary_search_by_key(&id, |(id, _)| *id).ok()
    }

    pub(super) fn get(&self, id: SocketId) -> Option<&Socket> {
        self.at(id).map(|at| &*self.sockets[at].1)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.last = self.at(id)?;
        Some(&mut *self.sockets[self.last].1)
    }

    pub(super) fn remove(&mut self, id: SocketId) -> Option<Socket> {
        self.at(id).map(|at| *self.sockets.remove(at).1)
    }

    #[cfg(test)]
    pub(super) fn values(&self) -> impl Iterator<Item = &Socket> {
        self.sockets.iter().map(|(_, socket)| &**socket)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (SocketId, &mut Socket)> {
        self.sockets.iter_mut().map(|(id, socket)| (*id, &mut **socket))
    }

    /// All of them; none are left.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Socket> + use<> {
        core::mem::take(&mut self.sockets).into_iter().map(|(_, socket)| *socket)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ANY, Kind, Options};
    use super::*;
    use crate::rsocket::config::Sizes;

    #[test]
    fn each_is_found_by_its_name_whichever_was_asked_for_last_and_went_away() {
        let mut table = Table::default();
        let ids: Vec<_> = (0..40).map(|number| SocketId(number * 3)).collect();
        for id in &ids {
            let local = std::net::SocketAddr::new(ANY.ip(), id.0 as u16);
            table.push(*id, Socket { options: Options::new(Sizes::default()), local, kind: Kind::Fresh });
        }
        for gone in [39, 0, 20, 21, 1] {
            for other in [0, 20, 39] {
                let _ = table.get_mut(ids[other]);
                let port = |socket: Option<&mut Socket>| socket.map(|socket| u64::from(socket.local.port()));
                assert!(ids.iter().all(|id| port(table.get_mut(*id)).is_none_or(|port| port == id.0)));
            }
            assert_eq!(table.remove(ids[gone]).map(|socket| socket.local.port()), Some(ids[gone].0 as u16));
            assert!(table.get(ids[gone]).is_none() && table.get(SocketId(2)).is_none());
        }
        assert_eq!((table.values().count(), table.take_all().count(), table.iter_mut().count()), (35, 35, 0));
    }
}
