"""Answers of a broker that keep the protocol's layout and break its meaning are reported at once, with the broker's
name."""

import pytest
from tests.unit.client.scripted_cluster import ScriptedCluster

from cordwood.client.errors import ClientError
from cordwood.wire.requests import RequestHeader, encode_response


class Nameless(ScriptedCluster):
    def _metadata(self, node: int, header: RequestHeader, frame: memoryview) -> bytes:
        return encode_response(header, {"topics": [{"name": None}]})


class Slotless(ScriptedCluster):
    def _family_join(self, node: int, header: RequestHeader, frame: memoryview) -> bytes:
        return encode_response(header, {"transactional_id": None})


def test_a_topic_without_a_name_is_no_answer_to_a_question_by_name() -> None:
    with (
        Nameless() as brokers,
        brokers.client() as client,
        pytest.raises(ClientError, match=r"broker .* answered a Metadata for names with a topic that has none"),
    ):
        client.topics(["orders"])


def test_a_family_that_is_joined_without_a_slot_is_told() -> None:
    with (
        Slotless() as brokers,
        brokers.client() as client,
        pytest.raises(ClientError, match=r"broker .* answered a FamilyJoin of batch 3 of family f without a slot"),
    ):
        client.family_join("f", 3, 1000)
