"""The target assignment: recomputed, with a new group epoch, after members, subscriptions or topics changed."""

import zlib
from collections.abc import Iterable, Mapping

from cordwood.groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR
from cordwood.groups.consumer.balancing import Subscriber
from cordwood.groups.consumer.group import ConsumerGroup, topics_of
from cordwood.groups.consumer.member import Profile
from cordwood.groups.consumer.partition_sets import NOTHING, Share
from cordwood.groups.consumer.records import (
    EXPRESSION_TYPE,
    GROUP_TYPE,
    TARGET_EPOCH_TYPE,
    TARGET_TYPE,
    GroupEpoch,
    Resolution,
    encode_consumer_key,
    encode_group_epoch,
    encode_resolution,
    encode_target,
    encode_target_epoch,
)
from cordwood.groups.consumer.topics import TopicShape, TopicView
from cordwood.groups.state.committed_positions import Record
from cordwood.model.moment import Moment


def retarget(
    group: ConsumerGroup,
    profiles: Mapping[str, Profile],
    targets: dict[str, Share],
    topics: TopicView,
    records: list[Record],
    now: Moment,
    *,
    changed: bool,
) -> tuple[int, dict[str, Share]]:
    """The epoch and the target for these members; `changed` if members or subscriptions are known to have changed."""
    expressions = _resolve(group, profiles, topics, records)
    changed = changed or any(found is not group.expressions.get(each) for each, found in expressions.items())
    subscriptions = {member_id: topics_of(profile, expressions) for member_id, profile in profiles.items()}
    there = _shapes(frozenset[str]().union(*set(subscriptions.values())), topics)
    hashed = _hash(there)
    if not changed and hashed == group.metadata_hash and group.epoch == group.target_epoch:
        return group.target_epoch, targets
    epoch = group.epoch
    if changed or hashed != group.metadata_hash:
        epoch += 1
        value = encode_group_epoch(GroupEpoch(epoch, hashed, -1 if profiles else now.wall_ms))
        records.append((encode_consumer_key(GROUP_TYPE, group.group_id), value))
    subscribers = [
        Subscriber(member_id, profile.instance_id, subscriptions[member_id], targets.get(member_id, NOTHING))
        for member_id, profile in sorted(profiles.items())
    ]
    assigned = ASSIGNORS[_preferred_assignor(profiles.values())](subscribers, there)
    for member_id, share in sorted(assigned.items()):
        if group.targets.get(member_id) != share:
            records.append((encode_consumer_key(TARGET_TYPE, group.group_id, member_id), encode_target(share)))
    records.append((encode_consumer_key(TARGET_EPOCH_TYPE, group.group_id), encode_target_epoch(epoch)))
    return epoch, assigned


def is_up_to_date(group: ConsumerGroup, topics: TopicView) -> bool:
    """True if the target fits the current topics. Asked at every heartbeat; mostly one comparison."""
    if group.checked_version == topics.version:
        return True
    if group.epoch != group.target_epoch or group.metadata_hash != _hash(_shapes(group.subscribed_topics, topics)):
        return False
    for expression in group.expressions_in_use:
        known, now = group.expressions.get(expression), topics.matching(expression)
        if now is not None and (known is None or now.topics != known.topics):
            return False
    group.checked_version = topics.version
    return True


def assignor_of(group: ConsumerGroup) -> str:
    return _preferred_assignor(member.profile for member in group.members.values())


def _preferred_assignor(profiles: Iterable[Profile]) -> str:
    """The assignor that most members prefer, among known assignors: another broker's log may name others."""
    votes: dict[str, int] = {}
    for profile in profiles:
        if profile.assignor in ASSIGNORS:
            votes[profile.assignor] = votes.get(profile.assignor, 0) + 1
    return min(votes, key=lambda name: (-votes[name], name)) if votes else DEFAULT_ASSIGNOR


def _resolve(
    group: ConsumerGroup, profiles: Mapping[str, Profile], topics: TopicView, records: list[Record]
) -> dict[str, Resolution]:
    """Resolves the members' expressions again, and writes a record for each that has other matches than in the log."""
    found: dict[str, Resolution] = {}
    wanted = {profile.expression for profile in profiles.values() if profile.expression is not None}
    if not wanted and not group.expressions:
        return found
    for expression in sorted(wanted):
        known, now = group.expressions.get(expression), topics.matching(expression)
        if now is not None and (known is None or now.topics != known.topics):
            key = encode_consumer_key(EXPRESSION_TYPE, group.group_id, expression)
            records.append((key, encode_resolution(now)))
            found[expression] = now
        elif known is not None:
            found[expression] = known
    for expression in sorted(group.expressions.keys() - found.keys()):
        records.append((encode_consumer_key(EXPRESSION_TYPE, group.group_id, expression), None))
    return found


def _shapes(names: frozenset[str], topics: TopicView) -> dict[str, TopicShape]:
    found = {name: topics.shape_of(name) for name in sorted(names)}
    return {name: shape for name, shape in found.items() if shape is not None}


def _hash(there: Mapping[str, TopicShape]) -> int:
    text = ";".join(f"{name}:{shape.topic_id}:{shape.partitions}" for name, shape in sorted(there.items()))
    return zlib.crc32(text.encode())
