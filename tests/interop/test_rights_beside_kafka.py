"""What requests get without rights, beside an Apache Kafka with the same rules: every API in every version that both
serve, for users without rights, with one right too few, and with all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from benchmarks.kafka_peer import KafkaJars
from tests.interop.judging_systems import EVERY_LACK, MASTER, NOBODY, Lacking, Pair, System, judging_pair, view
from tests.interop.raw_batches import batch_of
from tests.unit.node.requests_of_every_api import Names, requests_of

from cordwood.client.cluster import ProducerIdentity
from cordwood.model.identifiers import TopicId
from cordwood.node.apis import SERVED
from cordwood.node.requests.rights import RIGHTS, rights_for
from cordwood.wire.apis import APIS, ApiKey

NEW_TOPICS = frozenset({ApiKey.DELETE_TOPICS})
"""These change the topic that they name, and each request gets a new one."""
NEW_GROUPS = frozenset(
    {
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.DELETE_GROUPS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    }
)
"""These change groups, or need a member that has been there lately."""

IN_TRANSACTION = ProducerIdentity(7, 0)
BATCHES = (
    bytes(batch_of([b"one"])),
    bytes(batch_of([b"one"], producer=IN_TRANSACTION, sequence=0, transactional=True)),
)

EVERY_API = [
    pytest.param(ApiKey(key), id=APIS[key].name) for key in sorted(SERVED) if RIGHTS[key] and key < ApiKey.FAMILY_JOIN
]


class Difference(NamedTuple):
    version: int
    user: str
    request: int
    about: str
    cordwood: Any
    kafka: Any

    @property
    def codes(self) -> Codes:
        """The errors that only one of them answers."""
        cordwood, kafka = (frozenset(re.findall("[A-Z_]{4,}", str(told))) - {"NONE"} for told in self[-2:])
        return Codes(cordwood - kafka, kafka - cordwood)


class Codes(NamedTuple):
    """Error codes of Cordwood, and those of Kafka in their place."""

    cordwood: frozenset[str]
    kafka: frozenset[str]


def codes(cordwood: str, kafka: str) -> Codes:
    return Codes(frozenset(cordwood.split()), frozenset(kafka.split()))


HIDDEN = codes("UNKNOWN_TOPIC_ID", "TOPIC_AUTHORIZATION_FAILED")
NOT_A_BROKER = (
    codes("CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"),
    codes("", "TOPIC_AUTHORIZATION_FAILED"),
    codes("STALE_BROKER_EPOCH", "NOT_LEADER_OR_FOLLOWER"),
    codes("STALE_BROKER_EPOCH", "UNKNOWN_TOPIC_OR_PARTITION"),
    codes("STALE_BROKER_EPOCH", "UNKNOWN_TOPIC_ID"),
    codes("", "NOT_LEADER_OR_FOLLOWER"),
    codes("", "UNKNOWN_TOPIC_OR_PARTITION"),
)
TOLD_ONCE = codes("", "")

DELIBERATE: Mapping[ApiKey, tuple[Codes, ...]] = {
    # A client that passes for a follower: the whole request is refused, and the first versions have no code for that.
    ApiKey.FETCH: NOT_A_BROKER,
    # A topic that is made for the request can be used when the answer is there.
    ApiKey.METADATA: (HIDDEN, codes("", "UNKNOWN_TOPIC_OR_PARTITION")),
    ApiKey.OFFSET_FETCH: (HIDDEN,),
    # The refusal of a topic by its id does not tell its name.
    ApiKey.DELETE_TOPICS: (HIDDEN, TOLD_ONCE),
    # The verification of brokers: the transactional id's coordinator is not known to a topic that is not there.
    ApiKey.ADD_PARTITIONS_TO_TXN: (codes("COORDINATOR_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION"),),
    # Kafka's static settings are not those of Cordwood.
    ApiKey.ALTER_CONFIGS: (codes("", "INVALID_CONFIG"),),
    # The refusal of a whole request names no part of it.
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (TOLD_ONCE,),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (TOLD_ONCE,),
}
"""The differences that docs/internals/security.md explains, and those that are none of rights."""
UNANSWERED_BY_KAFKA = ((ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0),)
"""Requests, by their places in `requests_of`, for which Kafka 4.3 has no answer to somebody without the right."""


@pytest.fixture(scope="module")
def pair(kafka_jars: KafkaJars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with judging_pair(kafka_jars, tmp_path_factory.mktemp("kafka")) as pair:
        for system in pair:
            system.topic("payroll")
            system.groups(named("", TopicId(int=0)))
            system.transaction("payer")
        yield pair


def named(suffix: str, topic_id: TopicId, topic: str = "payroll") -> Names:
    group, watching = f"accounts{suffix}", f"watchers{suffix}"
    return Names(topic, topic_id, f"newcomer{suffix}", group, watching, "payer", "books", *BATCHES)


def absent(suffix: str) -> Names:
    # The first versions of Metadata create the topics that they name, and JoinGroup creates groups.
    vanished, nobodys = f"vanished{suffix}", f"nobodys{suffix}"
    return Names(vanished, TopicId(int=77), f"latecomer{suffix}", nobodys, "none", "idler", "no-family", *BATCHES)


def names_of(system: System, key: ApiKey, suffix: str) -> Names:
    """The names of what there is; whatever the API changes is made anew."""
    topic = f"payroll{suffix}" if key in NEW_TOPICS else "payroll"
    names = named(suffix if key in NEW_GROUPS or key in NEW_TOPICS else "", system.topic(topic), topic)
    names = names._replace(new_topic=f"newcomer{suffix}")
    if key in NEW_GROUPS:
        system.groups(names)
    return names


def users_of(key: ApiKey, version: int, newest: int) -> list[str]:
    """All that somebody may lack is tried in the newest version."""
    needed = [Lacking(right.operation, right.kind) for right in rights_for(key, version)]
    lacks = EVERY_LACK if version == newest else tuple(dict.fromkeys(needed))
    return [NOBODY, *(lack.user for lack in lacks), MASTER]


def differences(pair: Pair, key: ApiKey) -> Iterator[Difference]:
    versions = pair.versions_of(key)
    for version in versions:
        for user in users_of(key, version, versions[-1]):
            suffix = f"-{key}-{version}-{user}"
            each_names = [names_of(system, key, suffix) for system in pair]
            for about, names in (("what there is", each_names), ("what there is not", [absent(suffix)] * 2)):
                asked = [requests_of(key, version, each) for each in names]
                for request, values in enumerate(zip(*asked, strict=True)):
                    if (key, request) in UNANSWERED_BY_KAFKA:
                        continue
                    told = [
                        view(system.answer(user, key, version, of_system), of_names) or "nothing"
                        for system, of_system, of_names in zip(pair, values, names, strict=True)
                    ]
                    if told[0] != told[1]:
                        yield Difference(version, user, request, about, *told)


@pytest.mark.parametrize("key", EVERY_API)
def test_answers_are_those_of_an_apache_kafka_with_the_same_rules(pair: Pair, key: ApiKey) -> None:
    deliberate = DELIBERATE.get(key, ())
    found = [each for each in differences(pair, key) if each.codes not in deliberate]
    assert not found, "\n".join(map(str, found[:20]))
