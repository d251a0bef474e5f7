//! The seal on the head of a chain: who wrote the last row had the record's key.
//!
//! Signed checkpoints come every thousand rows. Behind the last of them a chain is only linked, and links can be made anew by
//! anybody. So the head row, which every transaction writes anyway, also has a keyed digest of where the chain ends: without the
//! key its end can neither be rewritten nor cut off. A signature would say the same to everybody and cost twenty times as much.
//!
//! Records of older programs have no seal. They are taken as they are once, at the first start, and a file in the state directory
//! says from then on that a seal must be there.

use std::io;
use std::path::{Path, PathBuf};

use countersign_gateway::audit::chain::Hash;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::key::Key;
use crate::once;
use crate::prove::{Fault, Flaw, Voucher};
use crate::sqlite::dump::ExportError;

/// Says that the heads of a state directory's record are sealed.
pub(crate) const FILE_NAME: &str = "record-sealed";

/// Why nothing is written behind a head without one.
pub(crate) const UNSEALED: &str = "the end of the record was changed by somebody who does not have its key (`countersign audit verify` \
     tells more); put back what was there; an older record without a seal, which you put there yourself, is taken over when \
     `record-sealed*` is removed from the state directory";

/// Why a process goes on behind nothing older than what it wrote itself.
pub(crate) const SET_BACK: &str = "the record was set back to an older copy, which lacks rows that were written since; restore the newer one, \
     or start the server anew to go on with the older";

const PURPOSE: &str = "the head of a chain";

pub(crate) type Seal = [u8; 32];

/// Seals heads with a key that is made of the record's.
pub(crate) struct Sealer {
    /// Ready to take a message.
    mac: Hmac<Sha256>,
    mark: PathBuf,
}

impl Sealer {
    /// `chain` is named where the directory may have been a node of another record before.
    pub(crate) fn new(key: &Key, directory: &Path, chain: Option<&str>) -> Self {
        let mac = Hmac::new_from_slice(&key.derived(PURPOSE)).expect("a MAC takes keys of any length");
        let name = chain.map_or_else(|| FILE_NAME.to_owned(), |chain| format!("{FILE_NAME}.{chain}"));
        let mark = directory.join(name);
        Self { mac, mark }
    }

    pub(crate) fn seal(&self, chain: &str, seq: u64, hash: &Hash) -> Seal {
        self.over(chain, seq, hash).finalize().into_bytes().into()
    }

    pub(crate) fn is_sealed(&self, chain: &str, seq: u64, hash: &Hash, seal: &Seal) -> bool {
        self.over(chain, seq, hash).verify_slice(seal).is_ok()
    }

    /// Whoever wrote a head must have had the key.
    pub(crate) fn prove(&self, chain: &str, (seq, hash): (u64, Hash), seal: Option<Seal>) -> Result<Voucher, Flaw> {
        match seal {
            Some(seal) if self.is_sealed(chain, seq, &hash, &seal) => Ok(Voucher::Seal),
            Some(_) => Err(Fault::HeadForged.at(seq)),
            None if self.is_expected() => Err(Fault::HeadUnsealed.at(seq)),
            None => Ok(Voucher::Nothing),
        }
    }

    /// The end that a seal tells; none where there never was one.
    pub(crate) fn sealed_end(
        &self,
        chain: &str,
        head: Option<(u64, Hash)>,
        seal: Option<Seal>,
    ) -> Result<Option<(u64, Hash)>, ExportError> {
        let head = head.ok_or(ExportError::Unsealed)?;
        match self.prove(chain, head, seal) {
            Ok(Voucher::Seal) => Ok(Some(head)),
            Ok(Voucher::Nothing | Voucher::Signature) => Ok(None),
            Err(_) => Err(ExportError::Unsealed),
        }
    }

    /// Whether a seal must be there; also where nobody can say.
    pub(crate) fn is_expected(&self) -> bool {
        self.mark.try_exists().unwrap_or(true)
    }

    /// From now on it must.
    pub(crate) fn expect(&self) -> io::Result<()> {
        once::write(&self.mark, "the head of this record is sealed")
    }

    /// The chain's name comes last: what stands before it has one length.
    fn over(&self, chain: &str, seq: u64, hash: &Hash) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(&seq.to_be_bytes());
        mac.update(hash.as_bytes());
        mac.update(chain.as_bytes());
        mac
    }
}

/// What is said of a record that was sealed for the first time.
pub(crate) fn tell_taken_over(rows: u64) {
    if rows > 0 {
        tracing::warn!(
            rows,
            "the end of this record had no seal, as an older program leaves it: its rows were taken as they are, and are sealed \
             from now on"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_holds_for_its_key_chain_place_and_hash_only() {
        let sealer = |seed| Sealer::new(&Key::from_seed(&[seed; 32]), Path::new("/nowhere"), None);
        let hash = Hash::from_bytes([1; 32]);
        let seal = sealer(7).seal("main", 9, &hash);
        assert!(sealer(7).is_sealed("main", 9, &hash, &seal));
        assert!(!sealer(8).is_sealed("main", 9, &hash, &seal));
        assert!(!sealer(7).is_sealed("other", 9, &hash, &seal));
        assert!(!sealer(7).is_sealed("main", 8, &hash, &seal));
        assert!(!sealer(7).is_sealed("main", 9, &Hash::GENESIS, &seal));
    }
}
