//! Text that another process wrote, and that goes to a terminal.

use crate::ProcessReport;

impl ProcessReport {
    /// Takes out of every text what a terminal would obey: the process that wrote it may be anybody's.
    pub fn clean(&mut self) {
        strip(&mut self.program);
        if let Some(device) = &mut self.device {
            [&mut device.kind, &mut device.mac].into_iter().for_each(strip);
        }
        self.interfaces.iter_mut().for_each(|interface| strip(&mut interface.name));
        for socket in self.sockets.iter_mut().chain(&mut self.without_owner) {
            let texts = [&mut socket.protocol, &mut socket.local, &mut socket.remote, &mut socket.state, &mut socket.device];
            texts
                .into_iter()
                .chain(&mut socket.reason)
                .chain(&mut socket.rule)
                .chain(&mut socket.multicast_interface)
                .chain(&mut socket.groups)
                .for_each(strip);
        }
        for decision in &mut self.decisions {
            [&mut decision.what, &mut decision.device, &mut decision.reason, &mut decision.advice].into_iter().for_each(strip);
        }
        self.waits.iter_mut().for_each(|wait| strip(&mut wait.kind));
    }
}

/// A name without what a terminal would obey.
pub fn printable(mut name: String) -> String {
    strip(&mut name);
    name
}

/// Control characters, and those that turn the direction of what follows (Unicode's bidi controls).
fn strip(text: &mut String) {
    let obeyed = |c: char| c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.contains(obeyed) {
        text.retain(|c| !obeyed(c));
    }
}
