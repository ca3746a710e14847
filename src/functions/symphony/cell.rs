//! What a register cell is made of.

/// A cell of two 32-bit words. As a number, the second word is the high one.
macro_rules! pair {
    ($(#[$doc:meta])* $name:ident { $(#[$first_doc:meta])* $first:ident: u32, $(#[$second_doc:meta])* $second:ident: u32, }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(#[$first_doc])*
            pub $first: u32,
            $(#[$second_doc])*
            pub $second: u32,
        }

        impl From<$name> for u64 {
            fn from(cell: $name) -> u64 {
                u64::from(cell.$second) << 32 | u64::from(cell.$first)
            }
        }
    };
}
pub(super) use pair;
