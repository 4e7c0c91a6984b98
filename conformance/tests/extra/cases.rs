//! A test a case.

/// Tests with the cases' own names, each of which hands its own path in this crate and its case to a function.
macro_rules! cases {
    ($($run:ident $theme:ident { $(fn $case:ident();)+ })+) => {
        $($(
            #[test]
            fn $case() {
                $run(concat!(module_path!(), "::", stringify!($case)), ringway_conformance::extra::$theme::$case);
            }
        )+)+
    };
}
