"""`cordwood acl explain`."""

from typing import Annotated

import typer

from cordwood.cli.acl.named import Principal, operation_of, principal_of
from cordwood.cli.acl.selecting import ByCluster, selected
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds, checked_name, checked_names
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.operations import Operation, ResourceKind

_HERE = "127.0.0.1"

OneTopic = Annotated[
    str | None,
    typer.Option("--topic", metavar="TOPIC", callback=checked_name, help="The topic.", show_default=False),
]
OneGroup = Annotated[
    str | None,
    typer.Option("--group", metavar="GROUP", callback=checked_name, help="The group.", show_default=False),
]
OneTransactionalId = Annotated[
    str | None,
    typer.Option(
        "--transactional-id", metavar="ID", callback=checked_name, help="The transactional id.", show_default=False
    ),
]

MemberOf = Annotated[
    list[str] | None,
    typer.Option(
        "--member-of",
        metavar="NAME",
        callback=checked_names,
        help="A group that the principal's token names (docs/security/oauth.md).",
    ),
]


def explain_right(
    principal: Principal,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="Read, Write, ...", show_default=False)],
    topic: OneTopic = None,
    group: OneGroup = None,
    transactional_id: OneTransactionalId = None,
    cluster: ByCluster = False,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address from which the principal comes.")
    ] = _HERE,
    member_of: MemberOf = None,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Say whether a principal may do something, and which rule decides.

    `docs/rights.md` has the right that each request needs.
    """
    from cordwood.administration.access.acls import as_json as rule_as_json
    from cordwood.administration.access.acls import explain
    from cordwood.cli.terminal.output import facts, print_json, say

    who, what = principal_of(principal), operation_of(operation)
    asked = selected(None, topic, group, transactional_id, None, None, cluster=cluster, denials=False, covering=True)
    if asked.kind is None or asked.name is None:
        raise Failure("USAGE", "a resource is needed", "give --topic, --group, ...", ExitCode.USAGE)
    kind, name = asked.kind, asked.name
    if what is Operation.ALL or what not in kind.operations:
        able = ", ".join(map(str, kind.operations))
        raise Failure("USAGE", f"nobody asks for {what} of a {kind}", f"there are {able}", ExitCode.USAGE)
    groups = tuple(f"Group:{each}" for each in member_of or ())
    found = explain(connect(bootstrap_servers, timeout_s, client_config), who, groups, host, what, kind, name)
    if as_json:
        rule = None if found.rule is None else rule_as_json(found.rule)
        print_json({"allowed": found.allowed, "why": found.why, "rule": rule})
        return
    resource = "the cluster" if kind is ResourceKind.CLUSTER else f"the {kind} '{name}'"
    say(f"{who} at {host} {'may' if found.allowed else 'may not'}: {what} of {resource}")
    facts([("why", found.why), *([] if found.rule is None else [("rule", str(found.rule))])])
