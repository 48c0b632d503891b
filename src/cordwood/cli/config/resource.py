"""The options of `config` commands that name a topic, a group or a broker."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.terminal.options import checked_name
from cordwood.model.failure import ExitCode, Failure

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigResource

    from cordwood.administration.connection import Connection

TopicOption = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="TOPIC", callback=checked_name, help="The topic whose settings are meant."),
]

BrokerOption = Annotated[
    int | None,
    typer.Option("--broker", metavar="ID", help="The broker whose settings are meant. Default: the only broker."),
]


GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group", "-g", metavar="GROUP", callback=checked_name, help="The consumer group whose settings are meant."
    ),
]


def named_resource(
    connection: "Connection", topic: str | None, group: str | None, broker: int | None
) -> "ConfigResource":
    """The topic, the group or the broker that the options name; without an option, the only broker."""
    from cordwood.administration.brokers import brokers_that_take_part
    from cordwood.administration.config.changes import broker_resource, group_resource, topic_resource

    if sum(given is not None for given in (topic, group, broker)) > 1:
        raise one_resource_only()
    if topic is not None:
        return topic_resource(topic)
    if group is not None:
        return group_resource(group)
    brokers = brokers_that_take_part(connection)
    if broker is None:
        if len(brokers) != 1:
            known = ", ".join(str(known) for known in sorted(brokers))
            raise Failure(
                "USAGE", f"which of the brokers {known}?", "give --broker, --group or --topic", ExitCode.USAGE
            )
        broker = next(iter(brokers))
    elif broker not in brokers:
        known = ", ".join(str(known) for known in sorted(brokers))
        raise Failure(
            "BROKER_NOT_AVAILABLE", f"there is no broker {broker}", f"known brokers: {known}", ExitCode.NOT_FOUND
        )
    return broker_resource(str(broker))


def one_resource_only() -> Failure:
    names = "--topic, --group, --broker and --all-brokers"
    return Failure("USAGE", f"{names} exclude each other", "give one of them", ExitCode.USAGE)
