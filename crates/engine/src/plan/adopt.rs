//! Another version of a barclamp: what is bound takes on its contents.
//!
//! A deployment that uses another version means it for what runs there, too. So the roles of every deployment that sees the pin get
//! the new contents, and their noderoles with them: each keeps the parents that still serve it, and gets those that the new content
//! asks for beside. What changed its content runs again, which the review shows.
//!
//! A version that lacks a role which is in use, or makes a cluster of it or no cluster any more, is refused: nothing that runs may
//! lose its definition, or the barrier that others wait for, on the quiet.

use std::collections::BTreeSet;

use super::bind::Way;
use super::draft::Draft;
use super::refusal::EditError;
use crate::canonical::Hash;
use crate::cluster::{EdgeDoc, EdgeKind};
use crate::ids::{BarclampName, DeploymentId, NoderoleId, RoleName};

impl Draft<'_> {
    /// Lets everything below a deployment's pin take on this version. The pin is there already.
    pub fn adopt(
        &mut self,
        at: DeploymentId,
        barclamp: &BarclampName,
        version: Hash,
        edit: u32,
    ) -> Result<(), EditError> {
        for deployment in self.seeing(at, barclamp)? {
            for (role, content) in self.outdated_roles(deployment, barclamp, version)? {
                self.deployment_mut(deployment)?.roles.insert(role, content);
            }
        }
        let outdated = self.outdated_noderoles(at, barclamp, version)?;
        for (_, id, content) in &outdated {
            self.repin(*id, *content)?;
        }
        // Those that wait for one that answers to other names now may have to look elsewhere.
        let children = outdated.iter().flat_map(|(_, id, _)| self.children(*id)).map(|(child, _)| child);
        let mut touched: BTreeSet<(u32, NoderoleId)> =
            children.filter_map(|id| Some((self.noderole(id)?.2.rank, id))).collect();
        touched.extend(outdated.iter().map(|(rank, id, _)| (*rank, *id)));
        for (_, id) in touched {
            self.wire_anew(id, edit)?;
        }
        Ok(())
    }

    /// The deployments for which the nearest pin of the barclamp is that one's.
    fn seeing(&self, at: DeploymentId, barclamp: &BarclampName) -> Result<BTreeSet<DeploymentId>, EditError> {
        let pins = |id: &DeploymentId| self.deployment(*id).is_ok_and(|d| d.barclamps.contains_key(barclamp));
        let nearest = |id: DeploymentId| self.chain(id).into_iter().find(pins);
        Ok(self.deployments().map(|(id, _)| id).filter(|id| nearest(*id) == Some(at)).collect())
    }

    /// The content that this version has for a role's older one; none if it is no other, or another barclamp's.
    fn newer(
        &self,
        deployment: DeploymentId,
        barclamp: &BarclampName,
        version: Hash,
        content: Hash,
    ) -> Result<Option<Hash>, EditError> {
        let was = self.catalog.role(content)?;
        if was.barclamp != *barclamp || was.gathers.is_some() {
            return Ok(None);
        }
        let new = self.catalog.barclamp(version)?;
        let refused = |how| EditError::VersionUnfit {
            barclamp: barclamp.clone(),
            version: new.version.clone(),
            role: was.name.clone(),
            deployment: self.deployment_name(deployment),
            how,
        };
        let hash = *new.roles.get(&was.name).ok_or_else(|| refused("lacks"))?;
        if self.catalog.role(hash)?.flags.cluster != was.flags.cluster {
            return Err(refused("changes whether its noderoles act as one:"));
        }
        Ok((hash != content).then_some(hash))
    }

    fn outdated_roles(
        &self,
        deployment: DeploymentId,
        barclamp: &BarclampName,
        version: Hash,
    ) -> Result<Vec<(RoleName, Hash)>, EditError> {
        let mut outdated = Vec::new();
        for (role, content) in &self.deployment(deployment)?.roles {
            let newer = self.newer(deployment, barclamp, version, *content)?;
            outdated.extend(newer.map(|newer| (role.clone(), newer)));
        }
        Ok(outdated)
    }

    fn outdated_noderoles(
        &self,
        at: DeploymentId,
        barclamp: &BarclampName,
        version: Hash,
    ) -> Result<Vec<(u32, NoderoleId, Hash)>, EditError> {
        let seeing = self.seeing(at, barclamp)?;
        let mut outdated = Vec::new();
        for (node, carrier) in self.nodes() {
            for (key, noderole) in carrier.noderoles.iter().filter(|(_, n)| seeing.contains(&n.deployment)) {
                let newer = self.newer(noderole.deployment, barclamp, version, noderole.role)?;
                outdated.extend(newer.map(|newer| (noderole.rank, key.id(node), newer)));
            }
        }
        outdated.sort_by_key(|(rank, id, _)| (*rank, *id));
        Ok(outdated)
    }

    /// Gives a noderole the parents that its role asks for now: those that serve it stay, others are found or brought along.
    fn wire_anew(&mut self, id: NoderoleId, edit: u32) -> Result<(), EditError> {
        let catalog = self.catalog;
        let Some((node, key, noderole)) = self.noderole(id) else { return Ok(()) };
        let role = &**catalog.role(noderole.role)?;
        if role.gathers.is_some() {
            return Ok(());
        }
        let (deployment, old) = (noderole.deployment, noderole.parents.clone());
        let mut way = Way { deployment, edit, path: vec![key.role.clone()] };
        self.check_bindable(deployment, role)?;
        self.check_neighbours(node, role)?;
        let hard = |edge: &&EdgeDoc| edge.kind == EdgeKind::Hard;
        let mut parents: BTreeSet<EdgeDoc> = old.iter().filter(|edge| edge.kind != EdgeKind::Hard).copied().collect();
        for wanted in self.wanted(deployment, role)? {
            let kept = old.iter().filter(hard).find(|edge| self.serves(edge.parent, &wanted)).map(|edge| edge.parent);
            let parent = match kept {
                Some(parent) => parent,
                None => {
                    let found = self.parent(&mut way, node, role, &wanted)?;
                    self.as_parent(found)
                }
            };
            let known = old.iter().any(|edge| edge.parent == parent);
            if !known && self.waits_for(parent, id) {
                return Err(EditError::Circle { child: self.in_words(id), parent: self.in_words(parent) });
            }
            parents.retain(|edge| edge.parent != parent);
            parents.insert(EdgeDoc { parent, kind: EdgeKind::Hard });
        }
        self.rewire(id, parents)
    }
}
