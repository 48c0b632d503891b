"""Readers that assign partitions to themselves, with long polls, with and without sessions, in both isolation levels.

A reader goes on from poll to poll, and notices if records come twice or out of order. A reader in a rack reads from the
broker to which leaders send it, and now and then from any other.
"""

from typing import Any

from cordwood.cluster.metadata.image import TopicImage
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.records.batch import batches_in, crc_is_right
from cordwood.wire.apis import ApiKey
from simulation.world.broken import InvariantBroken
from simulation.world.exchange import Exchange
from simulation.world.stage import Client, Stage

SESSIONS_FROM = 7
EPOCHS_FROM = 9
LAST_FETCHED_EPOCH_FROM = 12
TOPIC_IDS_FROM = 13
EARLIEST = -2
ANY_REPLICA = 0.15
"""The probability that a reader in a rack reads from any broker."""

Place = tuple[TopicId, int]


class Position:
    """The position of a reader in one partition."""

    def __init__(self, topic: TopicImage, index: int) -> None:
        self.topic = topic
        self.index = index
        self.offset: int | None = None
        """The next offset; None: the reader has to ask for the log's start."""
        self.asking = False
        self.last_epoch = -1
        self.high_watermark = -1
        self.near: int | None = None
        """The follower to which the leader sent the reader."""


