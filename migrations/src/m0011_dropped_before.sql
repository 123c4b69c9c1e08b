-- Marks edits from before m0007 that were undone and followed by another edit, so that redo skips
-- them. Undo starts with the last edit. So an undone edit before a valid one was undone when the
-- valid one was made. If all later edits are undone too, this is unknown, and redo restores it as
-- before. Closed proposals do not change, because they have no redo.

UPDATE edit e SET dropped = true FROM proposal p
WHERE p.id = e.proposal_id AND p.state = 'open' AND e.undone AND NOT e.dropped
  AND EXISTS (SELECT FROM edit later WHERE later.proposal_id = e.proposal_id AND later.seq > e.seq AND NOT later.undone);
