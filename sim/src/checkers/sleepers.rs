//! Sleepers: who sleeps, and waits for no acknowledgment, is not woken for one. So nothing may come of such frames that somebody waits for, whenever they
//! are looked at: no event, and no segment but an acknowledgment or a reset. (Such a frame may be an old one, or a stranger's, which is answered; but who
//! sent it asked for nothing.)

use super::Checkers;

const NAME: &str = "sleepers";

impl Checkers {
    /// A ring was polled that had nothing but what its host had slept through. It sent so many segments with bytes, SYN or FIN.
    pub(crate) fn slept_through(&self, place: usize, spoken: u64, has_events: bool) {
        let moment = self.moment(place, None);
        if has_events {
            moment.breach(NAME, "a program waited for an acknowledgment that its host slept through");
        }
        if spoken > 0 {
            moment.breach(NAME, format_args!("{spoken} segments waited for an acknowledgment that their host slept through"));
        }
    }
}
