//! Secrets that are known by their shape, whatever stands around them.

use std::sync::LazyLock;

use regex::Regex;

use super::compiled;

/// No shape below is shorter.
pub(super) const TOKEN_BYTES_MIN: usize = 15;

/// Tokens by their shape.
pub(super) static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    // What begins like these begins nothing else, whatever stands before it: an escape, a colour, `%20`.
    let shapes = [
        // Private keys, cut ones too.
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)",
        r"(?s:PuTTY-User-Key-File-.*?(?:Private-MAC: [0-9a-f]+|\z))",
        r"gh[pousr]_[A-Za-z0-9]{16,}",
        r"github_pat_[A-Za-z0-9_]{16,}",
        r"gl(?:pat|ptt|dt|rt|cbt|soat|ft|imt|agent|oas)-[A-Za-z0-9_\-]{16,}",
        r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?-u:\b)",
        r"xox[abeoprs]-[A-Za-z0-9\-]{10,}",
        r"xapp-[A-Za-z0-9\-]{10,}",
        r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_\-]{10,}",
        r"discord(?:app)?\.com/api/webhooks/[0-9]+/[A-Za-z0-9_\-]{16,}",
        // OpenAI, Anthropic and those who write alike.
        r"(?:(?-u:\b)|\\[nrt]|\x1b\[[0-9;]*m|%[0-9A-F]{2})sk-[A-Za-z0-9_\-]{16,}",
        r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,}",
        r"whsec_[A-Za-z0-9]{16,}",
        r"eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{4,}\.[A-Za-z0-9_\-]*",
        r"AIza[A-Za-z0-9_\-]{30,}",
        r"GOCSPX-[A-Za-z0-9_\-]{16,}",
        r"ya29\.[A-Za-z0-9_\-]{16,}",
        r"npm_[A-Za-z0-9]{30,}",
        r"pypi-[A-Za-z0-9_\-]{30,}",
        r"rubygems_[a-f0-9]{30,}",
        r"dckr_(?:pat|oat)_[A-Za-z0-9_\-]{16,}",
        r"(?-u:\b)hf_[A-Za-z0-9]{30,}",
        r"(?-u:\b)hv[sbr]\.[A-Za-z0-9_\-]{20,}",
        r"(?-u:\b)(?:gsk|r8|lin_api|ntn|figd|sbp|fo1|fm2|pscale_(?:tkn|pw)|ops)_[A-Za-z0-9_\-]{30,}",
        r"(?-u:\b)(?:xai|nvapi|pplx|tskey|PMAK|NRAK)-[A-Za-z0-9_\-]{20,}",
        r"(?-u:\b)dapi[a-f0-9]{32}",
        r"(?-u:\b)dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9]{30,}",
        r"shp(?:at|ss|ca|pa)_[a-fA-F0-9]{30,}",
        r"ATATT3[A-Za-z0-9_\-=]{30,}",
        r"sntry[su]_[A-Za-z0-9+/=_\-]{30,}",
        r"sq0(?:atp|csp)-[A-Za-z0-9_\-]{20,}",
        r"(?-u:\b)glsa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8}",
        r"(?-u:\b)pul-[a-f0-9]{40}",
        r"(?-u:\b)phx_[A-Za-z0-9]{32,}",
        r"(?-u:\b)[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=\-]{60,}",
        r"(?-u:\b)key-[a-f0-9]{32}(?-u:\b)",
        r"(?-u:\b)oy2[a-z0-9]{43}(?-u:\b)",
        r"(?-u:\b)cio[A-Za-z0-9]{32}(?-u:\b)",
        // The keys of bots that Telegram gives out.
        r"(?:(?-u:\b)|bot)[0-9]{8,10}:(?:AA[A-Za-z0-9_\-]{32,34}|[A-Za-z0-9_\-]{35}(?-u:\b))",
        r"do[opr]_v1_[a-f0-9]{30,}",
        r"(?-u:\b)SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}",
        // Our own.
        r"cs_(?:agent|operator|approver|viewer|login|browser)_[A-Za-z0-9_\-]{16,}",
        r"AGE-SECRET-KEY-1[A-Z0-9]{30,}",
    ];
    compiled(&shapes.join("|"))
});

#[cfg(test)]
mod tests;
