"""`cordwood acl list`."""

from typing import Annotated

import typer

from cordwood.cli.acl.selecting import (
    ByCluster,
    ByGroup,
    ByHost,
    ByOperation,
    ByPrincipal,
    ByTopic,
    ByTransactionalId,
    Denials,
    selected,
)
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds
from cordwood.cli.terminal.output import print_json, print_table, remark


def list_rules(
    principal: ByPrincipal = None,
    topic: ByTopic = None,
    group: ByGroup = None,
    transactional_id: ByTransactionalId = None,
    cluster: ByCluster = False,
    operation: ByOperation = None,
    host: ByHost = None,
    denials: Denials = False,
    exactly: Annotated[
        bool, typer.Option("--exactly", help="Leave out rules that cover the resource by a prefix or by `*`.")
    ] = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List the rules, or those that cover a resource."""
    from cordwood.administration.access.acls import as_json as rule_as_json
    from cordwood.administration.access.acls import rules

    asked = selected(
        principal,
        topic,
        group,
        transactional_id,
        operation,
        host,
        cluster=cluster,
        denials=denials,
        covering=not exactly,
    )
    if asked.name is None:
        asked = asked._replace(covering=False)
    found = rules(connect(bootstrap_servers, timeout_s, client_config), asked)
    if as_json:
        print_json([rule_as_json(acl) for acl in found])
    elif found:
        print_table(
            ["principal", "host", "permission", "operation", "resource", "pattern", "name"],
            [
                (acl.principal, acl.host, acl.permission, acl.operation, acl.kind, acl.pattern, acl.name)
                for acl in found
            ],
        )
    else:
        remark("No such rule: `cordwood acl add` adds one.")
