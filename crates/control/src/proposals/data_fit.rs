//! Checks that data fits its role before an edit is accepted.
//!
//! Forms apply the same rule during input ([`engine::data::fit`]). Lint checks the whole change
//! again, because data that fits one version of a role need not fit the next version.

use api::Problem;
use api::problem::Finding;
use engine::Hash;
use engine::catalog::Role;
use engine::cluster::NoderoleKey;
use engine::data::fit::{Expected, layer_errors};
use engine::data::{OwnData, layers};
use engine::ids::{DeploymentId, NodeId, RoleName, StepId};
use engine::plan::{Edit, Effects, NumberedEdit, edit};
use serde_json::Value;
use store::proposals::EditRow;

use crate::Control;
use crate::compute::ComputeLimit;
use crate::current::CurrentState;
use crate::proposals::change::{counting, plan_on_pool};

/// Maximum number of findings in one response.
const NAMED: usize = 50;

impl Control {
    /// Refuses edits whose data does not fit the role.
    pub(crate) async fn check_edit_data(
        &self,
        compute: &ComputeLimit,
        present: &CurrentState,
        rows: &[EditRow],
        edits: &[Edit],
    ) -> Result<(), Problem> {
        if !edits.iter().any(|edit| {
            matches!(
                edit,
                Edit::SetRoleData(edit::SetRoleData { .. })
                    | Edit::SetNoderoleData(edit::SetNoderoleData { .. })
            )
        }) {
            return Ok(());
        }
        let first = rows.last().map_or(1, |row| row.edit.seq + 1);
        let mut all = counting(rows);
        all.extend(
            (first..).zip(edits.iter().cloned()).map(|(seq, edit)| NumberedEdit { seq, edit }),
        );
        let planned = plan_on_pool(compute, present, all).await?;
        let state = PlannedState { present, effects: &planned.effects };
        let found: Vec<Finding> = edits
            .iter()
            .enumerate()
            .flat_map(|(n, edit)| state.findings(n, edit))
            .take(NAMED)
            .collect();
        let Some(first_finding) = found.first() else { return Ok(()) };
        let detail = format!(
            "Value {} {}. Use data that matches the role's schema. See GET /api/v1/roles/NAME.",
            first_finding.at, first_finding.detail
        );
        let mut problem = Problem::new(
            422,
            "schema_mismatch",
            "The data does not match the role's schema",
            detail,
        );
        problem.errors = found;
        Err(problem)
    }
}

/// The desired state with the edits applied.
struct PlannedState<'a> {
    present: &'a CurrentState,
    effects: &'a Effects,
}

impl PlannedState<'_> {
    /// Findings with JSON pointers into the request body.
    fn findings(&self, n: usize, edit: &Edit) -> Vec<Finding> {
        let found = match edit {
            Edit::SetRoleData(edit::SetRoleData { deployment, role, data }) => self
                .role_in(*deployment, role)
                .map(|role| schema_errors(data, &role.template, role, false)),
            Edit::SetNoderoleData(edit::SetNoderoleData { node, noderole, data }) => {
                self.noderole(*node, noderole).map(|(role, deployment)| {
                    schema_errors(data, &self.below(*node, noderole, role, deployment), role, true)
                })
            }
            _ => None,
        };
        let finding = |(path, detail): (String, String)| Finding {
            at: format!("/edits/{n}/data{path}"),
            detail,
        };
        found.unwrap_or_default().into_iter().map(finding).collect()
    }

    /// `None` if the edit cannot take effect; other checks report that.
    fn role(&self, content: Hash) -> Option<&Role> {
        self.present.catalog.role(content).ok().map(AsRef::as_ref)
    }

    fn role_in(&self, deployment: DeploymentId, role: &RoleName) -> Option<&Role> {
        let added = self
            .effects
            .roles
            .iter()
            .rfind(|new| new.deployment == deployment && new.role == *role);
        let known =
            self.present.blueprint.deployments.get(&deployment).and_then(|d| d.doc.roles.get(role));
        self.role(added.map(|new| new.content).or(known.map(|known| known.role))?)
    }

    fn noderole(&self, node: NodeId, noderole: &NoderoleKey) -> Option<(&Role, DeploymentId)> {
        let bound = self
            .effects
            .bound
            .iter()
            .find(|bound| bound.node == node && bound.noderole == *noderole);
        let known = self
            .present
            .blueprint
            .noderole(node, noderole)
            .map(|(_, known)| (known.role, known.deployment));
        let (content, deployment) = bound.map(|bound| (bound.role, bound.deployment)).or(known)?;
        Some((self.role(content)?, deployment))
    }

    fn below(
        &self,
        node: NodeId,
        noderole: &NoderoleKey,
        role: &Role,
        deployment: DeploymentId,
    ) -> Value {
        let set = self
            .effects
            .role_data
            .iter()
            .rfind(|set| set.deployment == deployment && set.role == noderole.role);
        let known = self
            .present
            .blueprint
            .deployments
            .get(&deployment)
            .and_then(|d| d.doc.roles.get(&noderole.role));
        let of_role =
            set.map(|set| &set.data).or(known.map(|known| &known.data)).unwrap_or(&Value::Null);
        let below = OwnData { template: &role.template, deployment_role: of_role, ..OwnData::NONE };
        let step = StepId::run_of(noderole.id(node));
        layers(step, below, None).map(|layered| layered.value).unwrap_or_default()
    }
}

fn schema_errors(data: &Value, below: &Value, role: &Role, is_last: bool) -> Vec<(String, String)> {
    let attribs: Vec<(String, &str, &Value)> = role
        .attribs
        .iter()
        .filter_map(|attrib| {
            Some((
                crate::catalog::roles::pointer(&attrib.map),
                attrib.name.as_str(),
                attrib.schema.as_ref()?,
            ))
        })
        .collect();
    let expected = attribs.iter().map(|(path, name, schema)| Expected { name, path, schema });
    let found = layer_errors(data, below, expected, is_last).unwrap_or_default();
    found.into_iter().map(|error| (error.path, error.problem)).collect()
}
