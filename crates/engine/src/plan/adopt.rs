//! Another version of a barclamp: what is bound takes on its contents.
//!
//! A deployment that uses another version means it for what runs there, too. So the roles of every deployment that sees the pin get
//! the new contents, and their noderoles with them. What changed its content runs again, which the review shows.
//!
//! Then everything that is bound there waits for what binding it now would make it wait for: each noderole keeps the parents that still
//! serve it, loses those that nothing asks for any more, and gets those that are asked for beside. That goes for all of them, not only
//! those with another content: a version may bring a jig another client role, or an attribute another owner, and whoever waits for a role
//! that is implicit now needs one on its own node. Soft edges follow what the new contents say about order.
//!
//! A deployment that gives its own version up has the one from above again, and takes that on in the same way. Where nothing above has
//! the barclamp, it goes out of use there; nothing of it may be there then.
//!
//! A version that lacks a role which is in use is refused, and so is one that makes a cluster or a service of it or no such any more:
//! nothing that runs may lose its definition, the barrier that others wait for, or the node it stands on, on the quiet. The way there
//! is to unbind it, use the version, and bind it again.

use std::collections::BTreeSet;

use super::bind::Way;
use super::draft::Draft;
use super::refusal::EditError;
use crate::canonical::Hash;
use crate::cluster::{EdgeDoc, EdgeKind, NoderoleKey};
use crate::ids::{BarclampName, DeploymentId, NoderoleId, RoleName};

/// A version that is to be taken on.
struct New<'b> {
    /// The deployment that it changes for.
    at: DeploymentId,
    barclamp: &'b BarclampName,
    /// None: the barclamp goes out of use.
    version: Option<Hash>,
    /// The deployments that take it on.
    seeing: BTreeSet<DeploymentId>,
}

