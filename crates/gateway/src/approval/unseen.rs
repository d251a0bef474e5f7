//! Characters that a person who decides would not see, or not where they stand. Every door that shows what
//! an agent wrote writes them out: a command must look like what runs.

/// Whether a character is invisible, blank without being a space, or turns the direction of reading.
pub fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            u32::from(character),
            // Direction and separators.
            0x061C | 0x200E | 0x200F | 0x2028..=0x202E | 0x2066..=0x2069
                // No width at all.
                | 0x00AD | 0x034F | 0x17B4 | 0x17B5 | 0x180B..=0x180F | 0x200B..=0x200D | 0x2060..=0x2065
                | 0x206A..=0x206F | 0xFEFF | 0xFE00..=0xFE0F | 0xFFF0..=0xFFFB | 0x13430..=0x1343F
                | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF
                // A blank that no shell takes for one.
                | 0x00A0 | 0x115F | 0x1160 | 0x1680 | 0x2000..=0x200A | 0x202F | 0x205F | 0x2800 | 0x3000 | 0x3164
                | 0xFFA0
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_told_from_what_can() {
        for unseen in [
            '\0',
            '\n',
            '\u{1b}',
            '\u{a0}',
            '\u{ad}',
            '\u{200b}',
            '\u{200d}',
            '\u{202e}',
            '\u{2028}',
            '\u{2800}',
            '\u{3000}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{feff}',
            '\u{17b4}',
            '\u{1bca0}',
            '\u{1d173}',
            '\u{e0041}',
        ] {
            assert!(is_unseen(unseen), "{unseen:?}");
        }
        for seen in [' ', 'a', '~', 'é', '日', 'п', '—', '…', '\u{301}', '🙂'] {
            assert!(!is_unseen(seen), "{seen:?}");
        }
    }
}
