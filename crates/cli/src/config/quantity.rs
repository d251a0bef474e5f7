//! Amounts of CPU and memory, as far as comparing two of them needs it.

/// CPU in thousandths of a core.
pub(super) fn millicores(text: &str) -> Result<u64, String> {
    let amount = match text.strip_suffix('m') {
        Some(milli) => milli.parse().ok().filter(|_| digits(milli)),
        None => thousandths(text),
    };
    amount
        .filter(|amount| *amount > 0)
        .ok_or_else(|| format!("must be cores such as `2`, `0.5` or `500m`, not `{text}`"))
}

/// Memory in bytes.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let units = [
        ("", 1),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1u128 << 40),
    ];
    let unit = units.into_iter().find(|(name, _)| *name == &text[number.len()..]);
    unit.and_then(|(_, unit)| u64::try_from(u128::from(thousandths(number)?) * unit / 1_000).ok())
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| format!("must be bytes such as `1Gi`, `512M` or `1048576`, not `{text}`"))
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_or_refused() {
        for (text, expected) in [
            ("1", Some(1_000)),
            ("500m", Some(500)),
            ("0.5", Some(500)),
            ("0", None),
            ("+5m", None),
            ("", None),
        ] {
            assert_eq!(millicores(text).ok(), expected, "{text}");
        }
        for (text, expected) in [
            ("1Gi", Some(1 << 30)),
            ("1.5Ki", Some(1536)),
            ("100M", Some(100_000_000)),
            ("1gb", None),
            ("Gi", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
    }
}
