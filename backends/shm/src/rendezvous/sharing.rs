//! A UDP socket that goes over to another member of its process: whoever asks for it by its name comes to either for as long as both have a rule for it, so
//! that at no moment it is nobody's.

use ringway_stack::device::RuleError;

use super::serve::Token;
use super::{Key, Name, Rendezvous};
use crate::sys;

impl Rendezvous {
    /// Has those who ask for a socket of the kernel's come here as well as to `from`, another member of this process, which has a rule for it. So this one
    /// can publish a rule for it before that one withdraws its own; [`Rendezvous::let_go_of_name`] is to follow.
    ///
    /// # Errors
    /// [`RuleError::Taken`]: that one has no rule for it, or the socket shares its address, so that who asks for it means to change who gets what;
    /// [`RuleError::Full`]: the system's descriptors are used up, or the device is gone.
    pub fn share_name(&self, from: &Self, cookie: u64) -> Result<(), RuleError> {
        let key = Key::Socket(cookie);
        let socket = {
            let theirs = from.lock();
            let name = theirs.named.get(&key).and_then(|number| theirs.names.get(number)).filter(|name| !name.is_shared);
            sys::duplicate(&name.ok_or(RuleError::Taken)?.socket).map_err(|_| RuleError::Full)?
        };
        let mut state = self.lock();
        if state.has_left {
            return Err(RuleError::Full);
        }
        if let Some(&number) = state.named.get(&key)
            && let Some(name) = state.names.get_mut(&number)
        {
            name.rules += 1;
            return Ok(());
        }
        let number = state.number();
        self.epoll.add(&socket, libc::EPOLLIN, Token::Rule(number).pack()).map_err(|_| RuleError::Full)?;
        state.names.insert(number, Name { socket, key, place: 0, rules: 1, is_shared: false });
        state.named.insert(key, number);
        Ok(())
    }

    /// Whoever asks for that socket comes here for as long as this member has a rule for it, and no longer.
    pub fn let_go_of_name(&self, cookie: u64) {
        let mut state = self.lock();
        if let Some(&number) = state.named.get(&Key::Socket(cookie)) {
            self.unname(&mut state, number);
        }
    }
}
