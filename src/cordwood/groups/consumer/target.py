"""The target assignment: recomputed, with a new group epoch, after members, subscriptions or topics changed."""

import zlib
from collections.abc import Iterable, Mapping

from cordwood.groups.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR
from cordwood.groups.consumer.balancing import Subscriber
from cordwood.groups.consumer.group import ConsumerGroup, subscriptions_of
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
from cordwood.groups.consumer.topics import Reader, Subscribed, TopicShape, TopicView
from cordwood.groups.state.committed_positions import Record
from cordwood.model.moment import Moment


def retarget(
    group: ConsumerGroup,
    profiles: Mapping[str, Profile],
    targets: dict[str, Share],
    readers: Mapping[str, Reader],
    topics: TopicView,
    records: list[Record],
    now: Moment,
    *,
    changed: bool,
) -> tuple[int, dict[str, Share]]:
    """The epoch and the target for these members; `changed` if members or subscriptions are known to have changed."""
    matches = _resolve(group, subscriptions_of(profiles, readers), topics, records)
    changed = changed or any(found != group.matches_before(each) for each, found in matches.items())
    group.next_matches = matches
    subscriptions = {
        member_id: _topics_of(profile, readers.get(member_id), matches) for member_id, profile in profiles.items()
    }
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


def is_up_to_date(group: ConsumerGroup, topics: TopicView, readers: Mapping[str, Reader] | None = None) -> bool:
    """True if the target fits the current topics, and what these readers may see of them. Asked at every heartbeat;
    mostly one comparison. `readers`: those of all members, if they are other than the group knows yet."""
    new_readers = readers is not None and readers is not group.readers
    if not new_readers and group.checked_version == topics.version:
        return True
    if group.epoch != group.target_epoch or group.metadata_hash != _hash(_shapes(group.subscribed_topics, topics)):
        return False
    in_use = group.subscriptions_in_use
    if new_readers:
        profiles = {member_id: member.profile for member_id, member in group.members.items()}
        in_use = frozenset(subscriptions_of(profiles, readers or {}))
    for subscribed in in_use:
        now = topics.matching(subscribed)
        if now is not None and now.topics != group.matches_before(subscribed):
            return False
    if not new_readers:
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
    group: ConsumerGroup, subscriptions: set[Subscribed], topics: TopicView, records: list[Record]
) -> dict[Subscribed, frozenset[str]]:
    """Resolves the members' expressions again: the matches for each reader. Writes a record for each expression that
    has other matches, for all its readers together, than in the log."""
    matches: dict[Subscribed, frozenset[str]] = {}
    if not subscriptions and not group.expressions:
        return matches
    found: dict[str, list[Resolution]] = {}
    for subscribed in subscriptions:
        stored, now = group.expressions.get(subscribed.expression), topics.matching(subscribed)
        if now is None and stored is not None:
            # A known reader whose matches are forgotten must not get those of others.
            others = stored.topics if subscribed.reader is None else frozenset[str]()
            now = stored._replace(topics=group.matches.get(subscribed, others))
        if now is not None:
            matches[subscribed] = now.topics
            found.setdefault(subscribed.expression, []).append(now)
    for expression, each in sorted(found.items()):
        known, together = group.expressions.get(expression), _together(each)
        if known is None or together.topics != known.topics:
            key = encode_consumer_key(EXPRESSION_TYPE, group.group_id, expression)
            records.append((key, encode_resolution(together)))
    for expression in sorted(group.expressions.keys() - found.keys()):
        records.append((encode_consumer_key(EXPRESSION_TYPE, group.group_id, expression), None))
    return matches


def _together(found: list[Resolution]) -> Resolution:
    """The topics that some reader sees, as of the newest of these matches."""
    if len(found) == 1:
        return found[0]
    newest = max(found, key=lambda each: (each.version, each.timestamp_ms))
    return newest._replace(topics=newest.topics.union(*(each.topics for each in found)))


def _topics_of(profile: Profile, reader: Reader | None, matches: Mapping[Subscribed, frozenset[str]]) -> frozenset[str]:
    """The topics that a member reads: those that it names, and those that its expression matches for its reader."""
    if profile.expression is None:
        return profile.topics
    matched = matches.get(Subscribed(profile.expression, reader))
    if matched is None:
        return profile.topics
    return profile.topics | matched if profile.topics else matched


def _shapes(names: frozenset[str], topics: TopicView) -> dict[str, TopicShape]:
    found = {name: topics.shape_of(name) for name in sorted(names)}
    return {name: shape for name, shape in found.items() if shape is not None}


def _hash(there: Mapping[str, TopicShape]) -> int:
    text = ";".join(f"{name}:{shape.topic_id}:{shape.partitions}" for name, shape in sorted(there.items()))
    return zlib.crc32(text.encode())
