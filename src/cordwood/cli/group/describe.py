"""`cordwood group describe`."""

from cordwood.cli.group.options import GroupName
from cordwood.cli.options import DEFAULT_BOOTSTRAP_SERVERS, DEFAULT_TIMEOUT_S, AsJson, BootstrapServers, TimeoutSeconds
from cordwood.cli.output import count_in_words, print_json, print_table, say


def describe_group(
    name: GroupName,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    timeout_s: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Show a group: its state, its members, and how far behind it is in every partition."""
    from cordwood.cli.connection import Connection
    from cordwood.cli.group.view import describe, positions

    connection = Connection(bootstrap_servers, timeout_s)
    group = describe(connection, name)
    found = positions(connection, group)
    if as_json:
        print_json(
            {
                "name": group.name,
                "state": group.state,
                "protocol": group.protocol,
                "assignor": group.assignor,
                "members": [
                    {
                        "member_id": member.member_id,
                        "instance_id": member.instance_id,
                        "client_id": member.client_id,
                        "host": member.host,
                        "partitions": [{"topic": topic, "partition": index} for topic, index in member.partitions],
                    }
                    for member in group.members
                ],
                "positions": [{**each._asdict(), "lag": each.lag} for each in found],
            }
        )
        return
    say(f"{group.name}: {group.state}, {count_in_words(len(group.members), 'member')}, {group.protocol} protocol")
    if group.members:
        print_table(
            ["member", "client", "host", "partitions"],
            [(each.member_id, each.client_id, each.host, len(each.partitions)) for each in group.members],
        )
    if found:
        print_table(
            ["topic", "partition", "committed", "end", "lag", "member"],
            [(each.topic, each.partition, each.committed, each.end, each.lag, each.member_id) for each in found],
        )
