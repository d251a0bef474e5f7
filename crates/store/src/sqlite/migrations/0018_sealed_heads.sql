-- A keyed digest of where the chain ends, so that nobody without the record's key can rewrite or cut off what stands behind the
-- last signed checkpoint. A program that does not know it would leave one that no longer fits; the check refuses its change.
ALTER TABLE chain_heads ADD COLUMN seal BLOB CHECK (length(seal) = 32);
ALTER TABLE chain_heads ADD COLUMN sealed_seq INTEGER
    CONSTRAINT a_newer_program_seals_this_record_start_this_one_anew CHECK (sealed_seq = seq);
