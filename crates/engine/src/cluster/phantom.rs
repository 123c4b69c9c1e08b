//! Phantom nodes, which represent deployments.
//!
//! Services and barriers belong to a deployment and not to one of its machines, so its phantom node
//! runs them. Like every node, a phantom has a name. The name is derived from the deployment's id
//! and so never collides. Users need not read it: output uses [`called`] or [`in_full`], which
//! return the deployment's name for a phantom.

use std::borrow::Cow;

use uuid::Uuid;

use crate::ids::{DeploymentId, Fqdn};

/// The suffix of all phantom names. Machine names must not end in it.
const DOMAIN: &str = ".phantom.gantry.internal";

/// The name of a deployment's phantom node.
pub fn fqdn(deployment: DeploymentId) -> Fqdn {
    let text = format!("d-{}{DOMAIN}", deployment.0.simple());
    // Hexadecimal digits and fixed labels always form a valid domain name.
    Fqdn::parse(&text).unwrap_or_else(|_| unreachable!("{text} must be a domain name"))
}

/// The deployment that a phantom of this name represents; `None` if the node is a machine.
pub fn represented_deployment(fqdn: &Fqdn) -> Option<DeploymentId> {
    let digits = fqdn.as_str().strip_suffix(DOMAIN)?.strip_prefix("d-")?;
    Uuid::try_parse(digits).ok().map(DeploymentId)
}

/// Whether the name is reserved for phantoms, so that machines must not use it.
pub fn is_reserved(fqdn: &Fqdn) -> bool {
    fqdn.as_str().ends_with(DOMAIN)
}

/// The display name of a node where its domain is known: a machine's first label, or a phantom's
/// deployment.
pub fn short_name(fqdn: &Fqdn, name: impl FnOnce(DeploymentId) -> Option<String>) -> Cow<'_, str> {
    represented_deployment(fqdn).map_or_else(|| fqdn.short().into(), |id| whole(name(id)))
}

/// The display name of a node where its domain is not known: a machine's full name, or a phantom's
/// deployment.
pub fn long_name(fqdn: &Fqdn, name: impl FnOnce(DeploymentId) -> Option<String>) -> Cow<'_, str> {
    represented_deployment(fqdn).map_or_else(|| fqdn.as_str().into(), |id| whole(name(id)))
}

/// The prefix of a phantom's name in commands and files.
const PREFIX: &str = "phantom:";

/// The name of a node in commands and files: a machine's full name, or `phantom:web` for the
/// phantom of the deployment web.
pub fn name(fqdn: &Fqdn, name: impl FnOnce(DeploymentId) -> Option<String>) -> Cow<'_, str> {
    let phantom =
        represented_deployment(fqdn).and_then(name).map(|name| command_name_of(&name).into());
    phantom.unwrap_or_else(|| fqdn.as_str().into())
}

/// The name of a deployment's phantom in commands and files.
pub fn command_name_of(deployment: &str) -> String {
    format!("{PREFIX}{deployment}")
}

/// The deployment's name in the name of a phantom; `None` for other names.
pub fn deployment_of(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)
}

fn whole(name: Option<String>) -> Cow<'static, str> {
    name.map_or("the deployment as a whole".into(), |name| format!("{name} as a whole").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phantom_display_name_is_its_deployment() {
        let web = DeploymentId(Uuid::from_u128(7));
        let (phantom, machine) = (fqdn(web), Fqdn::parse("n1.example.com").unwrap());
        let names = |id: DeploymentId| (id == web).then(|| "web".to_owned());
        assert_eq!(represented_deployment(&phantom), Some(web));
        assert_eq!(short_name(&phantom, names), "web as a whole");
        assert_eq!(long_name(&phantom, |_| None), "the deployment as a whole");
        assert_eq!(
            (name(&phantom, names), name(&machine, names)),
            ("phantom:web".into(), "n1.example.com".into())
        );
        assert_eq!((deployment_of("phantom:web"), deployment_of("n1")), (Some("web"), None));
        assert_eq!(
            (short_name(&machine, names), long_name(&machine, names)),
            ("n1".into(), "n1.example.com".into())
        );
    }

    #[test]
    fn similar_name_is_not_a_phantom() {
        for name in
            ["d-1.phantom.gantry.internal", "phantom.gantry.internal", "d-00.phantom.example.com"]
        {
            assert_eq!(represented_deployment(&Fqdn::parse(name).unwrap()), None, "{name}");
        }
        assert!(is_reserved(&Fqdn::parse("x.phantom.gantry.internal").unwrap()));
    }
}
