"""`cordwood group list`."""

from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, AsJson, BootstrapServers, TimeoutSeconds
from cordwood.cli.output import print_json, print_table, remark


def list_groups(
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """List the consumer groups."""
    from cordwood.cli.connection import Connection

    connection = Connection(bootstrap_servers, timeout_s)
    listed = connection.ask(lambda admin: admin.list_consumer_groups(request_timeout=timeout_s))
    groups = [
        {"name": each.group_id, "state": each.state.name.lower(), "protocol": each.type.name.lower()}
        for each in sorted(listed.valid, key=lambda each: each.group_id)
    ]
    if as_json:
        print_json(groups)
    elif groups:
        rows = [(group["name"], group["state"], group["protocol"]) for group in groups]
        print_table(["group", "state", "protocol"], rows)
    else:
        remark("No groups yet: a consumer creates its group when it joins or commits.")
