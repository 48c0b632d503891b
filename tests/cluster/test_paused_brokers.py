"""A broker that is paused makes transactions and groups wait for its lease, not for its return."""

from pathlib import Path

import pytest
from tests.cluster.confluent_load import Application, Reader, TransactionalWriter, at_work, doubled, lost
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.test_leader_killed import all_in_sync, create
from tests.deadline import eventually

QUICK = {"socket.timeout.ms": 2_000}
"""A client gives up a broker that does not answer by its own timeouts, of 30 s and 60 s by default."""
pytestmark = pytest.mark.timeout(400)


def test_transactions_and_groups_go_on_while_a_broker_is_paused_whatever_it_led(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "data", "--metadata", "supervisor") as cluster:
        topic = create(cluster, 6, 3)
        # Among six transactional ids each broker coordinates some, and each id writes to partitions of every broker.
        writers = [
            TransactionalWriter(f"writer-{number}", cluster.bootstrap, topic, **QUICK, **{"request.timeout.ms": 2_000})
            for number in range(6)
        ]
        readers = [
            Reader(f"{protocol}-{number}", cluster.bootstrap, [topic], f"{protocol}-{number}", protocol, **QUICK)
            for protocol in ("classic", "consumer")
            for number in range(3)
        ]
        applications: list[Application] = [*writers, *readers]
        with at_work(applications):

            def progress() -> list[int]:
                return [writer.transactions for writer in writers] + [reader.commits for reader in readers]

            def all_advance() -> None:
                before = progress()
                # Two more: the first of them may have been under way.
                eventually(
                    lambda: all(now >= then + 2 for now, then in zip(progress(), before, strict=True)),
                    what=f"progress beyond {before}",
                )

            all_advance()
            eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
            for node_id in cluster.pids:
                cluster.freeze(node_id)
                try:
                    all_advance()
                finally:
                    cluster.thaw(node_id)
                eventually(lambda: all_in_sync(cluster), what="all replicas in sync")
            all_advance()
            written = [value for writer in writers for value in writer.committed]
            for reader in readers:
                eventually(
                    lambda reader=reader: not lost(written, reader.values),  # type: ignore[misc]
                    what=f"all records at {reader.name}",
                )
        assert [error for each in applications for error in each.errors] == []
        for reader in readers:
            assert doubled(reader.values) == [], reader.name
            assert reader.revocations == 0, f"{reader.name} lost its session"
