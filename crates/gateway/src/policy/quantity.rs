//! Kubernetes quantities: `500m` and `2` of CPU, `1Gi` and `512M` of memory.

use std::fmt;

/// CPU in thousandths of a core.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Millicores(u64);

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ByteCount(u64);

/// Text that is not a quantity.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum QuantityError {
    #[error("`{0}` is not an amount of CPU; write cores such as `2`, `0.5` or `500m`")]
    Cpu(String),
    #[error("`{0}` is not an amount of memory; write bytes such as `1Gi`, `512M` or `1048576`")]
    Memory(String),
}

impl Millicores {
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let amount = match text.strip_suffix('m') {
            Some(milli) => whole(milli),
            None => thousandths(text),
        };
        amount
            .filter(|amount| *amount > 0)
            .map(Self)
            .ok_or_else(|| QuantityError::Cpu(text.to_owned()))
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

impl ByteCount {
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit: u64 = match &text[digits.len()..] {
            "" => 1,
            "k" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            "T" => 1_000_000_000_000,
            "Ki" => 1 << 10,
            "Mi" => 1 << 20,
            "Gi" => 1 << 30,
            "Ti" => 1 << 40,
            _ => 0,
        };
        let bytes =
            thousandths(digits).and_then(|amount| u64::try_from(u128::from(amount) * u128::from(unit) / 1_000).ok());
        bytes
            .filter(|bytes| *bytes > 0)
            .map(Self)
            .ok_or_else(|| QuantityError::Memory(text.to_owned()))
    }

    pub fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Millicores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1_000) {
            write!(f, "{}", self.0 / 1_000)
        } else {
            write!(f, "{}m", self.0)
        }
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1u64 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
        match units
            .into_iter()
            .find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit))
        {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A decimal such as `1`, `0.5` or `2.125`, in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (units, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.is_empty() || fraction.len() > 3 {
        return None;
    }
    let fraction = whole(&format!("{fraction:0<3}"))?;
    whole(units)?.checked_mul(1_000)?.checked_add(fraction)
}

/// Digits and nothing else; Rust's own reading takes a sign too.
fn whole(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_read_in_cores_and_thousandths() {
        for (text, expected) in [("1", 1000), ("2", 2000), ("500m", 500), ("0.5", 500), ("1.25", 1250)] {
            assert_eq!(Millicores::parse(text).unwrap().get(), expected, "{text}");
        }
        for bad in [
            "",
            "0",
            "0m",
            "-1",
            "m",
            "1.",
            ".5",
            "1e3",
            "1 ",
            "1.0001",
            "+1",
            "+500m",
            "1.5m",
            "99999999999999999999",
        ] {
            assert!(Millicores::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn memory_is_read_in_bytes_with_both_kinds_of_units() {
        let cases = [
            ("1Gi", 1 << 30),
            ("512Mi", 512 << 20),
            ("1.5Gi", 3 << 29),
            ("100M", 100_000_000),
            ("1048576", 1 << 20),
        ];
        for (text, expected) in cases {
            assert_eq!(ByteCount::parse(text).unwrap().get(), expected, "{text}");
        }
        for bad in ["", "0", "1gb", "Gi", "-1Gi", "+1Gi", "+1", "1 Gi", "99999999Ti"] {
            assert!(ByteCount::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn quantities_print_the_way_they_are_written() {
        for text in ["1", "500m", "1250m"] {
            assert_eq!(Millicores::parse(text).unwrap().to_string(), text);
        }
        for text in ["1Gi", "512Mi", "1000"] {
            assert_eq!(ByteCount::parse(text).unwrap().to_string(), text);
        }
    }
}
