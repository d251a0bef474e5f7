//! Tokens are known by their shape.

use crate::audit::redact::{Config, Redactor};

fn plain() -> Redactor {
    Redactor::new(Config::default())
}

#[test]
fn tokens_of_more_services_are_known_by_their_shape() {
    let (hex, letters) = ("0a1b2c3d", "aB3dE6gH");
    for token in [
        format!("glsa_{}_{hex}", letters.repeat(4)),
        format!("pul-{}", hex.repeat(5)),
        format!("phx_{}", letters.repeat(5)),
        format!("{}aB3dE6.atlasv1.{}", letters, letters.repeat(8)),
        format!("key-{}", hex.repeat(4)),
        format!("oy2{}abc", "ab2de6gh".repeat(5)),
        format!("cio{}", letters.repeat(4)),
    ] {
        assert_eq!(
            plain().redact_text(&format!("see {token} there")),
            "see [redacted] there"
        );
        assert_eq!(plain().redact_line(&format!("deploy '{token}'")), "deploy '[redacted]'");
        let longer = format!("see x{token}");
        assert!(
            token.contains("atlas") || plain().redact_text(&longer) == longer,
            "{longer}"
        );
    }
}
