"""Clients that read from the follower in their rack (KIP-392): the choice of the leader, and the rules of the follower.

With `replica.selector.class` set, a leader sends a client to an in-sync follower in the client's rack, by an answer
without records. The follower serves the client below its own high watermark: the leader of its epoch has told it that
these records are committed. Otherwise it refuses, and the client goes back to the leader with its position. A client
that comes back is served by the leader for a while, whatever the follower's reason was:

| the follower | the client is told |
| --- | --- |
| is cut off from the metadata store: its lease is over | NOT_LEADER_OR_FOLLOWER |
| is not in the in-sync set, or no replica any more | NOT_LEADER_OR_FOLLOWER |
| has not heard of its leader in this epoch, or not for half of replica.lag.time.max.ms | NOT_LEADER_OR_FOLLOWER |
| has its log cut by a thread | NOT_LEADER_OR_FOLLOWER |
| is in another leader epoch than the client | FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH |
| does not have the offset, or another history | OFFSET_NOT_AVAILABLE |
| cannot read its log, or finds damage there | KAFKA_STORAGE_ERROR |

A follower whose own `replica.selector.class` is not set serves clients that name a rack: a leader whose setting is
newer has sent them.

Two answers spare clients on librdkafka (2.16) a standstill:

- A client that read here while this broker followed, and asks in its old epoch after this broker took the lead, is told
  of the new leadership in an answer without records and without an error. FENCED_LEADER_EPOCH makes librdkafka turn to
  the old leader, and the leader named in the same answer makes it stay here. Both at once leave it at the old leader
  for good if that leader is dead (its pull request 5593). An answer without an error only names the leader, and the
  client validates its position with it (KIP-320) before it reads on. A client that does not take that in is refused
  after a while, and asks for Metadata.
- A leader does not send clients to a broker that has just come back. A client that was refused a connection while the
  broker was away waits up to 10 s before it tries again, and does not read from the leader meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordwood.node.partitions.partition import Partition, not_led_here
from cordwood.node.partitions.role import Leading
from cordwood.replication.follower import FollowerReplica

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.model.identifiers import TopicId
    from cordwood.node.loop.loop import Loop
    from cordwood.node.partitions.hosted import HostedReplicas
    from cordwood.node.replication.fetchers import Fetchers
    from cordwood.node.requests.leader_hints import Hint
    from cordwood.node.requests.librdkafka_clients import LibrdkafkaClients

NEWS_FOR_MS = 10_000
"""The time after a client's fetch for which a follower asks its leader for news of the high watermark."""
BACK_FOR_MS = 30_000
"""A client that asks the leader again within this time is served by the leader: the follower did not."""
MOST_SENT = 10_000
"""The most clients and partitions sent near that are remembered."""
NO_REPLICA = -1
TELL_LEADERSHIP_FOR_MS = 10_000
"""The time after it took the lead for which a broker tells its former readers so without an error."""
TELL_LEADERSHIP_AGAIN_MS = 100
"""A client that asks in its old epoch once more is answered after this time: it may just be taking in the last
answer."""
RECONNECTED_AFTER_MS = 12_000
"""After this time clients have connected to a broker that came back: more than librdkafka's default
reconnect.backoff.max.ms."""


