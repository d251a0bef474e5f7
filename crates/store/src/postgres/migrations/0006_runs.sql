-- Who may decide: the owner alone, or whoever it was delegated to. Runs themselves are not kept here yet.
ALTER TABLE approvals ADD COLUMN approval_mode TEXT CHECK (approval_mode IN ('owner', 'delegated'));
