"""Which topic or broker a `config` command is about."""

from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.failure import ExitCode, Failure
from cordwood.cli.options import checked_name

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigResource

    from cordwood.cli.connection import Connection

TopicOption = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="TOPIC", callback=checked_name, help="The topic it is about."),
]

BrokerOption = Annotated[
    int | None,
    typer.Option("--broker", metavar="ID", help="The broker it is about; if there is only one, that one is meant."),
]


def named_resource(connection: "Connection", topic: str | None, broker: int | None) -> "ConfigResource":
    """The topic or the broker. Without either: the broker, if there is only one."""
    from cordwood.cli.config.changes import broker_resource, topic_resource

    if topic is not None and broker is not None:
        raise Failure("USAGE", "--topic and --broker exclude each other", "give one of them", ExitCode.USAGE)
    if topic is not None:
        return topic_resource(topic)
    brokers = connection.call(lambda: connection.admin().list_topics(timeout=connection.timeout_s)).brokers
    if broker is None:
        if len(brokers) != 1:
            known = ", ".join(str(known) for known in sorted(brokers))
            raise Failure("USAGE", f"which of the brokers {known}?", "give --broker or --topic", ExitCode.USAGE)
        broker = next(iter(brokers))
    elif broker not in brokers:
        known = ", ".join(str(known) for known in sorted(brokers))
        raise Failure("BROKER_NOT_AVAILABLE", f"there is no broker {broker}", f"there is {known}", ExitCode.NOT_FOUND)
    return broker_resource(str(broker))
