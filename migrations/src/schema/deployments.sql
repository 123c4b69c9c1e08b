-- The tree of deployments, and the limits for the runs in them.

CREATE TABLE deployment (
  id           uuid        PRIMARY KEY,
  parent       uuid REFERENCES deployment,
  name         text        NOT NULL CHECK (name <> '' AND octet_length(name) <= 96),
  system       boolean     NOT NULL DEFAULT false,
  phantom      uuid        NOT NULL,
  doc          bytea       NOT NULL REFERENCES object,
  head_no      bigint      NOT NULL REFERENCES blueprint,
  removed_in   bigint REFERENCES blueprint,
  on_hold_by   uuid REFERENCES person,
  on_hold_since timestamptz,
  on_hold_reason text,
  priority     int         NOT NULL DEFAULT 0 CHECK (priority >= -100 AND priority <= 100),
  CONSTRAINT deployment_hold_is_complete CHECK ((on_hold_by IS NULL) = (on_hold_since IS NULL)),
  CONSTRAINT deployment_is_not_its_parent CHECK (parent <> id),
  -- engine::ids::looks_like_id
  CONSTRAINT deployment_name_is_no_id
    CHECK (name !~* '^([0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$'),
  CONSTRAINT deployment_system_is_root CHECK (system = (parent IS NULL))
);
CREATE UNIQUE INDEX deployment_name ON deployment (name) WHERE removed_in IS NULL;
CREATE UNIQUE INDEX deployment_one_system ON deployment (system) WHERE system;
CREATE INDEX deployment_parent ON deployment (parent);
CREATE INDEX deployment_removed ON deployment (name, removed_in DESC) WHERE removed_in IS NOT NULL;
COMMENT ON TABLE deployment IS 'The tree of deployments. A removed deployment keeps its row.';
COMMENT ON COLUMN deployment.phantom IS
  'The phantom node of the deployment, which has its services.';
COMMENT ON COLUMN deployment.head_no IS
  'The blueprint that last changed the document of this deployment or of one of its nodes.';
COMMENT ON COLUMN deployment.removed_in IS 'The blueprint that removed the deployment.';
COMMENT ON COLUMN deployment.on_hold_by IS
  'The person who put the deployment on hold. A deployment on hold starts no runs. Progress, like '
  'on_hold_since and on_hold_reason.';
COMMENT ON COLUMN deployment.priority IS
  'Progress, set by an operator. A claim adds it to the priority of each step in the deployment.';
ALTER TABLE scoped_grant ADD CONSTRAINT scoped_grant_deployment_id_fkey
  FOREIGN KEY (deployment_id) REFERENCES deployment(id);
ALTER TABLE token ADD CONSTRAINT token_deployment_id_fkey
  FOREIGN KEY (deployment_id) REFERENCES deployment(id);
ALTER TABLE access_change ADD CONSTRAINT access_change_deployment_id_fkey
  FOREIGN KEY (deployment_id) REFERENCES deployment(id);

CREATE TABLE blueprint_deployment (
  deployment_id     uuid   NOT NULL REFERENCES deployment,
  blueprint_number  bigint NOT NULL REFERENCES blueprint,
  PRIMARY KEY (deployment_id, blueprint_number)
);
COMMENT ON TABLE blueprint_deployment IS
  'The deployments that a blueprint changed. A switch changes none. Append-only, written by '
  'commits.';

CREATE TABLE concurrency_group (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  deployment_id  uuid   NOT NULL REFERENCES deployment,
  name           text   NOT NULL CHECK (name <> '' AND octet_length(name) <= 96),
  max_running    int CHECK (max_running > 0),
  mode           text   NOT NULL DEFAULT 'rolling' CHECK (mode IN ('chunk', 'rolling')),
  UNIQUE (deployment_id, name)
);
COMMENT ON TABLE concurrency_group IS
  'The steps of a role, or of a named group, in a deployment: at most max_running of them run at '
  'once.';
COMMENT ON COLUMN concurrency_group.max_running IS 'NULL: no limit.';
COMMENT ON COLUMN concurrency_group.mode IS
  'rolling: the next run starts as soon as one ends. chunk: the next runs start once all have '
  'ended.';

CREATE TABLE disruption_budget (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  deployment_id  uuid   NOT NULL REFERENCES deployment,
  name           text   NOT NULL,
  max_down       int    NOT NULL CHECK (max_down > 0),
  UNIQUE (deployment_id, name)
);
COMMENT ON TABLE disruption_budget IS 'Failure domains of a deployment.';
COMMENT ON COLUMN disruption_budget.max_down IS
  'Nodes of the failure domain that may be down or in use by runs at once.';
