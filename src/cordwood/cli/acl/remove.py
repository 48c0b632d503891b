"""`cordwood acl remove`."""

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
from cordwood.cli.terminal.asking import DRY_RUN, DryRun, Yes, as_dry, confirm
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds
from cordwood.model.acls import AclFilter
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words


def remove_rules(
    principal: ByPrincipal = None,
    topic: ByTopic = None,
    group: ByGroup = None,
    transactional_id: ByTransactionalId = None,
    cluster: ByCluster = False,
    operation: ByOperation = None,
    host: ByHost = None,
    denials: Denials = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Remove the rules that all given options select. The name is that of the rule: a rule for a prefix is selected by
    the prefix."""
    from cordwood.administration.access.acls import as_json as rule_as_json
    from cordwood.administration.access.acls import remove_rules as remove
    from cordwood.administration.access.acls import rules
    from cordwood.cli.terminal.output import print_json, remark, say

    asked = selected(
        principal, topic, group, transactional_id, operation, host, cluster=cluster, denials=denials, covering=False
    )
    if asked == AclFilter():
        raise Failure(
            "USAGE",
            "all rules would be removed",
            "say which: --principal, --topic, ...; `cordwood acl list` shows the rules",
            ExitCode.USAGE,
        )
    connection = connect(bootstrap_servers, timeout_s, client_config)
    found = rules(connection, asked)
    if not found:
        raise Failure(
            "RESOURCE_NOT_FOUND", "there is no such rule", "`cordwood acl list` shows the rules", ExitCode.NOT_FOUND
        )
    if not as_json:
        for acl in found:
            say(str(acl))
    if not dry_run:
        confirm("removing rules", f"Remove {count_in_words(len(found), 'rule')}?", yes=yes)
        remove(connection, found)
    if as_json:
        print_json({"removed": [] if dry_run else [rule_as_json(acl) for acl in found], **as_dry(dry_run)})
    elif dry_run:
        remark(DRY_RUN)
    else:
        remark(f"{count_in_words(len(found), 'rule')} removed")