impl Draft<'_> {
    /// Lets everything below a deployment take on the version that it has of a barclamp now, its own or from above; what has one of its
    /// own below it keeps that.
    pub fn adopt(
        &mut self,
        at: DeploymentId,
        barclamp: &BarclampName,
        edit: u32,
    ) -> Result<(), EditError> {
        let new = New {
            at,
            barclamp,
            version: self.version_in_sight(at, barclamp),
            seeing: self.seeing(at, barclamp),
        };
        for deployment in &new.seeing {
            for (role, content) in self.outdated_roles(*deployment, &new)? {
                self.deployment_mut(*deployment)?.roles.insert(role, content);
            }
        }
        let outdated = self.outdated_noderoles(&new)?;
        for (_, id, content) in &outdated {
            self.repin(*id, *content)?;
        }
        let anew: BTreeSet<NoderoleId> = outdated.into_iter().map(|(_, id, _)| id).collect();
        let touched = self.touched_by(&new.seeing, &anew);
        for (_, id) in &touched {
            self.wire_anew(*id, anew.contains(id), edit)?;
        }
        for (_, id) in &touched {
            self.follow_all(*id)?;
        }
        Ok(())
    }

    /// What may have to wait for something else, by rank: all that is bound where the version is seen, and from elsewhere who waits for
    /// one that answers to other names now, or stands beside one that precedes it now.
    fn touched_by(
        &self,
        seeing: &BTreeSet<DeploymentId>,
        anew: &BTreeSet<NoderoleId>,
    ) -> BTreeSet<(u32, NoderoleId)> {
        let mut touched = BTreeSet::new();
        for (node, carrier) in self.nodes() {
            let seen = carrier
                .noderoles
                .iter()
                .filter(|(_, noderole)| seeing.contains(&noderole.deployment));
            touched.extend(seen.map(|(key, noderole)| (noderole.rank, key.id(node))));
        }
        let beside = |id: NoderoleId| {
            let node = self.noderole(id).map(|(node, _, _)| node);
            let later = self.role_of(id).into_iter().flat_map(|role| &role.preceeds);
            later.filter_map(move |later| Some(NoderoleKey::first(later.clone()).id(node?)))
        };
        let children = anew.iter().flat_map(|id| self.children(*id)).map(|(child, _)| child);
        let elsewhere = children.chain(anew.iter().flat_map(|id| beside(*id)));
        touched.extend(elsewhere.filter_map(|id| Some((self.noderole(id)?.2.rank, id))));
        touched
    }

    /// A deployment and those below it that have no version of the barclamp of their own, nor one from between.
    fn seeing(&self, at: DeploymentId, barclamp: &BarclampName) -> BTreeSet<DeploymentId> {
        let stops = |id: &DeploymentId| {
            *id == at
                || self.deployment(*id).is_ok_and(|found| found.barclamps.contains_key(barclamp))
        };
        let nearest = |id: DeploymentId| self.chain(id).into_iter().find(stops);
        self.deployments().map(|(id, _)| id).filter(|id| nearest(*id) == Some(at)).collect()
    }

    /// The content that the new version has for a role's older one; none if it is no other, or another barclamp's.
    fn newer(
        &self,
        deployment: DeploymentId,
        new: &New<'_>,
        content: Hash,
    ) -> Result<Option<Hash>, EditError> {
        let New { at, barclamp, version, .. } = new;
        let was = self.catalog.role(content)?;
        if was.barclamp != **barclamp || was.gathers.is_some() {
            return Ok(None);
        }
        let out_of_use = || EditError::OutOfUse {
            barclamp: (*barclamp).clone(),
            at: self.deployment_name(*at),
            deployment: self.deployment_name(deployment),
            role: was.name.clone(),
        };
        let new = self.catalog.barclamp(version.ok_or_else(out_of_use)?)?;
        let refused = |how| EditError::VersionUnfit {
            barclamp: (*barclamp).clone(),
            version: new.version.clone(),
            role: was.name.clone(),
            deployment: self.deployment_name(deployment),
            how,
        };
        let hash = *new.roles.get(&was.name).ok_or_else(|| refused("lacks"))?;
        let is = &self.catalog.role(hash)?.flags;
        if is.cluster != was.flags.cluster {
            return Err(refused("changes whether its noderoles act as one:"));
        }
        if is.service != was.flags.service {
            return Err(refused(
                "changes whether it stands on a node or for the deployment as a whole:",
            ));
        }
        Ok((hash != content).then_some(hash))
    }

    fn outdated_roles(
        &self,
        deployment: DeploymentId,
        new: &New<'_>,
    ) -> Result<Vec<(RoleName, Hash)>, EditError> {
        let mut outdated = Vec::new();
        for (role, content) in &self.deployment(deployment)?.roles {
            let newer = self.newer(deployment, new, *content)?;
            outdated.extend(newer.map(|newer| (role.clone(), newer)));
        }
        Ok(outdated)
    }

    fn outdated_noderoles(&self, new: &New<'_>) -> Result<Vec<(u32, NoderoleId, Hash)>, EditError> {
        let mut outdated = Vec::new();
        for (node, carrier) in self.nodes() {
            for (key, noderole) in
                carrier.noderoles.iter().filter(|(_, n)| new.seeing.contains(&n.deployment))
            {
                let newer = self.newer(noderole.deployment, new, noderole.role)?;
                outdated.extend(newer.map(|newer| (noderole.rank, key.id(node), newer)));
            }
        }
        outdated.sort_by_key(|(rank, id, _)| (*rank, *id));
        Ok(outdated)
    }

    /// Gives a noderole the parents that its role asks for now: those that serve it stay, others are found or brought along.
    fn wire_anew(&mut self, id: NoderoleId, anew: bool, edit: u32) -> Result<(), EditError> {
        let catalog = self.catalog;
        let Some((node, key, noderole)) = self.noderole(id) else { return Ok(()) };
        let role = &**catalog.role(noderole.role)?;
        if role.gathers.is_some() {
            return Ok(());
        }
        let (deployment, old) = (noderole.deployment, noderole.parents.clone());
        let mut way = Way { deployment, edit, path: vec![key.role.clone()] };
        if anew {
            self.check_bindable(deployment, role)?;
            self.check_neighbours(node, role)?;
        }
        let stays = |edge: &&EdgeDoc| match edge.kind {
            EdgeKind::Hard => false,
            EdgeKind::OrderOnly => true,
            EdgeKind::Soft => self.is_ordered(edge.parent, id),
        };
        let mut parents: BTreeSet<EdgeDoc> = old.iter().filter(stays).copied().collect();
        for wanted in self.wanted(deployment, role)? {
            let parent = match self.kept(deployment, &old, &wanted)? {
                Some(parent) => parent,
                None => {
                    let found = self.parent(&mut way, node, role, &wanted)?;
                    self.as_parent(found)
                }
            };
            let known = old.iter().any(|edge| edge.parent == parent);
            if !known && self.waits_for(parent, id) {
                return Err(EditError::Circle {
                    child: self.in_words(id),
                    parent: self.in_words(parent),
                });
            }
            parents.retain(|edge| edge.parent != parent);
            parents.insert(EdgeDoc { parent, kind: EdgeKind::Hard });
        }
        // What came along meanwhile may precede it, and has linked itself.
        let new = self.noderole(id).map(|(_, _, n)| n.parents.clone()).unwrap_or_default();
        let linked = new
            .iter()
            .filter(|edge| !old.contains(edge) && parents.iter().all(|p| p.parent != edge.parent));
        parents.extend(linked.copied().collect::<Vec<_>>());
        if parents.iter().eq(&new) { Ok(()) } else { self.rewire(id, parents) }
    }

    /// The parent that a noderole has for a name and may keep. For an implicit role there is nothing to keep: it is the one on the
    /// same node, which binding finds first.
    fn kept(
        &self,
        deployment: DeploymentId,
        old: &[EdgeDoc],
        wanted: &RoleName,
    ) -> Result<Option<NoderoleId>, EditError> {
        if self.is_implicit(deployment, wanted)? {
            return Ok(None);
        }
        let mut hard =
            old.iter().filter(|edge| edge.kind == EdgeKind::Hard).map(|edge| edge.parent);
        Ok(hard.find(|parent| self.serves(*parent, wanted)))
    }
}
