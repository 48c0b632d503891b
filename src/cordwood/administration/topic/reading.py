"""Consumers that read partitions as they are told, and the failures that such reading meets."""

import uuid
from typing import TYPE_CHECKING

from cordwood.model.failure import Failure

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

    from cordwood.administration.connection import Connection


def damaged(connection: "Connection", message: "Message") -> Failure:
    """The failure for damaged records: librdkafka found a wrong checksum, or the broker refuses the offsets."""
    from cordwood.administration.topic.view import damage_in

    error = message.error()
    topic, index, offset = message.topic(), message.partition(), message.offset()
    assert error is not None
    assert topic is not None
    assert offset is not None
    offsets = f"is damaged from offset {offset} on"
    going_on = "`cordwood inspect --verify` on a stopped broker finds all damage; --from OFFSET reads on behind it"
    for known in damage_in(connection, topic):
        if known.partition == index and known.first_offset <= offset <= known.last_offset:
            offsets = f"is damaged: offsets {known.first_offset} to {known.last_offset}"
            going_on = f"--partition {index} --from {known.last_offset + 1} reads on behind the damage"
    return Failure(
        "CORRUPT_MESSAGE",
        f"partition {index} of {topic} {offsets}; the bytes on the broker's disk are not those that were written "
        f"({error.str()})",
        f"nothing of that batch was printed; {going_on}",
    )


def open_consumer(connection: "Connection", group: str | None = None) -> "Consumer":
    """A consumer that joins no group, reads the partitions assigned to it and reports their ends."""
    return connection.consumer(
        {
            # librdkafka reads only with a group id. Nothing joins or commits under this one.
            "group.id": group or f"cordwood-cli-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
    )


def reads_on(error: "KafkaError") -> bool:
    """Whether a consumer of `open_consumer` reads on after an error: librdkafka tries again, or the user has no right
    to the group id that librdkafka insists on. Reading assigned partitions needs no group."""
    from confluent_kafka import KafkaError as Error

    passing = (Error._TRANSPORT, Error._ALL_BROKERS_DOWN, Error.GROUP_AUTHORIZATION_FAILED)
    return error.retriable() or error.code() in passing
