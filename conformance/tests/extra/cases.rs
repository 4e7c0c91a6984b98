//! A test a case.

/// Tests with the cases' own names, each of which hands its case to a function.
macro_rules! cases {
    ($($run:ident $theme:ident { $(fn $case:ident();)+ })+) => {
        $($(
            #[test]
            fn $case() {
                $run(ringway_conformance::extra::$theme::$case);
            }
        )+)+
    };
}
