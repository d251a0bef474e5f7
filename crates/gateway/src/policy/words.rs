//! Enums whose variants have a word in configurations, results and the record.

macro_rules! words {
    ($(#[$doc:meta])* $kind:ident { $($(#[$note:meta])* $variant:ident $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        pub enum $kind { $($(#[$note])* $variant,)* }

        impl $kind {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            pub const WORDS: &[(&str, Self)] = &[$(($name, Self::$variant),)*];
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            pub fn parse(text: &str) -> Option<Self> {
                Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, it)| *it)
            }
        }
    };
}
