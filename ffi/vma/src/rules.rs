//! libvma.conf's rules at work ([`ringway_params::rules`]): read with the parameters, asked where a socket's way is decided.
//!
//! Rules that are added while the program runs go before the file's, the last one first. They are a list that only grows, at its head,
//! so that asking takes no lock: any handler may, and the child of a fork.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;

use ringway_params::rules::{ParseError, Placed, Process, Role, Rule, Rules, Scope, Statement, Transport, grammar};
use ringway_params::{Id, Settings, rules};
use ringway_stack::offload::Reason;

use crate::params;
use crate::process::Offload;
use crate::slab::Key;

/// The file's rules for this process.
#[derive(Debug, Default)]
struct Loaded {
    path: String,
    rules: Vec<Placed>,
}

/// Set before the process has a ring.
static LOADED: OnceLock<Loaded> = OnceLock::new();

/// A statement that was added.
struct Added {
    /// `None`: an application-id statement.
    rule: Option<Rule>,
    /// Whom it, and rules that are added after it, are for.
    scope: Scope,
    /// Whether that is this process.
    is_ours: bool,
    /// The one that was added before.
    next: Option<&'static Self>,
}

/// The one that was added last. Invariant: null, or what [`Box::leak`] returned.
static ADDED: AtomicPtr<Added> = AtomicPtr::new(ptr::null_mut());

/// Reads the file that VMA_CONFIG_FILE names; only the first call does anything. What is wrong with it is a line of the log.
pub(crate) fn load() {
    LOADED.get_or_init(|| read(params::settings()));
}

fn read(settings: &Settings) -> Loaded {
    let Some(path) = settings.path(Id::ConfigFile) else { return Loaded::default() };
    let text = match rules::read(&path) {
        Ok(text) => text,
        Err(error) => {
            // (Without rules nobody misses them, unless they were asked for.)
            if error.kind() != io::ErrorKind::NotFound || settings.is_set(Id::ConfigFile) {
                tracing::warn!("the rules in {path} cannot be read: {error}");
            }
            return Loaded::default();
        }
    };
    let (rules, error) = Rules::parse(&text);
    if let Some(error) = error {
        tracing::warn!("{path}, {error}; the rules before that hold, and no others");
    }
    let id = application_id(settings);
    if settings.is_set(Id::ApplicationId) && !rules.knows_id(&id) {
        tracing::warn!("VMA_APPLICATION_ID={id}: {path} has no such id");
    }
    Loaded { rules: rules.of(&this_process(settings)).to_vec(), path }
}

fn this_process(settings: &Settings) -> Process {
    Process { program: params::program_name(), id: application_id(settings) }
}

/// VMA_APPLICATION_ID, in which %d is the process.
fn application_id(settings: &Settings) -> String {
    settings.text(Id::ApplicationId).replacen("%d", &std::process::id().to_string(), 1)
}

fn last_added() -> Option<&'static Added> {
    // SAFETY: null or leaked, by the invariant, and never changed again.
    unsafe { ADDED.load(Ordering::Acquire).as_ref() }
}

/// Puts a statement before all others. Sockets that are decided about already stay where they are, and so do a UDP socket's latest
/// destinations. An application-id statement is for what is added after it.
///
/// # Errors
/// It is no statement of libvma.conf's.
pub(crate) fn add(line: &str) -> Result<(), ParseError> {
    let Some(statement) = grammar::statement(line.trim_end_matches('\n'), 1)? else { return Ok(()) };
    let process = this_process(params::settings());
    let mut next = last_added();
    let (rule, scope) = match statement {
        Statement::ApplicationId(scope) => (None, scope),
        Statement::Use(rule) => (Some(rule), next.map_or_else(Scope::any, |last| last.scope.clone())),
        Statement::Log(_) => return Ok(()),
    };
    let added = Box::leak(Box::new(Added { rule, is_ours: scope.matches(&process), scope, next }));
    loop {
        let expected = next.map_or(ptr::null_mut(), |last| ptr::from_ref(last).cast_mut());
        added.next = next;
        if ADDED.compare_exchange(expected, ptr::from_mut(added), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        next = last_added();
    }
}

/// The rule that leaves a socket to the kernel, and where it is; `None`: there is none.
pub(crate) fn leave(role: Role, first: SocketAddr, second: Option<SocketAddr>) -> Option<String> {
    let added = core::iter::successors(last_added(), |added| added.next).filter(|added| added.is_ours).filter_map(|added| added.rule);
    for rule in added {
        if rule.matches(role, first, second) {
            return (rule.transport == Transport::Os).then(|| format!("added: {rule}"));
        }
    }
    let loaded = LOADED.get()?;
    let placed = loaded.rules.iter().find(|placed| placed.rule.matches(role, first, second))?;
    (placed.rule.transport == Transport::Os).then(|| format!("{}:{}: {}", loaded.path, placed.line, placed.rule))
}

impl Offload {
    /// Leaves a socket to the kernel for good, as a rule says.
    pub(crate) fn leave_by_rule(&mut self, key: Key, what: &'static str, rule: String) {
        tracing::info!("a {what} is left to the kernel by {rule}");
        if let Some(socket) = self.sockets.find_mut(key) {
            socket.rare().rule = Some(rule);
        }
        self.leave_to_kernel(key, what, Reason::Rule);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_last_decides_first() {
        let at = |port| SocketAddr::new(std::net::Ipv4Addr::LOCALHOST.into(), port);
        let leaves = |port| leave(Role::TcpServer, at(port), None);
        assert_eq!(leaves(1), None);
        add("use os tcp_server *:1-9 # for a test\n").expect("a rule");
        assert_eq!(leaves(1).as_deref(), Some("added: use os tcp_server *:1-9"));
        add("use vma tcp_server *:2").expect("a rule");
        assert!(leaves(1).is_some() && leaves(2).is_none());
        add("application-id no-such-program *").expect("a scope");
        add("use os tcp_server *:*").expect("a rule");
        assert!(leaves(2).is_none(), "it is for another program");
        add("application-id * *").expect("a scope");
        add("use os tcp_server *:2").expect("a rule");
        assert!(leaves(2).is_some());
        add("log min-level 3").expect("without effect");
        add("").expect("nothing");
        let error = add("use os tcp_sever *:2").expect_err("it is misspelt");
        assert_eq!(error.column, 8);
    }
}
