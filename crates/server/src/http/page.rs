//! The page at `/`: what is running here, for the person who started it.

use std::fmt::Write as _;
use std::time::Duration;

use super::About;

pub(super) const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5b6676; --paper: #fbfbf9; --line: #dcdfe4; --good: #1f7a4d; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #97a1b0; --paper: #14171c; --line: #2b313a; --good: #5cc48f; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 40rem; margin: 12vh auto; padding: 0 1.5rem; }
h1 { margin: 0; font-size: 1.6rem; letter-spacing: -0.01em; }
p { margin: 0.25rem 0 2rem; color: var(--soft); }
p strong { color: var(--good); font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0; margin: 0; border-top: 1px solid var(--line); }
dt, dd { margin: 0; padding: 0.6rem 0; border-bottom: 1px solid var(--line); }
dt { padding-right: 2rem; color: var(--soft); }
dd { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
";

pub(super) fn render(about: &About, uptime: Duration) -> String {
    let facts = [
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Workspace", about.workspace.clone()),
        ("Approval mode", about.policy_mode.clone()),
        ("State directory", about.state_directory.clone()),
        ("Up for", spoken(uptime)),
    ];
    let mut rows = String::new();
    for (name, value) in facts {
        let value = escaped(&value);
        writeln!(rows, "<dt>{name}</dt><dd>{value}</dd>").expect("text takes text");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Countersign</title>\n<link rel=\"stylesheet\" href=\"/style.css\">\n</head>\n<body>\n<main>\n\
         <h1>Countersign</h1>\n<p><strong>Running.</strong> Agents ask here before they act.</p>\n\
         <dl>\n{rows}</dl>\n</main>\n</body>\n</html>\n"
    )
}

/// A duration in its two largest units.
fn spoken(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min 0 s"),
            (3_599, "59 min 59 s"),
            (3_600, "1 h 0 min"),
            (86_399, "23 h 59 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(spoken(Duration::from_secs(seconds)), text);
        }
    }
}
