-- The target history per deployment: the targets that changed it.

CREATE TABLE target_deployment (
  deployment_id  uuid NOT NULL REFERENCES deployment,
  number         bigint NOT NULL REFERENCES target,
  PRIMARY KEY (deployment_id, number)
);
COMMENT ON TABLE target_deployment IS
  'The deployments that a target changed. A switch changes none. Append-only, written by commits.';

-- For older targets, three sources are known: the deployment of the proposal, the deployments of
-- changed documents, and the last target of each deployment.
INSERT INTO target_deployment (deployment_id, number)
SELECT d.id, t.number FROM target t JOIN submission s ON s.id = t.submission_id JOIN proposal p ON p.id = s.proposal_id
JOIN deployment d ON d.id = p.deployment_id
UNION
SELECT d.id, t.number FROM target t JOIN submission_document c ON c.submission_id = t.submission_id AND c.kind = 'deployment'
JOIN deployment d ON d.id = c.id
UNION
SELECT d.id, t.number FROM deployment d JOIN target t ON t.number = d.head_no AND t.kind <> 'switch';
