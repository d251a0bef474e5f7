//! What this machine offers, layer by layer, for `doctor`.
