//! The revisions of the protocol, and what each one knows.

/// A revision with a handshake and a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Legacy {
    R2024_11_05,
    R2025_03_26,
    R2025_06_18,
    R2025_11_25,
}

/// How a request wants to be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Era {
    Legacy(Legacy),
    Modern,
}

/// The one revision without sessions.
pub(crate) const MODERN: &str = "2026-07-28";

/// Everything we speak, newest first.
pub(crate) const SUPPORTED: [&str; 5] = [MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

impl Legacy {
    const NEWEST: Self = Self::R2025_11_25;
    const ALL: [Self; 4] = [
        Self::R2024_11_05,
        Self::R2025_03_26,
        Self::R2025_06_18,
        Self::R2025_11_25,
    ];

    /// The revision to speak with a client that proposes `version`. A handshake is never refused for
    /// its version: the client hears ours and decides.
    pub(crate) fn negotiate(version: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str() == version)
            .unwrap_or(Self::NEWEST)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::R2024_11_05 => "2024-11-05",
            Self::R2025_03_26 => "2025-03-26",
            Self::R2025_06_18 => "2025-06-18",
            Self::R2025_11_25 => "2025-11-25",
        }
    }

    /// Only one revision had batches.
    pub(crate) fn has_batches(self) -> bool {
        self == Self::R2025_03_26
    }
}

impl Era {
    /// Titles, output schemas, structured content and `_meta` on tools.
    pub(crate) fn has_structured_content(self) -> bool {
        self.knows(Legacy::R2025_06_18)
    }

    pub(crate) fn has_annotations(self) -> bool {
        self.knows(Legacy::R2025_03_26)
    }

    pub(crate) fn has_progress_messages(self) -> bool {
        self.knows(Legacy::R2025_03_26)
    }

    pub(crate) fn knows(self, since: Legacy) -> bool {
        match self {
            Self::Legacy(revision) => revision >= since,
            Self::Modern => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_supported_version_is_spoken() {
        for version in SUPPORTED.into_iter().filter(|version| *version != MODERN) {
            assert_eq!(Legacy::negotiate(version).as_str(), version);
        }
        for version in [MODERN, "", "1999-01-01"] {
            assert_eq!(Legacy::negotiate(version).as_str(), "2025-11-25");
        }
    }
}
