"""Runs operations with the client that openapi.test.mjs generates. Prints the name of each."""

import importlib
import os
import sys
from datetime import datetime, timedelta, timezone
from uuid import UUID, uuid4

from gantry_client import AuthenticatedClient, models

client = AuthenticatedClient(base_url=sys.argv[1], token=os.environ["GANTRY_TOKEN"])


def run(tag, operation, *arguments, **parameters):
    """The parsed response of an operation."""
    module = importlib.import_module(f"gantry_client.api.{tag}.{operation}")
    result = module.sync(*arguments, client=client, **parameters)
    print(operation)
    return result


def expect(kind, value):
    assert isinstance(value, kind), f"{value!r} is not a {kind.__name__}"
    return value


# Reads: enumerations, times, pages.
me = run("people", "get_me")
assert not isinstance(me, models.Problem), me
assert me.person.kind is models.AccountKind.HUMAN, me
assert abs(datetime.now(timezone.utc) - me.person.created) < timedelta(hours=1), me
page = expect(models.DeploymentPage, run("deployments", "list_deployments", limit=1))
assert len(page.deployments) == 1 and page.next_, page
following = expect(models.DeploymentPage, run("deployments", "list_deployments", limit=1, after=page.next_))
assert following.deployments[0].name != page.deployments[0].name
by_name = run("deployments", "list_deployments", sort=models.ListDeploymentsSort.NAME_DESCENDING)
names = [deployment.name for deployment in expect(models.DeploymentPage, by_name).deployments]
assert names == sorted(names, reverse=True), names
expect(models.NodePage, run("nodes", "list_nodes"))
expect(models.RunPage, run("runs", "list_runs"))
expect(models.RolePage, run("roles", "list_roles"))

# A change: a deployment below system, and another edit of the same proposal.
proposed = run("deployments", "create_deployment", body=models.DeploymentRequest(name="generated"))
proposed = expect(models.ProposedDeployment, proposed)
system = next(deployment for deployment in names if deployment == "system")
parent = run("deployments", "get_deployment", system)
edit = models.EditCreateDeploymentInput(
    edit="create_deployment", id=uuid4(), phantom=uuid4(), name="second", parent=UUID(str(parent.id))
)
edited = run(
    "proposals",
    "edit_proposal",
    proposed.proposal,
    body=models.EditsInput(version=proposed.version, edits=[edit]),
)
edited = expect(models.ProposalVersion, edited)
proposal = run("proposals", "get_proposal", proposed.proposal)
assert proposal.version == edited.version and len(proposal.edits) == 2, proposal
undone = run("proposals", "undo_edit", proposed.proposal, if_match=f'"{edited.version}"')
redone = run("proposals", "redo_edit", proposed.proposal, if_match=f'"{expect(models.ProposalVersion, undone).version}"')
version = expect(models.ProposalVersion, redone).version
expect(models.Success, run("proposals", "discard_proposal", proposed.proposal, if_match=f'"{version}"'))

# An error.
problem = expect(models.Problem, run("deployments", "get_deployment", "nowhere"))
assert problem.code is models.KnownProblemCode.NOT_FOUND, problem
assert problem.type_ == "urn:gantry:problem:not_found", problem
