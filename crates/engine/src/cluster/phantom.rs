//! Phantoms: nodes that stand for deployments.
//!
//! What belongs to a deployment and to none of its machines (services, barriers) is carried by a node that is no machine. Like every
//! node it has a name, which is derived from the deployment's id, so that it never collides. Nobody should have to read that name:
//! wherever people are told of a node, it is by [`called`] or [`in_full`], and a phantom is called after its deployment there.

use std::borrow::Cow;

use uuid::Uuid;

use crate::ids::{DeploymentId, Fqdn};

/// What all phantoms' names end in, and no machine's.
const DOMAIN: &str = ".phantom.gantry.internal";

/// A phantom's name.
pub fn fqdn(deployment: DeploymentId) -> Fqdn {
    let text = format!("d-{}{DOMAIN}", deployment.0.simple());
    // Hexadecimal digits and fixed labels: always a domain name.
    Fqdn::parse(&text).unwrap_or_else(|_| unreachable!("{text} is a domain name"))
}

/// The deployment that a node of this name stands for; None: it is a machine.
pub fn stands_for(fqdn: &Fqdn) -> Option<DeploymentId> {
    let digits = fqdn.as_str().strip_suffix(DOMAIN)?.strip_prefix("d-")?;
    Uuid::try_parse(digits).ok().map(DeploymentId)
}

/// Whether names of machines must stay away from this one.
pub fn is_reserved(fqdn: &Fqdn) -> bool {
    fqdn.as_str().ends_with(DOMAIN)
}

/// What people call a node where its domain is known: a machine by its first label, a phantom after its deployment.
pub fn called(fqdn: &Fqdn, name: impl FnOnce(DeploymentId) -> Option<String>) -> Cow<'_, str> {
    stands_for(fqdn).map_or_else(|| fqdn.short().into(), |id| whole(name(id)))
}

/// The same where it is not known: a machine by its whole name.
pub fn in_full(fqdn: &Fqdn, name: impl FnOnce(DeploymentId) -> Option<String>) -> Cow<'_, str> {
    stands_for(fqdn).map_or_else(|| fqdn.as_str().into(), |id| whole(name(id)))
}

fn whole(name: Option<String>) -> Cow<'static, str> {
    name.map_or("the deployment as a whole".into(), |name| format!("{name} as a whole").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phantom_is_called_after_its_deployment_and_a_machine_by_its_name() {
        let web = DeploymentId(Uuid::from_u128(7));
        let (phantom, machine) = (fqdn(web), Fqdn::parse("n1.example.com").unwrap());
        let names = |id: DeploymentId| (id == web).then(|| "web".to_owned());
        assert_eq!(stands_for(&phantom), Some(web));
        assert_eq!(called(&phantom, names), "web as a whole");
        assert_eq!(in_full(&phantom, |_| None), "the deployment as a whole");
        assert_eq!(
            (called(&machine, names), in_full(&machine, names)),
            ("n1".into(), "n1.example.com".into())
        );
    }

    #[test]
    fn what_only_looks_like_one_is_none() {
        for name in
            ["d-1.phantom.gantry.internal", "phantom.gantry.internal", "d-00.phantom.example.com"]
        {
            assert_eq!(stands_for(&Fqdn::parse(name).unwrap()), None, "{name}");
        }
        assert!(is_reserved(&Fqdn::parse("x.phantom.gantry.internal").unwrap()));
    }
}
