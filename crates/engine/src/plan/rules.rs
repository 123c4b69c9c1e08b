//! The rules of binding that differ between OpenCrowbar's versions.

/// Rules that differ between OpenCrowbar's versions. The default is the latest version, with all
/// rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Roles that own wanted attributes become parents.
    pub wants_attribs_make_parents: bool,
    /// Service roles are bound to the phantom node of their deployment.
    pub service_roles_to_phantom: bool,
    /// `preceeds` adds soft edges.
    pub preceeds_soft_edges: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            wants_attribs_make_parents: true,
            service_roles_to_phantom: true,
            preceeds_soft_edges: true,
        }
    }
}
