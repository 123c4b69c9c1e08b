-- Edits from before m0007 that were taken back and followed by another one: redo passes them by, too. Edits are taken back from the
-- last one on, so one that is undone before one that counts was undone when that was made. Where all behind it are undone it can't be
-- told any more, and redo brings it back as before. Closed proposals stay as they are: nobody redoes there.

UPDATE edit e SET dropped = true FROM proposal p
WHERE p.id = e.proposal_id AND p.state = 'open' AND e.undone AND NOT e.dropped
  AND EXISTS (SELECT FROM edit later WHERE later.proposal_id = e.proposal_id AND later.seq > e.seq AND NOT later.undone);