class Session:
    """An incremental fetch session as the client keeps it."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.session_id = 0
        self.epoch = 0
        self.told: dict[Place, int] = {}
        """The fetch offset that the broker knows, by partition."""


class Reader(Client):
    def __init__(self, stage: Stage, name: str, *, isolation_level: int, sessions: bool, rack: str = "") -> None:
        super().__init__(stage, name)
        self._rack = rack
        self._isolation_level = isolation_level
        self._sessions = sessions
        self._open_sessions: dict[int, Session] = {}
        """By broker."""
        self._positions: dict[Place, Position] = {}
        self._polling: set[int] = set()
        """Brokers that are polled now."""
        self.records_read = 0
        self.sent_near = 0

    def act(self) -> str | None:
        self._assign()
        unknown = [position for position in self._positions.values() if position.offset is None]
        if unknown and self.chance.random() < 0.5:
            return self._ask_for_start(self.chance.choice(unknown))
        max_wait_ms = self.chance.choice((0, 0, 20, 500, 3000))
        return self._poll(self._places_by_leader(), max_wait_ms)

    def finish(self) -> bool:
        """Reads on until every partition is read to its end."""
        self._assign()
        behind = False
        for position in self._positions.values():
            if position.offset is None:
                self._ask_for_start(position)
                behind = True
            else:
                partition = self.stage.leading(position.topic.name, position.index)
                behind = behind or partition is None or position.offset < partition.replica.high_watermark
        if behind:
            self._poll(self._places_by_leader(), max_wait_ms=0)
        return behind

    def _assign(self) -> None:
        """Assigns all partitions of all topics, as they come and go."""
        wanted = {
            (topic.topic_id, index): topic for topic in self.stage.topics() for index in range(len(topic.partitions))
        }
        for place in [place for place in self._positions if place not in wanted]:
            del self._positions[place]
        for place, topic in wanted.items():
            if place not in self._positions:
                self._positions[place] = Position(topic, place[1])

    # The starts of logs

    def _ask_for_start(self, position: Position) -> str | None:
        if position.asking:
            return None
        position.asking = True
        asked = {"partition_index": position.index, "current_leader_epoch": -1, "timestamp": EARLIEST}
        values = {
            "replica_id": -1,
            "isolation_level": self._isolation_level,
            "topics": [{"name": position.topic.name, "partitions": [asked]}],
        }
        leader = self.routes.leader(position.topic.name, position.index)
        self.connection_to(leader).request(
            ApiKey.LIST_OFFSETS,
            self.stage.version(ApiKey.LIST_OFFSETS),
            values,
            lambda exchange: self._got_start(exchange, position),
        )
        return f"asks where {position.topic.name}-{position.index} begins"

    def _got_start(self, exchange: Exchange, position: Position) -> None:
        position.asking = False
        if not self.routes.failed(exchange):
            found = exchange.answer.topics[0].partitions[0]
            if found.error_code == 0:
                position.offset, position.last_epoch = found.offset, -1
            elif found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.routes.learn()

    # Polls

    def _places_by_leader(self) -> dict[int, dict[Place, int]]:
        """The next offsets of all partitions whose start is known."""
        places: dict[int, dict[Place, int]] = {}
        for place, each in self._positions.items():
            if each.offset is not None:
                places.setdefault(self._source(each), {})[place] = each.offset
        return places

    def _source(self, position: Position) -> int:
        """The broker to read from: the follower in the reader's rack, or the leader."""
        if self._rack and self.chance.random() < ANY_REPLICA:
            return self.chance.choice(self.stage.world.machines).broker_id
        if position.near is not None:
            return position.near
        return self.routes.leader(position.topic.name, position.index)

    def _poll(self, places: dict[int, dict[Place, int]], max_wait_ms: int) -> str | None:
        """Polls one of the brokers that lead a partition."""
        idle = [leader for leader in places if leader not in self._polling]
        if not idle:
            return None
        leader = self.chance.choice(idle) if self.stage.several else idle[0]
        asked = places[leader]
        version = self.stage.version(ApiKey.FETCH)
        session: Session | None = None
        if self._sessions and version >= SESSIONS_FROM:
            session = self._open_sessions.get(leader)
            if session is None or (session.version >= TOPIC_IDS_FROM) != (version >= TOPIC_IDS_FROM):
                session = self._open_sessions[leader] = Session(version)
        values: dict[str, Any] = {
            "max_wait_ms": max_wait_ms,
            "min_bytes": self.chance.choice((0, 1, 1, 300, 2000)),
            "max_bytes": self.chance.choice((1, 500, 5000, 1 << 20)),
            "isolation_level": self._isolation_level,
            "session_id": 0 if session is None else session.session_id,
            "session_epoch": -1 if session is None else session.epoch,
            "rack_id": self._rack,
        }
        changed, forgotten = dict(asked), list[Place]()
        if session is not None:
            changed = {place: offset for place, offset in asked.items() if session.told.get(place) != offset}
            forgotten = [place for place in session.told if place not in asked]
            session.told = dict(asked)
        by_id = version >= TOPIC_IDS_FROM
        if not by_id and any(place not in self._positions for place in forgotten):
            # The name of a deleted topic is not known any more.
            self._open_sessions.pop(leader, None)
            return None
        values["topics"] = self._topics(changed, version)
        values["forgotten_topics_data"] = [self._forgotten(place, by_id) for place in forgotten]
        self._polling.add(leader)
        self.connection_to(leader).request(
            ApiKey.FETCH, version, values, lambda exchange: self._polled(exchange, leader, session, asked, by_id)
        )
        return f"polls {len(asked)} partitions" + ("" if session is None else " in its session")

    def _forgotten(self, place: Place, by_id: bool) -> dict[str, Any]:
        topic_id, index = place
        fields: dict[str, Any] = {"topic_id": topic_id} if by_id else {"topic": self._positions[place].topic.name}
        return fields | {"partitions": [index]}

    def _topics(self, places: dict[Place, int], version: int) -> list[dict[str, Any]]:
        topics: dict[TopicId, dict[str, Any]] = {}
        for (topic_id, index), offset in places.items():
            position = self._positions[topic_id, index]
            entry = topics.get(topic_id)
            if entry is None:
                fields = self.stage.topic_fields(position.topic, version >= TOPIC_IDS_FROM, "topic")
                entry = topics[topic_id] = fields | {"partitions": []}
            asked: dict[str, Any] = {
                "partition": index,
                "fetch_offset": offset,
                "partition_max_bytes": self.chance.choice((1, 400, 1 << 20)),
            }
            if version >= LAST_FETCHED_EPOCH_FROM and self.chance.random() < 0.3:
                asked["last_fetched_epoch"] = position.last_epoch
            if version >= EPOCHS_FROM and self.chance.random() < 0.3:
                image = self.stage.image
                epoch = image.leadership(image.topics_by_id[topic_id].partitions[index]).epoch
                asked["current_leader_epoch"] = epoch
            entry["partitions"].append(asked)
        return list(topics.values())

    def _polled(
        self, exchange: Exchange, leader: int, session: Session | None, asked: dict[Place, int], by_id: bool
    ) -> None:
        self._polling.discard(leader)
        if self.routes.failed(exchange) or exchange.answer.error_code:
            self._open_sessions.pop(leader, None)
            for place in asked:
                if (position := self._positions.get(place)) is not None:
                    position.near = None
            return
        answer = exchange.answer
        if session is not None:
            session.session_id = answer.session_id
            session.epoch += 1
            if not answer.session_id:
                self._open_sessions.pop(leader, None)
        ids = {each.topic.name: place[0] for place, each in self._positions.items()}
        for topic in answer.responses:
            topic_id = topic.topic_id if by_id else ids.get(topic.topic)
            if topic_id is None:
                continue
            for part in topic.partitions:
                place = (topic_id, part.partition_index)
                position = self._positions.get(place)
                if position is not None and place in asked and position.offset == asked[place]:
                    self._take(position, part, session)

    def _take(self, position: Position, part: Any, session: Session | None) -> None:
        error = ErrorCode(part.error_code)
        if error is not ErrorCode.NONE:
            position.near = None
            if error is ErrorCode.OFFSET_OUT_OF_RANGE:
                position.offset = None
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.routes.learn()
            if session is not None:
                # The last request may have been refused for its epoch: the partition is named again next time.
                session.told.pop((position.topic.topic_id, position.index), None)
            return
        if part.diverging_epoch.epoch >= 0:
            # Records that were read behind this offset are no longer there.
            position.offset, position.last_epoch = part.diverging_epoch.end_offset, part.diverging_epoch.epoch
            return
        assert position.offset is not None
        if part.preferred_read_replica >= 0:
            position.near = part.preferred_read_replica
            self.sent_near += 1
        records = part.records or b""
        for place, header in batches_in(records):
            if not crc_is_right(records, place, header.size):
                return  # rotten on the broker's disk; asked for again
            if header.last_offset < position.offset:
                raise InvariantBroken(
                    f"{self.name} asked for offset {position.offset} and got a batch that ends at {header.last_offset}"
                )
            self.records_read += header.record_count
            position.offset = header.next_offset
            position.last_epoch = header.partition_leader_epoch
