//! From a leased run to a job: is it what was approved, and what does it see?
//!
//! A worker changes machines, so it does not take a row's word. It follows the run to its target, the target to its submission and
//! the submission to its verdicts; and it reads the documents that the target's root names, by hash, down to the role's content and
//! its scripts. Where one link does not hold, the run is refused: it fails with the link that broke, and nothing is touched.
//!
//! What the run sees is [`engine::data::visible`]; it is kept with the run, each value with its source, secrets as references. The
//! references are resolved at the last moment, into the copy that goes to the node.
//!
//! Two contents of a step meet here. The run's row names one, and the node's ledger compares one. The ledger's must be the same for
//! all attempts of one generation, so it is taken from the root of the target that made this generation; the row's may also be that
//! of the present root, since data that does not make its step run again changes under it.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::Hash;
use engine::blueprint::projection::content;
use engine::catalog::Role;
use engine::cluster::{DeploymentRoleDoc, NoderoleDoc, NoderoleKey};
use engine::data::secret::{SecretRef, reference, references};
use engine::data::{Contribution, DataError, Layered, OwnData, Sight, visible};
use engine::ids::{Fqdn, NodeId, RoleName, RunId, StepId};
use futures::FutureExt;
use serde_json::{Value, json};
use sqlx::PgPool;
use store::StoreError;
use store::running::{self, Approval, RunFacts, SeenStep, WorkerId};

use crate::jig::Job;
use crate::objects::{ObjectError, Objects};
use crate::secrets::{SecretSource, Secrets};
use crate::together::Together;

/// Why a run is not started.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The database could not be asked; asking again may help.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is gone, or another worker's.
    #[error("run {0} is no longer this worker's")]
    NotOurs(RunId),
    /// A link of the chain from the run to its approval does not hold.
    #[error("refused, because the run is not what was approved: {0}")]
    Chain(String),
    /// An object that the chain names can't be used.
    #[error("refused: {0}")]
    Object(ObjectError),
    /// The data can't be put together.
    #[error("the run's input can't be made: {0}")]
    Data(#[from] DataError),
    /// A secret can't be resolved.
    #[error("{0}")]
    Secret(String),
}

impl From<ObjectError> for Refusal {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Store(error) => Self::Store(error),
            other => Self::Object(other),
        }
    }
}

fn broken(link: impl Into<String>) -> Refusal {
    Refusal::Chain(link.into())
}

/// What a run is about and what it sees, as the database has it.
pub struct Gathered {
    facts: Arc<RunFacts>,
    seen: Vec<SeenStep>,
    /// Of the target that made its generation.
    approval: Option<Approval>,
}

/// Makes runs ready.
pub struct Preparing {
    /// The database.
    pub pool: PgPool,
    objects: Arc<Objects>,
    secrets: Arc<dyn SecretSource>,
    gather: Together<RunId, Option<Gathered>>,
    keep: Together<(Arc<RunFacts>, Arc<Value>), bool>,
}

async fn gather(pool: &PgPool, runs: &[RunId]) -> Result<Vec<Option<Gathered>>, StoreError> {
    let mut facts = running::run_facts(pool, runs).await?;
    let of: Vec<(StepId, NodeId)> = facts.values().map(|facts| (facts.step, facts.node)).collect();
    let mut seen = running::seen_steps(pool, &of).await?;
    let approvals = running::approvals(pool, &facts.values().map(|facts| facts.generation).collect()).await?;
    let gathered = runs.iter().map(|run| {
        let facts = Arc::new(facts.remove(run)?);
        let seen = seen.remove(&facts.step).unwrap_or_default();
        let approval = approvals.get(&facts.generation).cloned();
        Some(Gathered { facts, seen, approval })
    });
    Ok(gathered.collect())
}

async fn keep(
    pool: &PgPool,
    worker: WorkerId,
    inputs: &[(Arc<RunFacts>, Arc<Value>)],
) -> Result<Vec<bool>, StoreError> {
    let given: Vec<(&RunFacts, &Value)> = inputs.iter().map(|(facts, input)| (&**facts, &**input)).collect();
    let kept = running::record_inputs(pool, worker, &given).await?;
    Ok(given.iter().map(|(facts, _)| kept.contains(&facts.run)).collect())
}

