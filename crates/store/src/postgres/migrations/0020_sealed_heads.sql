-- A keyed digest of where the chain ends, so that nobody without the node's key can rewrite or cut off what stands behind its last
-- signed checkpoint. A process of the same node that does not know it would leave one that no longer fits; the check refuses its
-- change. Nodes that have not begun with it have none, and go on.
ALTER TABLE chain_heads ADD COLUMN seal BYTEA CHECK (length(seal) = 32);
ALTER TABLE chain_heads ADD COLUMN sealed_seq BIGINT;
ALTER TABLE chain_heads ADD CONSTRAINT a_newer_program_seals_this_record_start_this_one_anew CHECK (sealed_seq = seq);
