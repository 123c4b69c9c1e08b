//! Resolves the secrets in the data of a run.

use std::collections::BTreeMap;

use engine::data::Layered;
use engine::data::secret::{SecretRef, reference};
use engine::ids::{DeploymentName, StepId};
use serde_json::Value;

use super::Preparer;
use crate::run::refusal::Refusal;
use crate::secrets::{Purpose, SecretError, Secrets};

/// The data of a run with resolved secrets.
pub(super) struct Resolved {
    pub(super) input: Value,
    pub(super) secrets: Secrets,
    pub(super) withheld: Vec<String>,
}

impl Preparer {
    /// Resolves secrets. If the run's own data names a secret that it may not use, the run is
    /// refused. In the data of other noderoles, such a reference stays unresolved: their data must
    /// not be able to stop this run. Values of the run's own noderole name `own` as their source.
    pub(super) async fn resolve(
        &self,
        own: StepId,
        deployment: &DeploymentName,
        layered: Layered,
    ) -> Result<Resolved, Refusal> {
        let mut secrets: BTreeMap<SecretRef, bool> = BTreeMap::new();
        for (secret, source) in layered.references() {
            *secrets.entry(secret).or_default() |= source.step == own;
        }
        let (mut resolved, mut withheld) = (BTreeMap::new(), Vec::new());
        for (secret, is_own) in secrets {
            match self.secrets.resolve(&secret, Purpose::Data(deployment)).await {
                Ok(text) => drop(resolved.insert(secret, text)),
                Err(SecretError::Denied(reason)) if !is_own => withheld.push(reason),
                Err(error) => return Err(Refusal::Secret(error.to_string())),
            }
        }
        let mut input = layered.value;
        insert_secrets(&mut input, &resolved);
        Ok(Resolved { input, secrets: Secrets::new(resolved.into_values()), withheld })
    }
}

fn insert_secrets(value: &mut Value, resolved: &BTreeMap<SecretRef, String>) {
    if let Some(text) = reference(value).and_then(|secret| resolved.get(&secret)) {
        *value = Value::String(text.clone());
        return;
    }
    match value {
        Value::Object(entries) => {
            entries.values_mut().for_each(|value| insert_secrets(value, resolved))
        }
        Value::Array(items) => items.iter_mut().for_each(|value| insert_secrets(value, resolved)),
        _ => {}
    }
}
