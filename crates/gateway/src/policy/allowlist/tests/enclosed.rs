//! Here-documents inside substitutions: the one shape that is read, and those that look like it.

use super::*;

#[test]
fn a_document_in_a_substitution_is_text_where_it_cannot_be_mistaken() {
    for line in [
        "git commit -m \"$(cat <<'EOF'\nFix it\n\nIt's done: `id`, $(id), \"id\" ) <<X\nEOF\n)\"",
        "git add -A && git commit -q -m \"$(cat <<'EOF'\nOne\n\n🤖 ünd zwei\nEOF\n)\" && git push",
        "git commit -m 'Fix #12' -m \"$(cat <<\"EOF\"\n# x\nEOF\n  )\"; git status",
        "git commit -m \"$(cat << EOF\nplain; 'text' \"here\"\nEOF\n)\"\ngit log",
        "x=$(cat <<'E'\n; id\nE\n)\ngit commit -m \"$x\"",
        "git commit -m \"$(cat <<'A'\n'\nA\n)\" -m \"$(cat - <<'B'\n\"\nB\n)\" --no-verify",
        "git commit -m \"$(cat <<'EOF'\nEOF\n)\"",
        "git commit -m \"$(cat <<'EOF'\nEOF markers; id\nEOFs\nEOF\n)\"",
    ] {
        accepted("git,cat", line);
    }
    refused(
        "git",
        "git commit -m \"$(cat <<'EOF'\nit's\nEOF\n)\"",
        "`cat` is not on the allowlist (line 1, column 18)",
    );
    refused(
        "git,cat",
        "git commit -m \"$(cat <<'EOF'\né's\nEOF\n)\" é; id",
        "`id` is not on the allowlist (line 4, column 7)",
    );
    refused("git,cat", "x=\"$(cat <<'E'\na\nE\n)\"; $x", "is computed at run time");
    refused("git,cat", "PATH=\"$(cat <<'E'\n.\nE\n)\"", "may not be set");
    refused("git,cat", "LC_ALL=zh_TW; x=$(cat <<'E'\n中\nE\n)", "beyond ASCII");
}

#[test]
fn a_document_in_a_substitution_that_bash_may_end_elsewhere_is_refused() {
    for line in [
        // Bash ends it in a line that begins with the tag and has a parenthesis in it, and runs the rest of that line.
        "ls \"$(cat <<'EOF'\nEOFid )\"\nEOF\n)\"",
        "ls \"$(cat <<'EOF'\nEOF; id )\nEOF\n)\"",
        "ls \"$(cat <<'EOF'\nEOF )\"; id; ls \"\nEOF\n)\"",
        "ls \"$(cat <<'EOF'\nx\nEOF)\"",
        "ls \"$(cat <<'EOF'\nx\n EOF\n)\"",
        "ls \"$(cat <<'EOF'\nx\n)\"",
        "ls \"$(cat <<'EOF'\nx\nEOF",
        "ls \"$(cat <<EOF\n$(id)\nEOF\n)\"",
        "ls \"$(cat <<EOF\n`id`\nEOF\n)\"",
        "ls \"$(cat <<EOF\nx\\\nEOF\nid\nEOF\n)\"",
        "ls \"$(cat <<-'EOF'\nx\n\tEOF\nid\nEOF\n)\"",
        "ls \"$(cat <<'E F'\nx\nE F\n)\"",
        "ls \"$(cat <<'E'F\nx\nE\nid\nEF\n)\"",
        "ls \"$(cat <<'E' | id\nx\nE\n)\"",
        "ls \"$(cat <<'E'; id\nx\nE\n)\"",
        "ls \"$(cat <<'E' <<'F'\nx\nE\nid\nF\n)\"",
        "ls \"$(cat 3<<'E'\nx\nE\n)\"",
        "ls \"$(cat <<'E'\nx\nE\nid)\"",
        "ls \"$(cat <<'E'\nx\u{1}\nE\n)\"",
        // Before it stands what changes the reading of a quote, or of the whole.
        "ls \\\"$(cat <<'E'\nx\nE\n)\"",
        "ls # \"$(cat <<'E'\nx\nE\n)\"",
        "ls $'\\'' \"$(cat <<'E'\nid\nE\n)\"",
        "ls `ls` \"$(cat <<'E'\nid\nE\n)\"",
        "ls <<'F' \"$(cat <<'E'\nid\nE\n)\"\nF",
        "((\"$(cat <<'E'\nid\nE\n)\"))",
        "ls \"${x:-\"$(cat <<'E'\nid\nE\n)\"}\"",
        "ls \"a $(cat <<'E'\nid\nE\n)\"",
        "a=(\"$(cat <<'E'\nid\nE\n)\")",
        "ls \"\"$(cat <<'E'\nid\nE\n)\" $(cat <<'F'\n\"\nF\n)\"",
    ] {
        refused("ls,cat", line, "");
    }
}