class NearReads:
    def __init__(
        self,
        loop: Loop,
        image: ClusterImage,
        hosted: HostedReplicas,
        fetchers: Fetchers,
        librdkafka_clients: LibrdkafkaClients,
    ) -> None:
        self._loop = loop
        self._image = image
        self._hosted = hosted
        self._fetchers = fetchers
        self._librdkafka_clients = librdkafka_clients
        self._took_part: dict[int, tuple[int, int | None]] = {}
        """The last broker epoch in which each broker took part, and the time of its return in that epoch; None: it was
        never away."""
        self._sent: dict[tuple[int, TopicId, int], int] = {}
        """The time at which a connection's client was last sent near, by topic and partition; the oldest come first."""
        self.served_bytes = 0
        """Bytes that clients found at this broker as a follower."""
        self.sent_near = 0
        """Answers of this broker as a leader that sent a client to a follower in its rack."""
        self.sent_back = 0
        """Refusals of this broker as a follower, for which clients go to the leader."""
        self.brokers_changed()

    @property
    def _heard_within_ms(self) -> int:
        """The greatest age of the last word between leader and follower. Both judge alike: otherwise a client would go
        to and fro between them until the leader drops the follower from the in-sync set."""
        return self._image.settings.replica_lag_time_max_ms // 2

    # The role of the leader

    def send_near(self, partition: Partition, rack: str, offset: int, listener: str, connection_id: int) -> int:
        """The broker to which a client in this rack is sent; -1: the client reads here."""
        image, now_ms = self._image, self._loop.now.boot_ms
        if not image.settings.reads_at_followers:
            return NO_REPLICA
        nearby = []
        for broker_id in partition.image.isr:
            broker = image.brokers.get(broker_id)
            if broker is None or broker.rack != rack:
                continue
            if broker_id == image.node_id:
                return NO_REPLICA
            if (
                broker.electable
                and not broker.starting
                and broker.endpoint(listener) is not None
                and not self._just_came_back(broker_id)
            ):
                nearby.append(broker_id)
        if not nearby:
            return NO_REPLICA
        client = connection_id, partition.topic_id, partition.name.partition
        if now_ms - self._sent.get(client, -BACK_FOR_MS) < BACK_FOR_MS:
            return NO_REPLICA
        found = partition.replica.nearest(nearby, offset, now_ms, self._heard_within_ms)
        if found is None:
            return NO_REPLICA
        self._sent.pop(client, None)
        if len(self._sent) >= MOST_SENT:
            del self._sent[next(iter(self._sent))]
        self._sent[client] = now_ms
        self.sent_near += 1
        return found

    def brokers_changed(self) -> None:
        """Takes over the brokers of the image: some registered, were fenced or unfenced, or went."""
        for broker_id, broker in self._image.brokers.items():
            last = self._took_part.get(broker_id)
            if not broker.fenced and (last is None or last[0] != broker.epoch):
                self._took_part[broker_id] = broker.epoch, None if last is None else self._loop.now.boot_ms

    def _just_came_back(self, broker_id: int) -> bool:
        _, back_ms = self._took_part.get(broker_id, (0, None))
        return back_ms is not None and self._loop.now.boot_ms - back_ms < RECONNECTED_AFTER_MS

    def hears_of_leadership(self, partition: Partition, epoch: int, connection_id: int) -> bool:
        """True if a client with a rack that asks in this epoch is told of a newer epoch without an error."""
        role = partition.role
        return (
            isinstance(role, Leading)
            and 0 <= epoch < role.leader_epoch
            and connection_id in self._librdkafka_clients
            and self._loop.now.boot_ms - role.since_ms < TELL_LEADERSHIP_FOR_MS
        )

    def may_be_hinted(self, hint: Hint, connection_id: int) -> bool:
        """True if a refusal may name the leader to a client with a rack: librdkafka is not told this broker itself."""
        return hint[0] != self._image.node_id or connection_id not in self._librdkafka_clients

    # The role of the follower

    def followed(self, topic: str | TopicId, index: int, rack: str) -> Partition:
        """The partition, which exists, and which clients may read at this follower. Raises NOT_LEADER_OR_FOLLOWER."""
        image = self._image
        name = topic if isinstance(topic, str) else image.topics_by_id[topic].name
        if not rack and not image.settings.reads_at_followers:
            raise not_led_here(name, index)
        partition = self._hosted.get(name, index)
        if partition is None or self._readable(partition) is None:
            self.sent_back += 1
            raise not_led_here(name, index)
        self._note_reader(partition)
        return partition

    def still_followed(self, partition: Partition, following: FollowerReplica) -> bool:
        """True if clients may still read the partition in the same role."""
        return self._hosted.hosts(partition) and self._readable(partition) is following

    def _readable(self, partition: Partition) -> FollowerReplica | None:
        following = partition.role.following
        if following is None or following.heard_ms is None or partition.role.being_cut:
            return None
        image, now = self._image, self._loop.now
        if (
            image.node_id not in partition.image.isr
            or now.boot_ms - following.heard_ms >= self._heard_within_ms
            or not self._hosted.lease_holds
            or not self._hosted.registration_shows
        ):
            return None
        return following

    def _note_reader(self, partition: Partition) -> None:
        now_ms = self._loop.now.boot_ms
        first = partition.news_until_ms <= now_ms
        partition.news_until_ms = now_ms + NEWS_FOR_MS
        if first:
            self._fetchers.tell_soon(partition)