/// A job and the secrets in it.
pub struct Prepared {
    /// What is to be done.
    pub job: Job,
    /// What must not come out of it.
    pub secrets: Secrets,
}

/// The documents of one noderole under one root.
struct Meant {
    noderole: NoderoleDoc,
    role: Option<DeploymentRoleDoc>,
}

impl Meant {
    fn content(&self) -> Result<Hash, Refusal> {
        content(&self.noderole, self.role.as_ref()).map_err(|e| broken(e.to_string()))
    }
}

impl Preparing {
    /// For one worker, over one database.
    pub fn new(pool: PgPool, worker: WorkerId, objects: Arc<Objects>, secrets: Arc<dyn SecretSource>) -> Self {
        let (gathering, keeping) = (pool.clone(), pool.clone());
        let gather = Together::answered_by(move |runs: Vec<RunId>| {
            let pool = gathering.clone();
            async move { gather(&pool, &runs).await }.boxed()
        });
        let keep = Together::answered_by(move |inputs: Vec<(Arc<RunFacts>, Arc<Value>)>| {
            let pool = keeping.clone();
            async move { keep(&pool, worker, &inputs).await }.boxed()
        });
        Self { pool, objects, secrets, gather, keep }
    }

    /// Makes a leased run ready to start.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn prepare(&self, run: RunId) -> Result<Prepared, Refusal> {
        let Gathered { facts, seen, approval } = self.gather.ask(run).await?.ok_or(Refusal::NotOurs(run))?;
        let meant = self.check_chain(&facts, approval).await?;
        let role = self.objects.role(meant.now.noderole.role).await?;
        if role.name.as_str() != facts.role {
            return Err(broken(format!("role {} is stored as the content of {}", role.name, facts.role)));
        }
        let layered = self.see(&facts, seen, &meant.now, &role).await?;
        let kept = json!({ "data": layered.value, "sources": layered.sources });
        if !self.keep.ask((Arc::clone(&facts), Arc::new(kept))).await? {
            return Err(Refusal::NotOurs(run));
        }
        let (input, secrets) = self.resolve(layered.value).await?;
        let job = Job {
            run,
            step: facts.step,
            epoch: facts.epoch,
            generation: facts.generation,
            content: meant.ledger,
            node: facts.node,
            fqdn: Fqdn::parse(&facts.fqdn).map_err(|e| broken(e.to_string()))?,
            connection: facts.connection.clone(),
            phantom: facts.phantom,
            role,
            exclusive: facts.exclusive,
            input,
        };
        Ok(Prepared { job, secrets })
    }

    async fn check_chain(&self, facts: &RunFacts, approval: Option<Approval>) -> Result<Checked, Refusal> {
        if facts.epoch != facts.epoch_now {
            return Err(broken(format!(
                "it was claimed in epoch {}, and the database has been restored since (epoch {})",
                facts.epoch, facts.epoch_now
            )));
        }
        if facts.generation > facts.target {
            return Err(broken(format!(
                "its generation {} is newer than its target {}",
                facts.generation, facts.target
            )));
        }
        check_approval(facts, approval)?;
        let key = NoderoleKey {
            role: RoleName::parse(&facts.role).map_err(|e| broken(e.to_string()))?,
            instance: facts.instance,
        };
        let now = self.meant(facts, facts.target_root, &key).await?;
        if now.noderole.role != facts.role_hash {
            return Err(broken(format!(
                "target {} says that the content of {key} is {}, the noderole's row says {}",
                facts.target, now.noderole.role, facts.role_hash
            )));
        }
        let then = self.meant(facts, facts.generation_root, &key).await?;
        let ledger = then.content()?;
        if facts.content != ledger && facts.content != now.content()? {
            return Err(broken(format!(
                "its content {} is neither that of generation {} nor that of target {}",
                facts.content, facts.generation, facts.target
            )));
        }
        Ok(Checked { now, ledger })
    }

    /// What a root says about the run's noderole.
    async fn meant(&self, facts: &RunFacts, root: Hash, key: &NoderoleKey) -> Result<Meant, Refusal> {
        let root = self.objects.root(root).await?;
        let lacks = |what: &str| broken(format!("the root of target {} has no {what}", facts.target));
        let node = root.nodes.get(&facts.node).ok_or_else(|| lacks("document of the run's node"))?;
        let node = self.objects.node(*node).await?;
        if node.id != facts.node || node.fqdn.as_str() != facts.fqdn || node.phantom != facts.phantom {
            return Err(broken(format!("the document of node {} is that of {}", facts.fqdn, node.fqdn)));
        }
        let noderole = node.noderoles.get(key).ok_or_else(|| lacks(&format!("{key} on {}", facts.fqdn)))?;
        if noderole.deployment != facts.deployment {
            return Err(broken(format!("{key} on {} is bound in another deployment", facts.fqdn)));
        }
        let deployment =
            root.deployments.get(&noderole.deployment).ok_or_else(|| lacks("document of its deployment"))?;
        let deployment = self.objects.deployment(*deployment).await?;
        Ok(Meant { noderole: noderole.clone(), role: deployment.roles.get(&key.role).cloned() })
    }

    async fn see(&self, facts: &RunFacts, seen: Vec<SeenStep>, meant: &Meant, role: &Role) -> Result<Layered, Refusal> {
        let mut below: Vec<(SeenStep, Arc<Role>, Value)> = Vec::with_capacity(seen.len());
        let mut documents = BTreeMap::new();
        for step in seen {
            let role = self.objects.role(step.role_hash).await?;
            let deployment = match documents.get(&step.deployment_doc) {
                Some(known) => Arc::clone(known),
                None => self.objects.deployment(step.deployment_doc).await?,
            };
            documents.insert(step.deployment_doc, Arc::clone(&deployment));
            let data = deployment.roles.get(&role.name).map_or(Value::Null, |role| role.data.clone());
            below.push((step, role, data));
        }
        let sight = Sight {
            on_node: below.iter().filter(|(step, ..)| step.distance.is_none()).map(contribution).collect(),
            ancestors: below.iter().filter_map(|seen| Some((seen.0.distance?, contribution(seen)))).collect(),
            step: facts.step,
            own: OwnData {
                template: &role.template,
                profiles: &[],
                deployment_role: meant.role.as_ref().map_or(&Value::Null, |role| &role.data),
                system: &facts.system_data,
                user: &meant.noderole.data,
            },
        };
        Ok(visible(&sight)?)
    }

    async fn resolve(&self, mut value: Value) -> Result<(Value, Secrets), Refusal> {
        let mut known = BTreeMap::new();
        for secret in references(&value) {
            let plain = self.secrets.resolve(&secret).await.map_err(Refusal::Secret)?;
            known.insert(secret, plain);
        }
        put_in(&mut value, &known);
        Ok((value, Secrets::new(known.into_values())))
    }
}

