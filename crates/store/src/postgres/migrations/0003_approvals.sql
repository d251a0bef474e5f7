-- Questions to people, and what became of them. A row changes only together with its events, and only
-- over the version that the change was made from.
CREATE TABLE approvals (
    approval_id TEXT COLLATE "C" PRIMARY KEY,
    version BIGINT NOT NULL,
    type TEXT NOT NULL CHECK (type IN ('exec-command', 'apply-patch', 'tool-call', 'question')),
    state TEXT NOT NULL CHECK (state IN
        ('pending', 'approved', 'denied', 'expired', 'withdrawn', 'auto-approved', 'applied', 'failed')),
    -- The whitelist answered for a person.
    automatic BOOLEAN NOT NULL,
    correlation_id TEXT COLLATE "C" NOT NULL,
    job_id TEXT,
    run_id TEXT,
    -- The credential that asked, and what the record calls its bearer.
    owner TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    tool TEXT NOT NULL,
    -- The command that it is about; `parks` when the command has not begun and waits for the answer here.
    request_id TEXT,
    parks BOOLEAN NOT NULL,
    -- What the answer is good for.
    binding TEXT NOT NULL,
    arguments_digest TEXT NOT NULL,
    policy_digest TEXT NOT NULL,
    details TEXT NOT NULL,
    quorum BIGINT NOT NULL CHECK (quorum >= 1),
    votes TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT,
    resolved_at_ms BIGINT,
    decided_by TEXT,
    decision_reason TEXT,
    remaining_ms BIGINT NOT NULL,
    arrival BIGINT GENERATED ALWAYS AS IDENTITY,
    -- S1: a decision is set with its time.
    CHECK ((state = 'pending') = (resolved_at_ms IS NULL))
);

-- One question at a time about one act: the same asked again joins it, and one answer is used once.
CREATE UNIQUE INDEX approvals_in_force ON approvals (owner, binding) WHERE state IN ('pending', 'approved');
CREATE INDEX approvals_by_creation ON approvals (created_at_ms, arrival);
CREATE INDEX approvals_of_people ON approvals (created_at_ms, arrival) WHERE NOT automatic;
CREATE INDEX approvals_pending ON approvals (created_at_ms, arrival) WHERE state = 'pending';
CREATE INDEX approvals_due ON approvals (expires_at_ms) WHERE state = 'pending' AND expires_at_ms IS NOT NULL;
CREATE INDEX approvals_of_a_command ON approvals (owner, request_id);

-- The arrows of `approval/lifecycle.rs`, for whoever writes past it. A vote that does not settle a question
-- leaves it pending.
CREATE TRIGGER approvals_refuse_steps BEFORE UPDATE OF state ON approvals FOR EACH ROW
WHEN (NOT (OLD.state = 'pending' AND NEW.state IN ('pending', 'approved', 'denied', 'expired', 'withdrawn')
    OR OLD.state IN ('approved', 'auto-approved') AND NEW.state IN ('applied', 'failed')))
EXECUTE FUNCTION refuse('an approval does not take this step');

-- What was asked never changes, so a given answer cannot be moved to another act.
CREATE TRIGGER approvals_refuse_rewriting BEFORE UPDATE ON approvals FOR EACH ROW
WHEN (OLD.binding <> NEW.binding OR OLD.owner <> NEW.owner OR OLD.details <> NEW.details
    OR OLD.arguments_digest <> NEW.arguments_digest OR OLD.policy_digest <> NEW.policy_digest
    OR OLD.quorum <> NEW.quorum OR OLD.request_id IS DISTINCT FROM NEW.request_id)
EXECUTE FUNCTION refuse('what an approval is about does not change');
