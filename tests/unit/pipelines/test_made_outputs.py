"""Topics that an edition has written, deleted and made again while it runs."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deadline import eventually

from cordwood.client.bootstrap import Bootstrap
from cordwood.embedded import Broker
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.definition.loading import load_pipeline
from cordwood.pipelines.editions.project import Project
from cordwood.pipelines.execution.made_outputs import MadeOutputs, note_own_topics

FILE = """
from cordwood.pipelines import pipeline, topic

@pipeline("price", version=1, inputs=topic("orders"), outputs=topic("priced"))
def price(orders):
    return orders
"""


def test_a_topic_that_was_made_again_has_records_only_if_it_has(tmp_path: Path) -> None:
    (tmp_path / "price.py").write_text(FILE)
    pipeline = load_pipeline(tmp_path / "price.py")
    state = Project(tmp_path / "project").state("price")
    edition = state.begin(pipeline, starting="earliest", now_ms=1)
    with Broker() as broker:
        servers = Bootstrap(broker.bootstrap_servers)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

        def make() -> None:
            admin.create_topics([NewTopic("priced", 1)])["priced"].result(60)

        make()
        note_own_topics(state, edition, servers)
        outputs = MadeOutputs(pipeline, state, "v1", {}, servers)
        outputs.check()

        def refusal() -> WrongState:
            with pytest.raises(WrongState) as caught:
                outputs.check()
            return caught.value

        admin.delete_topics(["priced"])["priced"].result(60)
        eventually(lambda: "priced" not in admin.list_topics(timeout=60).topics, what="the end of the topic")
        assert refusal().message.endswith("was deleted, with what was written before")
        make()
        empty = refusal()
        assert empty.message.endswith(
            "was deleted, with what was written before, and an empty one of that name was made"
        )
        assert empty.hint.startswith("`cordwood pipeline reload price` or a new `run` writes the records from then on")
        producer = Producer({"bootstrap.servers": servers})
        producer.produce("priced", b"of somebody else")
        assert producer.flush(60) == 0
        full = refusal()
        assert full.message.endswith("and another one of that name has records")
        assert full.hint.startswith("`cordwood topic delete priced` deletes that one")
