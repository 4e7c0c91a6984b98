//! A test a case.

/// Tests with the cases' own names, each of which hands its own path in this crate and its case to a function.
macro_rules! cases {
    ($($(#[$of_all:meta])* $run:ident $theme:ident { $(fn $case:ident();)+ })+) => {
        $(cases! { @theme [$(#[$of_all])*] $run $theme $($case)+ })+
    };
    (@theme $of_all:tt $run:ident $theme:ident $($case:ident)+) => {
        $(cases! { @case $of_all $run $theme $case })+
    };
    (@case [$($of_all:tt)*] $run:ident $theme:ident $case:ident) => {
            #[test]
            $($of_all)*
            fn $case() {
                $run(concat!(module_path!(), "::", stringify!($case)), ringway_conformance::extra::$theme::$case);
            }
    };
}
