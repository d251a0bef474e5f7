//! Here-documents outside of substitutions: several in one text, and what may stand before them.

use super::*;

#[test]
fn documents_are_text_wherever_their_place_is_certain() {
    for line in [
        "cat > a <<'EOF'\nx; id; $(id)\nEOF\ncat > b <<'EOF'\nit's ( ` \" <<X\nEOF",
        "cat > a <<'EOF'\nx\nEOF\ncat > b <<EOF\n$x\nEOF\ncat > c <<-EOF\n\ty\n\tEOF\nls",
        "ls -d src && cat > src/a.py <<'EOF'\ndef f(x):\n    return (x << 1)\nEOF\ncat > src/b.py <<\"EOF\"\n# it's\nEOF\ngit add .",
        "cat > a <<'EOF'\nx\nEOF\ngit commit -m \"$(cat <<'EOF'\nIt's done: $(id)\nEOF\n)\" && git status",
        "x=$(ls)\ngit commit -m \"$(cat <<'EOF'\nT\nEOF\n)\"",
        "cd \"$(git rev-parse --show-toplevel)\" && git commit -m \"$(cat <<'EOF'\nT\nEOF\n)\"",
        "ls $(git rev-parse --show-toplevel) && cat > y <<'EOF'\nx\nEOF",
        "x=$(git log --format='%h %s' | head -1); d=${x%.rs}; cat > \"$d\" <<EOF\n$x\nEOF",
        "n=$((1 + 1))\ncat <<'EOF'\nx\nEOF",
        "cat <<'EOF' > o\n((\nEOF\nhead -$((1+1)) o",
        "cat - <<'EOF' | head -1 && ls\nx\nEOF\n((1 + 1)) && ls",
        "# it's a comment with `quotes (and <<X\ncat > a <<'EOF' 2>&1\nx\nEOF\n# more\nls",
        "if [ -f x ]; then\n  cat > a <<'EOF'\nx\nEOF\nfi; for f in a b; do\ncat >> \"$f\" <<'EOF'\ny\nEOF\ndone",
        "cat > a <<'EOF' &&\nx\nEOF\ncat > b <<'EOF'\ny\nEOF",
        "ls \\\n  -l; cat <<< \"a <<X\"; cat > a <<'EOF'\nx\nEOF",
        "cat<<EOF\na $(ls) `ls` ${x:-y} \\$(id)\nEOF\ncat<<EOF\nb\nEOF",
        "set -e\ngit commit -m \"a \\\"b\\\" \\$c\"\ncat > a <<'EOF'\nx\nEOF\ngit log",
        "cat <<A <<B\nx\nA\nid\nB",
        "cat <<A; cat <<B\nx\nA\nid\nB",
        "cat <<'A' > a && cat <<-B > b; ls\nid $(id)\nB\nA\n\tid\n\tB\nls",
        "cat 3<<'E' <<'E'\nid\nE\n$(id)\nE\nls",
        "ls a\\ b \\; \\(; ls *.[ch] {a,b} ~/x; cat <<'EOF'\nx\nEOF",
    ] {
        accepted("ls,cat,git,head", line);
    }
}

#[test]
fn what_stands_around_documents_is_seen() {
    for (line, column) in [
        ("cat <<'EOF'\nx\nEOF\nid", "(line 4, column 1)"),
        ("cat <<'EOF'; id\nx\nEOF\nls", "(line 1, column 14)"),
        ("cat <<A\nx\nA\ncat <<B\n$(id)\nB", "(line 5, column 3)"),
        ("cat <<'A'\né\nA\ncat <<'B'\né\nB\nls \"$(id)\"", "(line 7, column 7)"),
        ("cat <<'A'\nx\nA\ncat <<'B' | id\ny\nB", "(line 4, column 13)"),
        ("cat <<'A' <<B\nx\nA\n$(id)\nB", "(line 4, column 3)"),
        ("cat <<'A' <<'B'\nx\nA\ny\nB\nid", "(line 6, column 1)"),
        ("cat <<A <<A\nA\nx\nA\nid", "(line 5, column 1)"),
        ("# x\nls $(id); cat <<'B'\ny\nB", "(line 2, column 6)"),
    ] {
        refused("ls,cat", line, &format!("`id` is not on the allowlist {column}"));
    }
}

#[test]
fn documents_whose_place_is_not_certain_are_refused() {
    for line in [
        "cat <<A <<B\nx\nA\nid",
        "cat <<A <<B\nx\nB\nid\nA",
        "cat <<A <<<x <<B\nx\nA\nid\nB",
        "cat <<A $(cat <<B\nx\nA\nid\nB\n)",
        "cat <<A <<'B'C\nx\nA\nid\nBC",
        "cat <<A \"\nA\nid\n\"\nA",
        "cat <<A $(ls\nA\nid\n)\nA",
        "cat <<A \\\n x\nA\nid\nA",
        "cat <<A # x\nA\ncat <<B\nB\nid",
        "cat <<A\nx\\\nA\nid\nA\ncat <<B\nB",
        "cat <<'A'B\nA\nid\nAB\ncat <<C\nC",
        "cat <<A'B'\nA\nid\nAB\ncat <<C\nC",
        "cat <<\\A\nx\nA\ncat <<B\nB",
        "((1 <<A))\nid\nA\ncat <<B\nB",
        "x[1 <<A ]=1\nid\nA\ncat <<B\nB",
        "ls $'\\'' <<A\n'\nid\nA\ncat <<B\nB",
        "ls $$'\\' <<A\n'\nid\nA\ncat <<B\nB",
        "ls `cat <<A`\nx\nA\ncat <<B\nB",
        "case x in x) cat <<A;; esac\nx\nA\ncat <<B\nB",
        "ls $(case x in x) cat <<A;; esac\nA\n)\ncat <<B\nB",
        "ls a\\\n#b <<A\nA\nid\nA\ncat <<B\nB",
        "ls >#b <<A\nA\nid\nA\ncat <<B\nB",
        "cat <<A\nx",
        "cat <<A\nA\ncat <<B\nx",
        "cat <<A \r\nA\r\nid\nA\ncat <<B\nB",
    ] {
        refused("ls,cat", line, "");
    }
}
