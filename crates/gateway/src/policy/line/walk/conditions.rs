//! Ends of lines in `[[ … ]]`. The parser has them before and behind every `&&`, `||` and bracket; to bash a word alone
//! must not end its line, so that `[[ a⏎&& b ]]` is no syntax, and what stands before it has run by then.

use brush_parser::{SourceSpan, Token, uncached_tokenize_str};

use super::Walker;
use crate::policy::line::guard;

impl Walker<'_> {
    /// Where a line ends behind anything but an operator or the bracket, is unclear: which words are operands is not asked.
    pub(super) fn ends_of_lines(&mut self, test: &SourceSpan) {
        let written = self.local.get(test.start.index..test.end.index).unwrap_or_default();
        if !written.contains(&'\n') {
            return;
        }
        let written: String = written.iter().collect();
        let tokens = uncached_tokenize_str(&written, &guard::options().tokenizer_options());
        let is_open = |before: &Token| matches!(before.to_str(), "[[" | "&&" | "||" | "\n");
        let tokens = tokens.unwrap_or_default();
        let mut pairs = tokens.windows(2);
        let ends_early = pairs.any(|pair| pair[1].to_str() == "\n" && !is_open(&pair[0]));
        if ends_early || tokens.is_empty() {
            let what = "`[[` with a line that ends behind a word (end it behind `&&` or `||`)";
            self.unclear(what, self.span(test));
        }
    }
}
