//! Programs that are told, not drawn: what the generated ones found, and a witness for each known difference, so that none outlives its
//! reason.

use crate::program::*;

/// A program with its name.
pub(crate) type Told = (&'static str, Vec<Step>);

/// Programs that come to the same in both worlds.
pub(crate) fn alike() -> Vec<Told> {
    vec![]
}

/// Programs that show a known difference, by its name.
pub(crate) fn witnesses() -> Vec<Told> {
    vec![(
        "killed",
        vec![
            Step(1, 0, Op::Socket(Kind::Tcp, false)),
            Step(1, 0, Op::Bind(0, Place::At(5001))),
            Step(1, 0, Op::Listen(0, 8)),
            Step(0, 0, Op::Socket(Kind::Tcp, false)),
            Step(0, 0, Op::Connect(0, Target::Port(5001))),
            Step(1, 0, Op::Accept(0, AcceptBy::Accept)),
            Step(1, 0, Op::Kill),
        ],
    )]
}
