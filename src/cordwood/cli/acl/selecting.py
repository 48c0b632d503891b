"""The options that select rules, which `list` and `remove` share."""

from collections.abc import Sequence
from typing import Annotated

import typer

from cordwood.cli.acl.named import operation_of, principal_of
from cordwood.model.acls import THE_CLUSTER, AclFilter, Permission
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.operations import ResourceKind

ByPrincipal = Annotated[
    str | None,
    typer.Option("--principal", metavar="PRINCIPAL", help="Rules of User:alice, or just alice.", show_default=False),
]
ByTopic = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Rules of this topic.", show_default=False)
]
ByGroup = Annotated[
    str | None, typer.Option("--group", metavar="GROUP", help="Rules of this group.", show_default=False)
]
ByTransactionalId = Annotated[
    str | None,
    typer.Option("--transactional-id", metavar="ID", help="Rules of this transactional id.", show_default=False),
]
ByCluster = Annotated[bool, typer.Option("--cluster", help="Rules of the cluster itself.")]
ByOperation = Annotated[
    str | None, typer.Option("--operation", "-o", metavar="NAME", help="Rules about it.", show_default=False)
]
ByHost = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Rules of this address.", show_default=False)
]
Denials = Annotated[bool, typer.Option("--deny", help="Only rules that refuse.")]


def selected(
    principal: str | None,
    topic: str | None,
    group: str | None,
    transactional_id: str | None,
    operation: str | None,
    host: str | None,
    *,
    cluster: bool,
    denials: bool,
    covering: bool,
) -> AclFilter:
    """The filter that the options describe. Raises Failure if they name two resources."""
    named: Sequence[tuple[ResourceKind, str | None]] = (
        (ResourceKind.TOPIC, topic),
        (ResourceKind.GROUP, group),
        (ResourceKind.TRANSACTIONAL_ID, transactional_id),
        (ResourceKind.CLUSTER, THE_CLUSTER if cluster else None),
    )
    given = [(kind, name) for kind, name in named if name is not None]
    if len(given) > 1:
        raise Failure("USAGE", "the options name several resources", "give one of them", ExitCode.USAGE)
    kind, name = given[0] if given else (None, None)
    return AclFilter(
        kind,
        name,
        covering=covering,
        principal=None if principal is None else principal_of(principal),
        host=host,
        operation=None if operation is None else operation_of(operation),
        permission=Permission.DENY if denials else None,
    )
