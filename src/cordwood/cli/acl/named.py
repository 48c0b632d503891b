"""How commands name principals, operations and resources."""

from collections.abc import Sequence
from typing import Annotated

import typer

from cordwood.cli.terminal.options import checked_name, checked_names
from cordwood.model.acls import EVERYTHING, THE_CLUSTER, Acl, InvalidAcl, Pattern, check
from cordwood.model.failure import ExitCode, Failure, near_names
from cordwood.model.operations import Operation, ResourceKind

Principal = Annotated[
    str,
    typer.Argument(
        metavar="PRINCIPAL", callback=checked_name, help="Who: User:alice, or just alice.", show_default=False
    ),
]
Host = Annotated[
    str, typer.Option("--host", metavar="ADDRESS", help="The address from which the principal comes; `*` is any.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", callback=checked_names, help="A topic; `*` is every topic."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="GROUP", callback=checked_names, help="A group; `*` is every group."),
]
TransactionalIds = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="ID", callback=checked_names, help="A transactional id."),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Resource = tuple[ResourceKind, str]


def principal_of(text: str) -> str:
    """The principal with its kind, which is User where none is given."""
    return text if ":" in text else f"User:{text}"


def operation_of(text: str) -> Operation:
    """The operation of this name, in any case. Raises Failure."""
    known = {str(each).lower(): each for each in Operation}
    found = known.get(text.replace("-", "").replace("_", "").lower())
    if found is None:
        names = [str(each) for each in Operation]
        hint = near_names(text, names) or f"there are {', '.join(names)}"
        raise Failure("USAGE", f"{text!r} is no operation", hint, ExitCode.USAGE)
    return found


def resources_of(
    topics: Sequence[str] | None,
    groups: Sequence[str] | None,
    transactional_ids: Sequence[str] | None,
    *,
    cluster: bool,
) -> list[Resource]:
    """The resources that the options name."""
    found = [
        (kind, name)
        for kind, names in (
            (ResourceKind.TOPIC, topics),
            (ResourceKind.GROUP, groups),
            (ResourceKind.TRANSACTIONAL_ID, transactional_ids),
        )
        for name in names or ()
    ]
    return [*found, (ResourceKind.CLUSTER, THE_CLUSTER)] if cluster else found


def pattern_of(name: str, *, prefixed: bool) -> tuple[Pattern, str]:
    return (Pattern.PREFIXED if prefixed and name != EVERYTHING else Pattern.LITERAL), name


def checked_rules(acls: Sequence[Acl]) -> list[Acl]:
    """The rules, each once. A rule that could never decide a request is a usage error."""
    for acl in acls:
        try:
            check(acl)
        except InvalidAcl as error:
            raise Failure("USAGE", str(error), "", ExitCode.USAGE) from error
    return list(dict.fromkeys(acls))
