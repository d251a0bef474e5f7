//! Here-documents on whose line a substitution begins that ends on another: the parser loses both.

use super::*;

#[test]
fn what_goes_over_the_end_of_a_documents_line_is_not_lost() {
    for line in [
        "ls <<'E' \"$(ls $(bash evil.sh)\n)\"\nx\nE\n\nls",
        "ls <<E \"$(ls $(id)\n)\"\nx\nE\n\nls",
        "ls <<E \"$(ls $(ls)\nid)\"\nx\nE\n\nls",
        "ls <<E \"$(ls `id`\n)\"\nx\nE\n\nls",
        "ls <<E \"$(ls ${x}\nid\n)\"\nx\nE\n\nls",
        "ls <<E \"$(ls $((1))\nid\n)\"\nx\nE\n\nls",
        "ls <<E \"${x:-$(ls $(id)\n)}\"\nx\nE\n\nls",
        "ls <<E <(ls $(id)\n)\nx\nE\n\nls",
        "ls <<E $(ls $(id)\n)\nx\nE\n\nls",
        "ls <<E \"`ls $(id)\n`\"\nx\nE\n\nls",
        "ls <<'A'\nx\nA\nls <<'E' \"$(ls $(id)\n)\"\nx\nE\n\nls",
        "ls <<'E' \"a\n$(id)\"\nx\nE\n\nls",
        "ls <<'E' ${x:-a\n$(id)}\nx\nE\n\nls",
    ] {
        refused("ls", line, "");
    }
    refused(
        "ls",
        "ls\nls <<'E' \"$(ls $(ls)\n)\"\nx\nE\n\nls",
        "the line a here-document begins on (put nothing but plain words on it) cannot be read safely (line 2, column 4)",
    );
}
