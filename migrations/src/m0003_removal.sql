-- Removed noderoles. The rows of their steps stay because runs reference them. They are gone until
-- the noderole is bound again.

ALTER TABLE step
  DROP CONSTRAINT step_state_check,
  ADD CONSTRAINT step_state_check CHECK (state IN ('blocked', 'todo', 'transition', 'active', 'error', 'gone')),
  ADD CONSTRAINT step_gone_does_nothing CHECK (
    state <> 'gone' OR (pending = 0 AND failures = 0 AND cause IS NULL AND wall IS NULL AND budget_ids = '{}'));
COMMENT ON COLUMN step.state IS
  'gone: its noderole is no longer part of the target. Only commits set or clear this state.';
