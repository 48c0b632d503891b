"""A group's lag, lag time, drain rate and time to data loss, from facts that any Kafka client can see.

`lag/client_forecast.py` judges each position by what a client sees of the log.
"""

import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from cordwood.administration.group.view import GroupView, PositionView, describe, positions
from cordwood.lag.client_forecast import ClientForecasts, LogFacts, Place
from cordwood.lag.data_loss import RULING_SETTINGS, RetentionRules
from cordwood.lag.position import PositionLag, Standing
from cordwood.model.quantities import duration_in_words
from cordwood.model.settings.topic_settings import resolve

if TYPE_CHECKING:
    from cordwood.administration.connection import Connection

READING_S = 3.0
MAX_READ_PARTITIONS = 256
"""The most first unread records that one look reads, for their timestamps: more would make a look take long."""


class GroupLook(NamedTuple):
    """A group at one moment."""

    group: GroupView
    rows: list["LagRow"]


class LagRow(NamedTuple):
    position: PositionView
    lag: PositionLag | None
    """None if the topic is gone."""
    foreseen: bool
    """True if the time to data loss is known. If it is known and None, no data will be lost."""

    @property
    def loss_in_words(self) -> str:
        """The time to data loss: `never`, `in 3.5 h`, `is due`, `unknown`; records that are lost already come first."""
        lag = self.lag
        if lag is None:
            return "topic is gone"
        if lag.standing is Standing.NEVER_COMMITTED:
            return "never committed"
        if lag.standing is Standing.AHEAD:
            return "position after the end"
        if not self.foreseen:
            words = "unknown"
        elif lag.time_to_data_loss_ms is None:
            words = "never"
        elif lag.time_to_data_loss_ms < 1:
            words = "is due"
        else:
            words = f"in {duration_in_words(lag.time_to_data_loss_ms)}"
        return f"{lag.lost_records} lost, more: {words}" if lag.lost_records else words

    def as_json(self) -> dict[str, Any]:
        lag = self.lag
        loss_ms = None if lag is None else lag.time_to_data_loss_ms
        return {
            **self.position._asdict(),
            "lag": self.position.lag if lag is None else lag.lag_records,
            "standing": None if lag is None else lag.standing.value,
            "lost": 0 if lag is None else lag.lost_records,
            "lag_s": None if lag is None or lag.lag_ms is None else lag.lag_ms / 1000,
            "drain_per_s": None if lag is None else lag.drain_per_s,
            "time_to_data_loss_s": None if loss_ms is None or not self.foreseen else loss_ms / 1000,
            "loss_is_foreseen": self.foreseen and loss_ms is not None,
        }


class LagReader:
    """Looks at one group again and again. Rates come from all looks so far."""

    def __init__(self, connection: "Connection", name: str) -> None:
        self._connection = connection
        self._name = name
        self._rules: dict[str, RetentionRules] = {}
        self._forecasts = ClientForecasts()
        self._timestamps: dict[tuple[str, int, int], int] = {}

    def look(self) -> GroupLook:
        group = describe(self._connection, self._name)
        found = positions(self._connection, group)
        now_ms = int(time.time() * 1000)
        facts: dict[Place, LogFacts] = {}
        for topic in sorted({each.topic for each in found if each.end is not None}):
            partitions = [each.partition for each in found if each.topic == topic]
            facts.update(((topic, index), known) for index, known in self._facts(topic, partitions).items())
        unread = [
            (*place, max(each.committed, known.start))
            for each in found
            if each.committed is not None
            and (known := facts.get(place := (each.topic, each.partition))) is not None
            and max(each.committed, known.start) < known.end
        ]
        self._read_timestamps(unread)
        return GroupLook(group, [self._row(each, facts.get((each.topic, each.partition)), now_ms) for each in found])

    def _facts(self, topic: str, partitions: list[int]) -> dict[int, LogFacts]:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        from cordwood.administration.topic.view import sizes_of

        connection = self._connection
        # Settings are read on every look: a watch may run for days, and an operator who sees a loss coming raises the
        # retention.
        self._rules[topic] = self._retention_rules(topic)
        ends = connection.known_offsets(topic, partitions, OffsetSpec.latest())
        partitions = list(ends)
        if not partitions:
            return {}
        starts = connection.offsets(topic, partitions, OffsetSpec.earliest())
        asked = {TopicPartition(topic, index): OffsetSpec.max_timestamp() for index in partitions}
        newest = connection.ask_all(lambda admin: admin.list_offsets(asked))
        newest_ms = {partition.partition: answer.timestamp for partition, answer in newest.items()}
        sizes = sizes_of(connection, topic)
        return {index: LogFacts(starts[index], ends[index], sizes.get(index), newest_ms[index]) for index in partitions}

    def _retention_rules(self, topic: str) -> RetentionRules:
        from confluent_kafka.admin import ConfigResource

        from cordwood.administration.topic.view import settings_of

        found = settings_of(self._connection, ConfigResource(ConfigResource.Type.TOPIC, topic))
        texts = {name: found[name].value for name in RULING_SETTINGS if name in found}
        return RetentionRules.of(resolve({name: text for name, text in texts.items() if text is not None}, {}))

    def _read_timestamps(self, unread: list[tuple[str, int, int]]) -> None:
        """Reads the timestamps of these first unread records, except those known from an earlier look."""
        from confluent_kafka import KafkaError, TopicPartition

        known = self._timestamps
        self._timestamps = {place: known[place] for place in unread if place in known}
        missing = [place for place in unread if place not in known][:MAX_READ_PARTITIONS]
        if not missing:
            return
        consumer = self._connection.consumer(
            {
                # librdkafka reads only with a group id. Nothing joins or commits under this one.
                "group.id": f"cordwood-cli-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                # Retention also deletes records that an open transaction holds back.
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                "fetch.message.max.bytes": 1024,
                "queued.min.messages": 1,
            }
        )
        try:
            consumer.assign([TopicPartition(*place) for place in missing])
            wanted = {place[:2]: place for place in missing}
            deadline_s = time.monotonic() + READING_S
            while wanted and (left_s := deadline_s - time.monotonic()) > 0:
                message = consumer.poll(min(left_s, 0.5))
                if message is None:
                    continue
                problem = message.error()
                if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                    continue
                topic, partition = message.topic(), message.partition()
                assert topic is not None
                assert partition is not None
                place = wanted.pop((topic, partition), None)
                if place is not None and problem is None:
                    self._timestamps[place] = message.timestamp()[1]
                    consumer.pause([TopicPartition(*place[:2])])
        finally:
            consumer.close()

    def _row(self, position: PositionView, facts: LogFacts | None, now_ms: int) -> LagRow:
        if facts is None:
            return LagRow(position, None, False)
        place = (position.topic, position.partition)
        first_unread = facts.start if position.committed is None else max(position.committed, facts.start)
        lag, foreseen = self._forecasts.judge(
            place,
            position.committed,
            facts,
            self._rules[position.topic],
            first_unread_ms=self._timestamps.get((*place, first_unread), -1),
            now_ms=now_ms,
        )
        return LagRow(position, lag, foreseen)
