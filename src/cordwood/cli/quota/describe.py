"""`cordwood quota describe`."""

from cordwood.cli.quota.named import Address, ClientId, User, value_in_words
from cordwood.cli.terminal.connecting import ClientConfig, Servers, connect
from cordwood.cli.terminal.options import DEFAULT_TIMEOUT_S, AsJson, TimeoutSeconds
from cordwood.cli.terminal.output import print_json, print_table, remark
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quotas import text_of

ANONYMOUS = "ANONYMOUS"


def describe_quota(
    user: User = None,
    client_id: ClientId = None,
    address: Address = None,
    bootstrap_servers: Servers = None,
    client_config: ClientConfig = None,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show which quotas hold for a client, by the user and the client id that it has; or for an address.

    Without `--user` the client is one that did not log in: ANONYMOUS.
    """
    from cordwood.administration.access.quotas import holding_at, holding_for, sharing_brokers

    if (address is None) is (user is None and client_id is None):
        raise Failure("USAGE", "which client?", "--user, --client-id or both; or --ip", ExitCode.USAGE)
    connection = connect(bootstrap_servers, timeout_s, client_config)
    if address is not None:
        held = holding_at(connection, address)
    else:
        held = holding_for(connection, user or ANONYMOUS, client_id or "")
    sharing = sharing_brokers(connection)
    if as_json:
        print_json({"quotas": [each.as_json() for each in held], "divided_by": sharing})
        return
    if not held:
        remark("No quota holds: nobody holds this client back.")
        return
    print_table(
        ["quota", "value", "set for", "shared by"],
        [(each.key, value_in_words(each.key, each.value), text_of(each.entity), each.sharers) for each in held],
    )
    remark(
        "Each broker grants this by itself."
        if sharing == 1
        else f"The {sharing} workers of a machine divide this: each of them grants one part in {sharing}."
    )
