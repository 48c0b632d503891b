"""A group changes to the other protocol while its members go on (KIP-848).

A group is of the consumer protocol as long as one of its members speaks it. The first such member to join converts the
group, and when the last has left the group becomes classic again. Members of the classic protocol stay classic members
in both. Assignments are kept: as always, a partition moves after its owner has given it back. Each conversion is a few
records that are written together.
"""

from collections.abc import Mapping

from cordwood.groups.classic.group import CONSUMER_PROTOCOL_TYPE, Group, Member, State, find_member
from cordwood.groups.classic.records import encode_group, encode_group_key
from cordwood.groups.classic.subscription import read_assignment, read_subscription, write_assignment
from cordwood.groups.consumer.group import ConsumerGroup
from cordwood.groups.consumer.member import ClassicPart, Current, MemberState, Profile
from cordwood.groups.consumer.naming import named, share_named
from cordwood.groups.consumer.records import (
    CURRENT_TYPE,
    GROUP_TYPE,
    MEMBER_TYPE,
    TARGET_EPOCH_TYPE,
    TARGET_TYPE,
    GroupEpoch,
    encode_consumer_key,
    encode_current,
    encode_group_epoch,
    encode_profile,
    encode_target,
    encode_target_epoch,
)
from cordwood.groups.consumer.topics import TopicView
from cordwood.groups.state.committed_positions import Record
from cordwood.groups.state.record_fields import UnreadableRecord
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.moment import Moment


def to_consumer(group: Group, topics: TopicView, max_size: int, max_profile_bytes: int) -> list[Record]:
    """The records that convert a classic group to the consumer protocol. Raises ProtocolError if it cannot be
    converted.

    Its members are behind the next epoch, so each is told to join again. Newcomers that wait for their first round are
    not carried over: they join again.
    """
    members = [member for member in group.members.values() if not member.is_new]
    if group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _refusal(group, f"its members are no consumers, they speak {group.protocol_type} with each other")
    if len(members) > max_size:
        raise _refusal(group, f"it has more than {max_size} members")
    group.moved_to(State.DEAD)
    records: list[Record] = [(encode_group_key(group.group_id), None)]

    def add(kind: int, value: bytes, subject: str = "") -> None:
        records.append((encode_consumer_key(kind, group.group_id, subject), value))

    add(GROUP_TYPE, encode_group_epoch(GroupEpoch(group.generation, 0)))
    for member in members:
        profile, current = _taken_over(group, member, topics)
        value = encode_profile(profile)
        if len(value) > max_profile_bytes:
            # The member will be told to join again, and would be refused for the same reason.
            raise _refusal(group, f"the profile of member {member.member_id} is too long")
        add(MEMBER_TYPE, value, member.member_id)
        add(TARGET_TYPE, encode_target(current.assigned), member.member_id)
        add(CURRENT_TYPE, encode_current(current), member.member_id)
    add(TARGET_EPOCH_TYPE, encode_target_epoch(group.generation))
    return records


def _taken_over(group: Group, member: Member, topics: TopicView) -> tuple[Profile, Current]:
    """A classic member's statements about itself, and its assignment since the last complete round."""
    try:
        subscription = read_subscription(member.metadata(group.protocol) or member.protocols[0][1])
        assignment = read_assignment(member.assignment)
    except UnreadableRecord as unreadable:
        raise _refusal(group, f"subscription or assignment of {member.member_id} is unreadable: {unreadable}") from None
    if assignment.has_user_data:
        raise _refusal(group, f"its assignor {group.protocol} tells members more than their partitions")
    profile = Profile(
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        subscription.topics,
        max(member.rebalance_timeout_ms, 0),
        None,
        classic=ClassicPart(member.session_timeout_ms, member.protocols),
    )
    # The member may still have partitions that it listed at its join and was not assigned again, until it reports that
    # they are given back.
    share, epoch = share_named(assignment.partitions, topics), group.generation
    revoking = share_named(subscription.owned, topics) - share
    held = share | revoking
    state = MemberState.UNREVOKED_PARTITIONS if revoking else MemberState.STABLE
    return profile, Current(epoch, epoch, state, share, revoking, ((epoch, held),) if held else ())


def _refusal(group: Group, why: str) -> ProtocolError:
    return ProtocolError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"{group.group_id} is a classic group, and cannot take members of the consumer protocol: {why}.",
    )


def to_classic(
    group: ConsumerGroup, profiles: Mapping[str, Profile], topics: TopicView, now: Moment, max_record_bytes: int
) -> list[Record]:
    """The records that convert a group of the consumer protocol to a classic one with these members; none if the group
    stays as it is.

    The classic group has no leader yet, which marks that its members have to join again.
    """
    if not profiles or any(profile.classic is None for profile in profiles.values()):
        return []
    classic = Group(
        group.group_id, generation=group.epoch, protocol_type=CONSUMER_PROTOCOL_TYPE, state_timestamp_ms=now.wall_ms
    )
    for member_id, profile in sorted(profiles.items()):
        assert profile.classic is not None
        held = named(group.current(member_id).held, group.subscribed_topics, topics)
        member = Member(
            member_id,
            profile.instance_id,
            profile.client_id,
            profile.client_host,
            profile.classic.session_timeout_ms,
            profile.rebalance_timeout_ms,
            profile.classic.protocols,
            write_assignment(held),
        )
        classic.add(member, CONSUMER_PROTOCOL_TYPE)
    if not frozenset.intersection(*(member.protocol_names for member in classic.members.values())):
        return []
    classic.leader = None
    classic.protocol = classic.select_protocol()
    value = encode_group(classic.stored())
    if len(value) > max_record_bytes:
        return []
    return [*group.tombstones(), (encode_group_key(group.group_id), value)]


def emptied_to_classic(group: ConsumerGroup) -> list[Record]:
    """The records that convert an empty group to a classic one. Its generation and its empty time stay."""
    assert not group.members
    classic = Group(
        group.group_id,
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        state_timestamp_ms=group.emptied_ms,
    )
    return [*group.tombstones(), (encode_group_key(group.group_id), encode_group(classic.stored()))]


def why_not_known(group: Group | None, member_id: str, instance_id: str | None, epoch: int) -> ErrorCode:
    """The error for a heartbeat of the consumer protocol to a group that is not of that protocol.

    The last member that spoke it, expelled after a silence, joins again when it learns that it is no member. If it
    learned that the group does not exist, as Kafka answers, the client would give up for good.
    """
    if group is None or not 0 < epoch <= group.generation:
        return ErrorCode.GROUP_ID_NOT_FOUND
    found = find_member(group, member_id, instance_id)
    # A known member has lost its place to another process with its instance id.
    return ErrorCode.FENCED_INSTANCE_ID if isinstance(found, Member) else found
