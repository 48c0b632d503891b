"""The partitions that this broker hosts as a replica, and its leaderships.

The image of the metadata decides both; the table follows its deltas. Only the image says whether a topic or a partition
exists: a partition that exists and is not here is led elsewhere. This broker leads a partition if the image names it as
the leader in the broker epoch of this very process: a later incarnation of the broker ends all leaderships of an
earlier one. A leader serves while the broker's lease holds, or while its followers vouch for it.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from cordwood.cluster.metadata.image import ClusterImage, TopicChange, TopicImage
from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.log.log import Log
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.identifiers import TopicId, TopicPartition, no_topic_with
from cordwood.model.moment import Moment
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.serving import Serving
from cordwood.node.partitions.partition import Partition, no_such_partition, not_led_here
from cordwood.node.partitions.role import NO_LEADER
from cordwood.node.partitions.waits import WaitingAck


class Deposed(NamedTuple):
    """A partition whose leadership ended or went over to a new epoch of this broker."""

    partition: Partition
    acks: list[WaitingAck]
    """Acks that have to be told NOT_LEADER_OR_FOLLOWER."""
    hosted: bool = True
    """True if this broker is still a replica."""
    given_up: bool = False
    """True if the partition went on elsewhere with a leader that lacked acknowledged records, and this replica has not
    followed that leader, or keeps such records: its log may be all that is left of them."""


class HostedReplicas:
    def __init__(
        self,
        image: ClusterImage,
        serving: Serving,
        loop: Loop,
        open_log: Callable[[Partition], Log],
        saved_high_watermark: Callable[[TopicPartition], tuple[int, int]],
        on_role: Callable[[Partition], None],
    ) -> None:
        """`on_role` is called when a partition with several replicas may have another role, leader or epoch."""
        self._image = image
        self._broker_id = image.node_id
        self._serving = serving
        self._loop = loop
        self._open_log = open_log
        self._saved_high_watermark = saved_high_watermark
        self._on_role = on_role
        self.topics: dict[str, dict[int, Partition]] = {}
        """Hosted partitions by topic and number. A topic without a hosted partition has no entry."""
        self.withheld: dict[Partition, None] = {}
        """Followers that keep committed records which their leaders lack, until an operator accepts the loss."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.topics.values():
            yield from partitions.values()

    # Lookups

    def leader(self, topic: str, index: int) -> Partition:
        """The partition, which this broker leads.

        Raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist, NOT_LEADER_OR_FOLLOWER if it is led elsewhere, or if
        this broker lacks the authority to serve.
        """
        partitions = self.topics.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if (
                partition is not None
                and partition.role.leads
                and (self._loop.now.boot_ms < self._serving.until_ms or self.serves(partition))
            ):
                return partition
            if partition is not None and partition.role.offline:
                raise ProtocolError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{partition.name} is offline: its data directory failed."
                )
        if self._image.partition_of(topic, index) is None:
            raise no_such_partition(topic, index)
        raise not_led_here(topic, index)

    def replica(self, topic: str, index: int) -> Partition:
        """The partition, whoever leads it. Raises the same errors as `leader` where there is no log to read."""
        partition = self.get(topic, index)
        if partition is None or partition.role.being_cut or partition.role.offline:
            return self.leader(topic, index)
        return partition

    def leader_in(self, topic: str | TopicId, index: int) -> Partition:
        """Works like `leader`, for a topic's name or id. Raises UNKNOWN_TOPIC_ID as well."""
        if isinstance(topic, str):
            return self.leader(topic, index)
        found = self._image.topics_by_id.get(topic)
        if found is None:
            raise no_topic_with(topic)
        return self.leader(found.name, index)

    def leader_for_follower(self, topic: str | TopicId, index: int, follower: int) -> Partition:
        """The partition, which this broker leads, for one of its followers. Refuses brokers that are no replicas."""
        found = self._image.topics.get(topic) if isinstance(topic, str) else self._image.topics_by_id.get(topic)
        if found is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic {topic}.")
        partition = self.get(found.name, index)
        if partition is None or not partition.role.leads:
            raise not_led_here(found.name, index)
        if follower not in partition.image.replicas:
            raise ProtocolError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {follower} is not a replica of {partition.name}."
            )
        return partition

    def replica_for(self, topic_id: TopicId | None, index: int, asker: int) -> Partition:
        """The partition, whoever leads it, for another of its replicas."""
        found = None if topic_id is None else self._image.topics_by_id.get(topic_id)
        if found is None:
            raise no_topic_with(topic_id)
        partition = self.get(found.name, index)
        if partition is not None and asker in partition.image.replicas:
            role = partition.role
            if not role.being_cut and not role.offline:
                return partition
        raise ProtocolError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Partition {index} of {found.name} is not here for broker {asker}."
        )

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition if this broker is a replica."""
        partitions = self.topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def led(self, topic: str) -> list[Partition]:
        """The partitions of a topic that this broker leads."""
        return [partition for partition in self.topics.get(topic, {}).values() if partition.role.leads]

    def hosts(self, partition: Partition) -> bool:
        """True if the partition is still here: its topic may have been deleted, and even created anew."""
        return self.get(*partition.name) is partition

    @property
    def lease_holds(self) -> bool:
        return self._loop.now.boot_ms < self._serving.until_ms

    @property
    def registration_shows(self) -> bool:
        """True if the image shows the registration of this process. An image that does not is older than the
        registration."""
        image = self._image
        return self._broker_id in image.brokers and (
            image.broker_epochs.get(self._broker_id) == self._serving.broker_epoch
        )

    def serves(self, partition: Partition) -> bool:
        """True if the leader has the authority to serve: by the broker's lease, or by its followers."""
        serving, now = self._serving, self._loop.now
        if now.boot_ms < serving.until_ms:
            return True
        return serving.registered_here and partition.followers_vouch(now, serving.lasts_ms)

    def may_be_replaced(self, partition: Partition) -> bool:
        """True if another broker may lead by now: the whole time of the lease is over, and no followers vouch."""
        serving = self._serving
        return self._loop.now.boot_ms >= serving.until_ms + serving.lasts_ms // 2 and not self.serves(partition)

    def still_leads(self, partition: Partition) -> bool:
        return partition.role.leads and self.hosts(partition) and self.serves(partition)

    # Deltas of the image

    def created(self, topic: TopicImage, now: Moment) -> None:
        for index in range(len(topic.partitions)):
            self._follow_image(topic, index, now)

    def deleted(self, topic: TopicImage) -> list[Partition]:
        """Forgets a deleted topic; returns the partitions that were here."""
        return list(self.topics.pop(topic.name, {}).values())

    def changed(self, change: TopicChange, now: Moment) -> list[Deposed]:
        """Takes new partitions, and new leaders, epochs, in-sync sets and replicas of old ones."""
        before, topic = change.before.partitions, change.after
        deposed = []
        for index, image in enumerate(topic.partitions):
            if index >= len(before) or not (image is before[index] or image == before[index]):
                lost = self._follow_image(topic, index, now)
                if lost is not None:
                    deposed.append(lost)
        return deposed

    def registered(self, now: Moment) -> list[Deposed]:
        """Looks at all leaderships again: the broker epoch or the fence of this broker has changed."""
        deposed = []
        for topic in self._image.sorted_topics():
            for index in list(self.topics.get(topic.name, ())):
                lost = self._follow_image(topic, index, now)
                if lost is not None:
                    deposed.append(lost)
        return deposed

    def _follow_image(self, topic: TopicImage, index: int, now: Moment) -> Deposed | None:
        image = topic.partitions[index]
        partition = self.get(topic.name, index)
        if self._broker_id not in image.replicas:
            if partition is None:
                return None
            del self.topics[topic.name][index]
            if not self.topics[topic.name]:
                del self.topics[topic.name]
            acks = partition.follow(NO_LEADER, image.leader_epoch, image)
            given_up = partition in self.withheld or image.lossy_epoch > partition.agreed_epoch
            lost = Deposed(partition, acks, hosted=False, given_up=given_up)
            self._on_role(partition)
            return lost
        if partition is None:
            name = TopicPartition(topic.name, index)
            partition = Partition(
                name,
                topic.topic_id,
                topic.settings,
                self._broker_id,
                self._open_log,
                image,
                self._loop.in_turns.add_steps,
                *self._saved_high_watermark(name),
            )
            self.topics.setdefault(topic.name, {})[index] = partition
        if partition.role.being_cut:
            # A thread has the log. `follow_again` takes the role from the image when the thread is done.
            return None
        before = partition.role
        leads, leader, leader_epoch = self._leadership(image)
        if partition.role.offline or (leads and self._gives_way(partition, image)):
            leads, leader = False, NO_LEADER
        acks = []
        if leads:
            partition.lead(image, leader_epoch, now)
        else:
            acks = partition.follow(leader, leader_epoch, image)
            if partition.waits.readers and not before.leads:
                # Clients that read at this follower look again: it may have another leader, or be out of sync.
                self._loop.after(0, partition.waits.wake_readers)
        if partition.replicated:
            self._on_role(partition)
        return Deposed(partition, acks) if before.leads and partition.role is not before else None

    def take_offline(self, partition: Partition) -> Deposed:
        """Ends the role of a partition whose data directory failed. The caller has closed the log."""
        acks = partition.go_offline()
        if partition.replicated:
            self._on_role(partition)
        return Deposed(partition, acks)

    def follow_again(self, partition: Partition, now: Moment) -> Deposed | None:
        """Takes the role from the image again: the log was cut, or is in doubt."""
        topic = self._image.topics.get(partition.name.topic)
        if topic is None or not self.hosts(partition):
            return None
        return self._follow_image(topic, partition.name.partition, now)

    def _gives_way(self, partition: Partition, image: PartitionImage) -> bool:
        """True if the partition must not be led here: records are missing in its log, and other replicas may have them.
        The log goes on without them only if no replica can have them, or an operator has accepted the loss. Replicas
        that are not in sync may have records before a start that is in doubt: the start stays in doubt until one of
        them is in sync."""
        log = partition.opened
        if log is None or not log.in_doubt:
            return False
        accepted = len(image.replicas) == 1 or (image.recovering and image.lossy_epoch >= image.leader_epoch)
        if accepted:
            log.start_is_known()
        if accepted or not (image.others_in_sync(self._broker_id) or log.lost):
            log.accept_lost_end()
            return False
        return True

    def _leadership(self, image: PartitionImage) -> tuple[bool, int, int]:
        """True if this process leads the partition; the leader that others have; and the partition's leader epoch."""
        leader, leader_epoch = self._image.leadership(image)
        leads = leader == self._broker_id and self._image.broker_epochs.get(leader) == self._serving.broker_epoch
        return leads, NO_LEADER if leader == self._broker_id else leader, leader_epoch
