//! Collects the evidence for the checker from the nodes' journals and the database.

use std::path::Path;

use sqlx::PgPool;

use crate::checker::{Edge, Evidence, Line, Observation, Run, Step};
use crate::world::World;

/// Reads a node's journal.
pub fn journal(root: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(root.join("journal")).unwrap_or_default();
    text.lines().filter_map(read).collect()
}

/// `None` for a line that was cut because the disk was full.
fn read(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.strip_suffix(" .")?.split(' ').collect();
    match words.as_slice() {
        ["start", run, role, exclusive, at, concurrent] => {
            let concurrent = concurrent
                .strip_prefix("concurrent=")?
                .split(',')
                .filter(|word| !word.is_empty())
                .map(|word| {
                    let (run, exclusive) = word.split_once('/')?;
                    Some((run.parse().ok()?, exclusive == "1"))
                });
            Some(Line::Start {
                run: run.parse().ok()?,
                role: (*role).to_owned(),
                at: at.parse().ok()?,
                exclusive: *exclusive == "1",
                concurrent: concurrent.collect::<Option<_>>()?,
            })
        }
        ["end", run, role, at] => Some(Line::End {
            run: run.parse().ok()?,
            role: (*role).to_owned(),
            at: at.parse().ok()?,
        }),
        _ => None,
    }
}

/// Installs triggers that record transient events: decreasing numbers, the statement that applied
/// each result, claim times, and requested retries. The final rows don't show these. The clock is
/// the same as in the nodes' journals: the machine's uptime.
pub async fn watch(admin: &PgPool) {
    sqlx::raw_sql(
        "CREATE TABLE seen (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text NOT NULL,
             detail text NOT NULL);
         CREATE FUNCTION see_step() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET
         search_path = public AS $$
         DECLARE attempt bigint;
         BEGIN
           IF NEW.generation < OLD.generation OR NEW.applied_generation < OLD.applied_generation
           THEN
             INSERT INTO seen (kind, detail) VALUES ('backwards',
             format('step %s from %s (applied %s) to %s (applied %s)',
               OLD.id, OLD.generation, OLD.applied_generation, NEW.generation, NEW.applied_generation));
           END IF;
           IF NEW.output IS DISTINCT FROM OLD.output AND NEW.output IS NOT NULL THEN
             SELECT value::bigint INTO attempt FROM jsonb_each_text(NEW.output->'journal') LIMIT 1;
             INSERT INTO seen (kind, detail)
             SELECT CASE WHEN EXISTS (SELECT FROM run WHERE id = attempt AND step_id = NEW.id AND
             outcome = 'succeeded'
                                        AND ended_at = now() AND generation =
                                        NEW.applied_generation)
                    THEN 'applied' ELSE 'late' END, format('run %s of step %s', attempt, NEW.id);
           END IF;
           RETURN NULL;
         END $$;
         CREATE TRIGGER see AFTER UPDATE ON step FOR EACH ROW EXECUTE FUNCTION see_step();
         CREATE FUNCTION see_head() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET
         search_path = public AS $$
         BEGIN
           INSERT INTO seen (kind, detail) VALUES ('backwards', format('head from %s to %s',
           OLD.number, NEW.number));
           RETURN NULL;
         END $$;
         CREATE TRIGGER see AFTER UPDATE ON head FOR EACH ROW
           WHEN (NEW.number < OLD.number OR NEW.epoch < OLD.epoch) EXECUTE FUNCTION see_head();
         CREATE FUNCTION see_deployment() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET
         search_path = public AS $$
         BEGIN
           INSERT INTO seen (kind, detail) VALUES ('backwards', format('%s from %s to %s', OLD.name,
           OLD.head_no, NEW.head_no));
           RETURN NULL;
         END $$;
         CREATE TRIGGER see AFTER UPDATE ON deployment FOR EACH ROW
           WHEN (NEW.head_no < OLD.head_no) EXECUTE FUNCTION see_deployment();
         CREATE TABLE claimed (run bigint PRIMARY KEY, at bigint NOT NULL);
         CREATE FUNCTION see_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET
         search_path = public AS $$
         BEGIN
           INSERT INTO claimed (run, at)
           VALUES (NEW.id, replace(split_part(pg_read_file('/proc/uptime', 0, 100), ' ', 1), '.',
           '')::bigint);
           RETURN NULL;
         END $$;
         CREATE TRIGGER see AFTER INSERT ON run FOR EACH ROW EXECUTE FUNCTION see_run();
         CREATE TABLE requested (step text NOT NULL, after_run bigint NOT NULL);
         CREATE FUNCTION record_request() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET
         search_path = public AS $$
         BEGIN
           INSERT INTO requested (step, after_run)
           SELECT s.id::text, max(r.id) FROM step s JOIN run r ON r.step_id = s.id
           WHERE s.noderole_id::text = NEW.subject AND s.state = 'error' AND NEW.actor IS NOT NULL
           GROUP BY s.id;
           RETURN NULL;
         END $$;
         CREATE TRIGGER see AFTER INSERT ON audit FOR EACH ROW WHEN (NEW.action = 'step.retry')
         EXECUTE FUNCTION record_request();",
    )
    .execute(admin)
    .await
    .unwrap();
}

