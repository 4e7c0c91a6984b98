//! What SYNs offer and what both sides then agree on (RFC 9293 s3.7.1, RFC 7323, RFC 2018).

use super::config::{Config, Ecn};
use super::fields::{Fields, SnapshotError};
use crate::mutants::Mutant;
use crate::wire::tcp::{Flags, Header, Options};

/// RFC 7323 s2.3.
const SCALE_MAX: u8 = 14;
/// Bytes of the timestamps option with its padding.
pub(super) const TIMESTAMPS_LEN: usize = 12;

/// What is in force on a connection; before its handshake, what we offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    /// The largest segment that the peer takes, options included.
    pub(super) peer_mss: u16,
    /// The peer's shift count.
    pub(super) send_scale: u8,
    /// Our shift count.
    pub(super) receive_scale: u8,
    pub(super) scaling: bool,
    pub(super) timestamps: bool,
    pub(super) sack: bool,
    /// ECN (RFC 3168): packets of ours are capable of it, and we react to marks that the peer tells of.
    pub(super) ecn: bool,
    /// The peer's may be: it is told of marks.
    pub(super) echoes: bool,
}

impl Agreement {
    /// What we offer; `asks`: in a SYN of our own.
    pub(super) fn offer(config: &Config, asks: bool) -> Self {
        let ecn = if asks { config.asks_for_ecn() } else { config.ecn != Ecn::Off };
        Self {
            peer_mss: config.family.mss_default(),
            send_scale: 0,
            receive_scale: config.receive_scale(),
            scaling: config.window_scaling,
            timestamps: config.timestamps,
            sack: config.sack,
            ecn,
            echoes: ecn,
        }
    }

    /// What it consists of, for a snapshot.
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { peer_mss, send_scale, receive_scale, scaling, timestamps, sack, ecn, echoes } = self;
        fields.short(peer_mss)?;
        fields.byte(send_scale)?;
        fields.byte(receive_scale)?;
        for flag in [scaling, timestamps, sack, ecn, echoes] {
            fields.flag(flag)?;
        }
        Ok(())
    }

    /// Whether two ends can have agreed on it.
    pub(super) fn is_possible(&self) -> bool {
        self.peer_mss >= Config::MSS_MIN && self.send_scale <= SCALE_MAX && self.receive_scale <= SCALE_MAX
    }

    /// The peer's SYN came: each option is in force if both sides sent it.
    pub(super) fn settle(&mut self, syn: &Header, config: &Config) {
        let options = &syn.options;
        let assumed = if config.is(Mutant::SynWithoutMssMeansFull) { 1460 } else { config.family.mss_default() };
        self.peer_mss = options.mss.unwrap_or(assumed).max(Config::MSS_MIN);
        self.timestamps &= options.timestamps.is_some();
        self.sack &= options.sack_permitted || config.is(Mutant::SackUnasked);
        self.scaling &= options.window_scale.is_some();
        self.settle_ecn(syn.flags, config);
        if self.scaling {
            self.send_scale = options.window_scale.unwrap_or(0).min(if config.is(Mutant::ScaleUncapped) { 30 } else { SCALE_MAX });
            if config.is(Mutant::OwnScaleForPeer) {
                self.send_scale = self.receive_scale;
            }
        } else if !config.is(Mutant::ScaleUnasked) {
            self.receive_scale = 0;
        }
    }

    /// RFC 3168 s6.1.1: a SYN asks with both flags, and a SYN-ACK agrees with one. (One with both is that of a host that reflects what it does not know.)
    fn settle_ecn(&mut self, flags: Flags, config: &Config) {
        let said = flags & (Flags::ECE | Flags::CWR);
        let agrees = if flags.contains(Flags::ACK) { said == Flags::ECE } else { said == Flags::ECE | Flags::CWR };
        self.ecn &= agrees || config.is(Mutant::EcnUnasked);
        self.echoes &= agrees;
    }

    /// RFC 3168 s6.1.1: "If a host has received at least one non-ECN-setup SYN [...], then it MUST NOT set ECT", and so if it has sent one. (What the peer sends may
    /// still be capable: it may have heard the other one.)
    pub(super) fn give_up_ecn(&mut self) {
        self.ecn = false;
    }

    /// The flags of our SYN or SYN-ACK.
    pub(super) fn syn_flags(&self, answers: bool) -> Flags {
        match (self.ecn, answers) {
            (false, _) => Flags::empty(),
            (true, true) => Flags::ECE,
            (true, false) => Flags::ECE | Flags::CWR,
        }
    }

    /// The options of our SYN or SYN-ACK.
    pub(super) fn syn_options(&self, config: &Config, timestamps: (u32, u32)) -> Options {
        Options {
            mss: Some(config.mss_announced()),
            window_scale: self.scaling.then_some(self.receive_scale),
            sack_permitted: self.sack && !config.is(Mutant::SynWithoutSack),
            timestamps: self.timestamps.then_some(timestamps),
            ..Options::default()
        }
    }
}
