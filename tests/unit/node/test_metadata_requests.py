"""ApiVersions, Metadata, DescribeCluster, DescribeTopicPartitions: who is there and who leads what."""

from typing import Any

import pytest
from simulation.world.exchange import State, decode_response
from simulation.world.world import World
from tests.moments import at
from tests.unit.node.speaking import create_topic, delete_topic, error

from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicId
from cordwood.model.settings.listeners import ONLY_ENTRANCE
from cordwood.node.apis import SERVED
from cordwood.security.sessions import Session
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.requests import RequestHeader

METADATA_VERSIONS = range(14)


# ApiVersions


@pytest.mark.parametrize("version", range(6))
def test_what_is_advertised_is_what_the_handlers_declare(world: World, version: int) -> None:
    software = {"client_software_name": "test", "client_software_version": "1"} if version >= 3 else {}
    answer = world.ask(ApiKey.API_VERSIONS, version, **software)
    listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert listed == {key: (api.listed_min, api.max_version) for key, api in SERVED.items()}
    assert listed[ApiKey.PRODUCE] == (0, 13)


class Bare:
    """A reply for a request that no codec of ours writes."""

    connection_id, session = 1, Session(ONLY_ENTRANCE, "test")

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.reasons: list[str] = []

    def send(self, frame: Any) -> None:
        self.sent.append(frame)

    def send_last(self, frame: Any, reason: str) -> None:
        raise AssertionError("the connection stays")

    def begin(self, session: Session) -> None:
        raise AssertionError("nobody is asked")

    def pause(self, for_ms: int) -> None:
        raise AssertionError("nobody has a quota")

    def hold(self) -> None:
        pass

    def release(self) -> None:
        pass

    def nothing(self) -> None:
        raise AssertionError("there must be an answer")

    def hang_up(self, reason: str) -> None:
        self.reasons.append(reason)


def handle(world: World, key: int, version: int, body: bytes = b"") -> Bare:
    reply = Bare()
    header = RequestHeader(key, version, 77, None, 0)
    world.node.handle(header, memoryview(bytearray(body)), reply, at(world.clock.wall_ms))
    return reply


def test_api_versions_of_a_future_version_is_answered_as_version_0_with_its_own_row_only(world: World) -> None:
    (frame,) = handle(world, ApiKey.API_VERSIONS, 99).sent
    correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 0, frame)
    assert (correlation_id, error(answer.error_code)) == (77, "UNSUPPORTED_VERSION")
    assert [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys] == [(18, 0, 5)]


def test_every_other_api_or_version_that_is_not_served_hangs_up(world: World) -> None:
    for key, api in sorted(APIS.items()):
        served = SERVED.get(key)
        for version in (api.max_version + 1, api.max_version if served is None else api.max_version + 2):
            if key != ApiKey.API_VERSIONS:
                reply = handle(world, key, version)
                assert (reply.sent, len(reply.reasons)) == ([], 1), (key, version)
    assert "is not served here" in handle(world, ApiKey.PRODUCE, 2).reasons[0]


def test_a_request_that_cannot_be_read_hangs_up(world: World) -> None:
    for key, api in sorted(SERVED.items()):
        if key != ApiKey.API_VERSIONS:
            reply = handle(world, key, api.max_version, b"\xff" * 3)
            assert (reply.sent, len(reply.reasons)) == ([], 1), key


# Metadata


def metadata(world: World, version: int, names: list[str] | None, create: bool = False) -> Any:
    topics = None if names is None else [{"name": name} for name in names]
    return world.ask(ApiKey.METADATA, version, topics=topics, allow_auto_topic_creation=create)


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_topics_and_brokers_are_told_in_every_version(world: World, version: int) -> None:
    topic = create_topic(world, partitions=2)
    answer = metadata(world, version, ["orders"])
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(1, "simulated", 9092)]
    (found,) = answer.topics
    assert (found.error_code, found.name, len(found.partitions)) == (0, "orders", 2)
    assert [(each.partition_index, each.leader_id, list(each.isr_nodes)) for each in found.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]
    if version >= 10:
        assert found.topic_id == topic.topic_id


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_all_topics_are_an_empty_list_at_first_and_null_later(world: World, version: int) -> None:
    create_topic(world)
    create_topic(world, "returns")
    assert [topic.name for topic in metadata(world, version, [] if version == 0 else None).topics] == [
        "orders",
        "returns",
    ]
    if version:
        assert metadata(world, version, []).topics == []


