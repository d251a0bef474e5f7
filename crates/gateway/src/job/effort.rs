//! How hard an agent thinks, as labels of issues say it and as agents take it.

use super::lifecycle::words;

words! {
    /// The word is the one that agents know.
    Effort {
        Low "low",
        Medium "medium",
        High "high",
        ExtraHigh "xhigh",
    }
}

impl Effort {
    /// What a label names, which spells the highest out.
    pub fn of_label(value: &str) -> Option<Self> {
        match value {
            "extra-high" => Some(Self::ExtraHigh),
            other => Self::parse(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_four_efforts_and_nothing_else() {
        for (label, effort) in [
            ("low", Some("low")),
            ("medium", Some("medium")),
            ("high", Some("high")),
            ("extra-high", Some("xhigh")),
            ("xhigh", Some("xhigh")),
            ("most", None),
            ("", None),
        ] {
            assert_eq!(Effort::of_label(label).map(Effort::as_str), effort, "{label}");
        }
    }
}