/// Collects everything. It checks approvals with independent queries, not with the program's own.
pub async fn gather(world: &World) -> Evidence {
    let admin = &world.admin;
    let runs: Vec<Run> = sqlx::query_as(
        "SELECT r.id, r.step_id::text AS step, r.generation, r.outcome, step.destructive, coalesce((
           SELECT t.kind = 'change' AND r.blueprint_number >= t.number AND count(*) >=
           s.approvals_needed
           FROM blueprint t JOIN review s ON s.id = t.review_id
           JOIN LATERAL (SELECT DISTINCT ON (v.person_id) v.person_id, v.kind FROM verdict v
                         WHERE v.review_id = s.id ORDER BY v.person_id, v.id DESC) v ON v.kind =
                         'approve'
           WHERE t.number = r.generation
             AND v.person_id NOT IN (SELECT a.person_id FROM review_author a WHERE a.review_id =
             s.id)
           GROUP BY t.number, s.id), false) AS approved
         FROM run r JOIN step ON step.id = r.step_id",
    )
    .fetch_all(admin)
    .await
    .unwrap();
    let edges: Vec<Edge> = sqlx::query_as(
        "SELECT c.node_id::text AS node, cn.role AS child, p.node_id::text AS parent_node, pn.role
             AS parent FROM edge e
         JOIN step c ON c.id = e.child JOIN noderole cn ON cn.id = c.noderole_id
         JOIN step p ON p.id = e.parent JOIN noderole pn ON pn.id = p.noderole_id
         WHERE e.kind = 'hard'",
    )
    .fetch_all(admin)
    .await
    .unwrap();
    let claimed: Vec<(i64, i64)> =
        sqlx::query_as("SELECT run, at FROM claimed").fetch_all(admin).await.unwrap();
    let claimed = claimed.into_iter().map(|(run, at)| (run, at.unsigned_abs())).collect();
    let requested =
        sqlx::query_as("SELECT step, after_run FROM requested").fetch_all(admin).await.unwrap();
    let seen: Vec<Observation> =
        sqlx::query_as("SELECT kind, detail FROM seen ORDER BY id").fetch_all(admin).await.unwrap();
    let journals = world.nodes.iter().map(|node| (node.id.clone(), journal(&node.root))).collect();
    Evidence { journals, runs, steps: steps(admin).await.unwrap(), edges, claimed, requested, seen }
}

/// All steps, with the reason if they are not ACTIVE.
pub async fn steps(admin: &PgPool) -> Result<Vec<Step>, sqlx::Error> {
    sqlx::query_as(
        "WITH workers AS (SELECT coalesce(sum(capacity), 0) AS room FROM worker WHERE phase =
             'confirmed' AND lease_until > now()),
              open AS (SELECT count(*) AS n FROM run WHERE ended_at IS NULL)
         SELECT s.id::text, s.node_id::text AS node, n.role, s.state, s.generation,
         s.applied_generation AS applied,
           (s.output->'journal'->>n.role)::bigint AS wall_of,
           CASE s.state
             WHEN 'error' THEN s.error
             WHEN 'transition' THEN (SELECT format('run %s is %s', r.id, r.state) FROM run r
               WHERE r.step_id = s.id AND r.ended_at IS NULL AND r.lease_until > now())
             WHEN 'blocked' THEN (SELECT format('waits for %s', min(p.id::text)) FROM edge e JOIN
             step p ON p.id = e.parent
               WHERE e.child = s.id AND p.state <> 'active' HAVING count(*) > 0)
             WHEN 'todo' THEN CASE
               WHEN NOT h.enabled THEN 'execution is off'
               WHEN NOT d.alive THEN 'its node is not alive'
               WHEN NOT d.available THEN 'its node is not available'
               WHEN NOT j.active THEN 'its jig is off'
               WHEN s.not_before > now() THEN 'it is tried again later'
               WHEN EXISTS (SELECT FROM deployment WHERE on_hold_by IS NOT NULL) THEN
               'its deployment is held'
               WHEN s.exclusive AND EXISTS (SELECT FROM run r WHERE r.node_id = s.node_id AND
               r.exclusive AND r.ended_at IS NULL)
                 THEN 'another has its node'
               WHEN w.room <= o.n THEN 'all workers are busy'
             END
           END AS reason
         FROM step s JOIN noderole n ON n.id = s.noderole_id JOIN node d ON d.id = s.node_id JOIN
         jig j ON j.name = s.jig
         CROSS JOIN head h CROSS JOIN workers w CROSS JOIN open o",
    )
    .fetch_all(admin)
    .await
}
