"""The raw client at every version of the protocol that it knows: it does the same with brokers of any age."""

import uuid

import pytest
from tests.conftest import MakeTopic, RunningBroker
from tests.deadline import eventually
from tests.interop.raw_batches import batch_of, records_of

from cordwood.client import versions
from cordwood.client.cluster import EARLIEST, LATEST, Cluster, Produced
from cordwood.client.settings import ClientSettings
from cordwood.model.identifiers import TopicPartition
from cordwood.wire.apis import APIS

pytestmark = pytest.mark.landing


@pytest.mark.parametrize("age", range(19))
def test_a_broker_of_any_age_will_do(
    broker: RunningBroker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch, age: int
) -> None:
    """The client speaks no version above `age`, except where there is no such version."""
    for api_key, last in versions.WRITTEN_FOR.items():
        least = versions.NEEDED.get(api_key, APIS[api_key].min_version)
        monkeypatch.setitem(versions.WRITTEN_FOR, api_key, min(last, max(age, least)))
    if age < 12:
        monkeypatch.setattr(versions.BrokerVersions, "transaction_version", 1)
    name, transactional_id = make_topic(2), f"writer-{uuid.uuid4().hex}"
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    group = f"group-of-{name}"
    with Cluster(ClientSettings(broker.bootstrap)) as cluster:
        assert len(cluster.topics([name])[name].partitions) == 2
        batches = {first: [batch_of([b"one", b"two"], timestamp_ms=1000)], second: [batch_of([b"three"])]}
        assert cluster.produce(batches) == {first: Produced(0, 2), second: Produced(0, 1)}
        assert cluster.list_offsets({first: LATEST})[first].offset == 2
        assert cluster.list_offsets({first: EARLIEST})[first].offset == 0
        assert cluster.list_offsets({first: 1001})[first].offset == 1
        assert records_of(cluster.stream(first, 0, 2)) == [(0, b"one"), (1, b"two")]

        cluster.commit(group, {first: 1})
        assert cluster.committed(group) == cluster.committed(group, [first, second]) == {first: 1}
        assert cluster.describe_configs(name)["cleanup.policy"] == "delete"

        producer = cluster.init_producer_id(transactional_id)
        batch = batch_of([b"four"], producer=producer, sequence=0, transactional=True)
        cluster.produce({second: [batch]}, transactional_id=transactional_id)
        cluster.commit_in_transaction(transactional_id, producer, group, {first: 2})
        cluster.end_transaction(transactional_id, producer, commit=True)
        # Old versions cannot ask to wait until the transaction is through.
        eventually(lambda: cluster.committed(group) == {first: 2}, what="the position of the transaction")
        cluster.delete_group(group)
        assert cluster.committed(group) == {}
