SELECT s.id FROM proposal p JOIN review s ON s.proposal_id = p.id AND s.version = p.version
JOIN head h ON h.epoch = s.epoch
WHERE p.state = 'open' AND is_outdated(s.id)
ORDER BY s.id LIMIT $1
