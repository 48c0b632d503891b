"""Whatever is said about order names its scope."""

import pytest

from cordwood.administration.topic.promises import ack_promise, order_promise


@pytest.mark.parametrize(
    ("scope", "partitions", "name", "said"),
    [
        ("global", 1, "global", "all records of the topic"),
        (None, 1, "global", "all records of the topic"),
        ("partition", 1, "partition", "as long as it has one partition"),
        ("partition", 3, "partition", "between the 3 partitions there is no order"),
        (None, 3, "partition", "between the 3 partitions there is no order"),
        ("key", 3, "key", "between keys there is no order"),
        ("key", 1, "key", "between keys there is no order"),
    ],
)
def test_the_scope_of_order_is_said_in_words(scope: str | None, partitions: int, name: str, said: str) -> None:
    promise = order_promise(scope, partitions)
    assert promise.name == name
    assert said in promise.meaning


def test_what_an_acknowledgement_means_depends_on_the_topic() -> None:
    assert "fsynced" in ack_promise("disk").meaning
    assert "power cut" in ack_promise("os").meaning
    assert ack_promise(None).name == "unknown"