def test_topics_are_found_by_id_from_version_12_on(world: World) -> None:
    topic = create_topic(world)
    asked = [{"topic_id": topic.topic_id, "name": None}, {"topic_id": TopicId(int=5), "name": None}]
    known, unknown = world.ask(ApiKey.METADATA, 12, topics=asked).topics
    assert (known.name, known.error_code) == ("orders", 0)
    assert (unknown.name, error(unknown.error_code)) == (None, "UNKNOWN_TOPIC_ID")


def test_asking_for_a_topic_creates_it_where_both_sides_allow_it(world: World) -> None:
    (found,) = metadata(world, 9, ["orders"], create=False).topics
    assert error(found.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    (found,) = metadata(world, 9, ["orders"], create=True).topics
    assert (found.error_code, len(found.partitions)) == (0, 1)
    invalid, internal = metadata(world, 9, ["no spaces", "__consumer_offsets"], create=True).topics
    assert error(invalid.error_code) == "INVALID_TOPIC_EXCEPTION"
    assert error(internal.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_asking_creates_nothing_where_the_broker_forbids_it() -> None:
    world = World(1, {"auto.create.topics.enable": "false"}).start()
    (found,) = metadata(world, 9, ["orders"], create=True).topics
    assert error(found.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    world.kill()


def test_two_who_ask_for_a_new_topic_at_once_both_find_it(world: World) -> None:
    values = {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True}
    exchanges = [world.connect().request(ApiKey.METADATA, 9, values) for _ in range(2)]
    world.settle()
    assert [each.state for each in exchanges] == [State.ANSWERED] * 2
    assert [each.answer.topics[0].error_code for each in exchanges] == [0, 0]


def test_a_topic_created_anew_is_told_anew(world: World) -> None:
    first = create_topic(world, partitions=1)
    metadata(world, 12, ["orders"])
    delete_topic(world, "orders")
    second = create_topic(world, partitions=3)
    (found,) = metadata(world, 12, ["orders"]).topics
    assert found.topic_id == second.topic_id != first.topic_id
    assert len(found.partitions) == 3


def test_leader_epochs_rise_with_every_start(world: World) -> None:
    create_topic(world)
    epochs = []
    for ending in ("stop", "kill", "lose_power", "stop"):
        epochs.append(metadata(world, 7, ["orders"]).topics[0].partitions[0].leader_epoch)
        getattr(world, ending)()
        world.start()
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_is_described(world: World, version: int) -> None:
    answer = world.ask(ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True)
    assert (answer.error_code, answer.controller_id, answer.cluster_id) == (0, 1, world.node.image.cluster_id)
    assert [(broker.broker_id, broker.host) for broker in answer.brokers] == [(1, "simulated")]
    assert answer.cluster_authorized_operations > 0
    if version >= 1:
        answer = world.ask(ApiKey.DESCRIBE_CLUSTER, version, endpoint_type=2)
        assert error(answer.error_code) == "MISMATCHED_ENDPOINT_TYPE"


# DescribeTopicPartitions


def describe(world: World, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    return world.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=at,
    )


def pages(world: World, names: list[str], limit: int) -> list[list[tuple[str, list[int]]]]:
    """Every page until there is no cursor any more."""
    found, cursor = [], None
    while True:
        answer = describe(world, names, limit, cursor)
        found.append([(t.name, [each.partition_index for each in t.partitions]) for t in answer.topics])
        if answer.next_cursor is None:
            return found
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)


def test_topics_are_described_page_by_page(world: World) -> None:
    create_topic(world, "a", 2)
    create_topic(world, "b", 3)
    create_topic(world, "c", 1)
    assert pages(world, [], 2000) == [[("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]]
    assert pages(world, [], 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]
    assert pages(world, ["c", "b"], 4) == [[("b", [0, 1, 2]), ("c", [0])]]


def test_topics_that_do_not_exist_are_told_while_describing(world: World) -> None:
    answer = describe(world, ["nowhere", "no spaces"])
    assert [(topic.name, error(topic.error_code)) for topic in answer.topics] == [
        ("no spaces", "INVALID_TOPIC_EXCEPTION"),
        ("nowhere", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]


@pytest.mark.parametrize("index", [-1, -(2**31)])
def test_a_cursor_before_the_first_partition_is_refused(world: World, index: int) -> None:
    create_topic(world)
    answer = describe(world, [], cursor=("orders", index))
    assert [(each.error_code, each.name, list(each.partitions)) for each in answer.topics] == [
        (ErrorCode.INVALID_REQUEST, "orders", [])
    ]
    assert answer.next_cursor is None
