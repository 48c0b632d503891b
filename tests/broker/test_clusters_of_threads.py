"""Batches of several queries are committed in one process at the same time, each by a thread."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cordwood.client.settings import ClientSettings
from cordwood.embedded import Broker
from cordwood.spark.workers.state import cluster_of

THREADS = 4
REQUESTS = 200


def test_threads_do_not_wait_for_each_others_answers(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        names = [f"topic-{number}" for number in range(THREADS)]
        for name in names:
            broker.log.append(name, None, "there")
        together = threading.Barrier(THREADS)
        settings = ClientSettings(broker.bootstrap_servers, request_timeout_ms=600_000)

        def ask(name: str) -> int:
            together.wait()
            cluster = cluster_of(settings)
            for _ in range(REQUESTS):
                assert set(cluster.topics([name])) == {name}
            return id(cluster)

        with ThreadPoolExecutor(THREADS) as pool:
            assert len(set(pool.map(ask, names))) == THREADS
