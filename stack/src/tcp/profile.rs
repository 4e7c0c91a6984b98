//! A configuration that connections share: most of a host's are configured alike, and there may be a million of them.

use core::ops::Deref;
use std::sync::Arc;

use super::Config;

/// So many different configurations are remembered, to be shared by those that come.
const KNOWN_MAX: usize = 64;

/// A connection's configuration: all of it, shared with the others that have the same, and beside that what each message asks for.
#[derive(Clone, Debug)]
pub struct Profile {
    config: Arc<Config>,
    /// [`Config::delayed_ack`] in nanoseconds.
    pub(super) delayed_ack_ns: u64,
    pub(super) tso_max: u32,
    pub(super) gather_max: u16,
    pub(super) nodelay: bool,
    pub(super) cork: bool,
    pub(super) quickack: bool,
    pub(super) linger_zero: bool,
    /// See [`Config::ttl`].
    pub ttl: u8,
    /// See [`Config::tos`].
    pub tos: u8,
}

impl From<Arc<Config>> for Profile {
    fn from(config: Arc<Config>) -> Self {
        Self {
            delayed_ack_ns: u64::try_from(config.delayed_ack.as_nanos()).unwrap_or(u64::MAX),
            tso_max: u32::try_from(config.tso_max).unwrap_or(u32::MAX),
            gather_max: u16::try_from(config.gather_max).unwrap_or(u16::MAX),
            nodelay: config.nodelay,
            cork: config.cork,
            quickack: config.quickack,
            linger_zero: config.linger_zero,
            ttl: config.ttl,
            tos: config.tos,
            config,
        }
    }
}

impl Profile {
    /// All of it.
    pub(super) fn shared(&self) -> Arc<Config> {
        self.config.clone()
    }
}

/// One that is nobody else's.
impl From<&Config> for Profile {
    fn from(config: &Config) -> Self {
        Arc::new(config.clone()).into()
    }
}

impl Deref for Profile {
    type Target = Config;

    #[inline]
    fn deref(&self) -> &Config {
        &self.config
    }
}

/// The configurations that are in use, as far as they are remembered.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    known: Vec<Arc<Config>>,
    /// What is forgotten next.
    oldest: usize,
}

impl Profiles {
    /// The profile of all that are configured so.
    pub(crate) fn share(&mut self, config: &Config) -> Profile {
        if let Some(known) = self.known.iter().find(|known| ***known == *config) {
            return known.clone().into();
        }
        let config = Arc::new(config.clone());
        // (Who has one that is forgotten keeps it.)
        if self.known.len() < KNOWN_MAX {
            self.known.push(config.clone());
        } else {
            self.known[self.oldest] = config.clone();
            self.oldest = (self.oldest + 1) % KNOWN_MAX;
        }
        config.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_alike_is_one_profile_and_few_are_remembered() {
        let mut profiles = Profiles::default();
        let with = |syn_retries: u32| Config { syn_retries, ..Config::default() };
        let first = profiles.share(&with(0));
        assert!(Arc::ptr_eq(&first.config, &profiles.share(&with(0)).config));
        for retries in 0..1000 {
            assert_eq!(profiles.share(&with(retries)).syn_retries, retries);
        }
        assert_eq!((profiles.known.len(), first.syn_retries), (KNOWN_MAX, 0));
    }
}