fn check_approval(facts: &RunFacts, approval: Option<Approval>) -> Result<(), Refusal> {
    let approval = approval.ok_or_else(|| broken(format!("there is no target {}", facts.generation)))?;
    match (approval.kind.as_str(), approval.needed) {
        ("genesis", _) => Ok(()),
        ("change", Some(needed)) if approval.objecting > 0 || approval.approving < i64::from(needed.max(1)) => {
            Err(broken(format!(
                "submission {} of target {} has {} of {needed} approvals, and {} objections",
                approval.submission.unwrap_or_default(),
                facts.generation,
                approval.approving,
                approval.objecting
            )))
        }
        ("change", Some(_)) => Ok(()),
        (kind, _) => Err(broken(format!("target {} ({kind}) changes no step", facts.generation))),
    }
}

fn contribution((step, role, data): &(SeenStep, Arc<Role>, Value)) -> Contribution<'_> {
    Contribution {
        step: step.step,
        rank: step.rank,
        own: OwnData {
            template: &role.template,
            profiles: &[],
            deployment_role: data,
            system: &step.system_data,
            user: &step.data,
        },
        wall: &step.wall,
    }
}

struct Checked {
    now: Meant,
    ledger: Hash,
}

fn put_in(value: &mut Value, known: &BTreeMap<SecretRef, String>) {
    if let Some(plain) = reference(value).and_then(|secret| known.get(&secret)) {
        *value = Value::String(plain.clone());
        return;
    }
    match value {
        Value::Object(entries) => entries.values_mut().for_each(|value| put_in(value, known)),
        Value::Array(items) => items.iter_mut().for_each(|value| put_in(value, known)),
        _ => {}
    }
}
