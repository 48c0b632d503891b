"""Metrics and warnings of a whole broker: a group that falls behind, and is overtaken, is seen."""

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from tests.deadline import eventually_here
from tests.moments import at

from cordwood.broker.metrics import endpoint as metrics_endpoint
from cordwood.broker.server import Server
from cordwood.broker.storage.memory import Memory
from cordwood.cluster.planner import topics
from cordwood.embedded import Broker
from cordwood.groups.state.committed_positions import Commit
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.listeners import ListenerAddress
from cordwood.node.coordinators.group_positions import CommitRequest
from cordwood.node.coordinators.group_shards import Author
from cordwood.records.build import build_batch

EVERYTHING = {"listeners": "127.0.0.1:0", "metrics.listener": "127.0.0.1:0", "lag.check.interval.ms": "100"}

LABELS = ("api", "group", "topic", "partition", "key", "le", "error", "directory")
APPEND_RATE = "cordwood_partition_append_bytes_per_second"

Samples = dict[tuple[str, ...], float]


class Stage:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.node = server.node

    async def asked(self, request: Callable[[Callable[[Any], None]], None]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def ask() -> None:
            request(answer.set_result)

        self.server.driver.run(ask)
        return await answer

    async def create(self, topic: str) -> None:
        wanted = [topics.NewTopic(topic)]
        await self.asked(lambda done: self.server.driver.metadata(lambda writer: writer.create_topics(wanted), done))
        await eventually_here(lambda: topic in self.node.hosted.topics)

    def append(
        self,
        topic: str,
        count: int,
        timestamp_ms: int,
        partition: int = 0,
        size: int = 10,
        keys: Sequence[bytes | None] = (None,),
    ) -> None:
        batch = build_batch((timestamp_ms, key, bytes(size), ()) for key in islice(cycle(keys), count))
        now_ms = int(time.time() * 1000)

        def write() -> None:
            self.node.appends.append_internal(self.node.hosted.leader(topic, partition), batch, at(now_ms))

        assert self.server.driver.run(write)

    async def commit(self, group: str, topic: str, offset: int) -> None:
        partition = self.node.hosted.leader(topic, 0)
        commits = [Commit(partition.name, offset, -1, None, partition.topic_id)]
        assert await self.asked(
            lambda done: self.node.groups.positions.commit(CommitRequest(group, Author(), commits), done)
        ) == [ErrorCode.NONE]

    async def http(self, request: bytes) -> tuple[bytes, bytes]:
        assert self.server.metrics_address is not None
        reader, writer = await asyncio.open_connection(*self.server.metrics_address)
        writer.write(request)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return head, body

    async def scrape(self) -> Samples:
        head, body = await self.http(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
        return {
            (sample.name, *(sample.labels[label] for label in LABELS if label in sample.labels)): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }

    async def scraped(self, wanted: Callable[[Samples], bool]) -> Samples:
        while not wanted(samples := await self.scrape()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return samples


@asynccontextmanager
async def broker(**texts: str) -> AsyncIterator[Stage]:
    changes = {name.replace("_", "."): text for name, text in texts.items()}
    server = await Server.start(BrokerSettings.from_texts(EVERYTHING | changes), memory=Memory())
    try:
        yield Stage(server)
    finally:
        await server.stop()


async def test_without_the_setting_nothing_listens_and_nothing_is_counted() -> None:
    async with broker(metrics_listener="") as stage:
        assert stage.server.metrics_address is None


async def test_a_group_behind_has_its_lag_and_its_time_to_data_loss() -> None:
    async with broker(log_retention_ms="3600000") as stage:
        await stage.create("t")
        hour_ago_ms = int(time.time() * 1000) - 1_800_000
        stage.append("t", 100, hour_ago_ms)
        await stage.commit("readers", "t", 40)
        key = ("readers", "t", "0")
        samples = await stage.scraped(lambda found: ("cordwood_group_drain_records_per_second", *key) in found)
        assert samples["cordwood_group_lag_records", *key] == 60
        assert samples["cordwood_group_lost_records", *key] == 0
        assert samples["cordwood_group_drain_records_per_second", *key] == 0
        assert 1800 <= samples["cordwood_group_lag_seconds", *key] < 1830
        assert 1770 < samples["cordwood_group_time_to_data_loss_seconds", *key] <= 1800.001
        assert samples["cordwood_log_end_offset", "t", "0"] == 100
        assert samples["cordwood_log_size_bytes", "t", "0"] > 1000
        assert samples["cordwood_topics",] == 2


async def test_a_broker_tells_what_it_leads_and_what_it_uses() -> None:
    async with broker(num_partitions="3", min_insync_replicas="2") as stage:
        await stage.create("t")
        samples = await stage.scrape()
        assert samples["cordwood_partitions_led",] == 3
        assert samples["cordwood_partitions_under_replicated",] == 0
        assert samples["cordwood_partitions_below_min_in_sync",] == 3
        assert samples["cordwood_partitions_without_leader",] == 0
        assert samples["cordwood_controller",] == 1
        assert 0 < samples["cordwood_loop_cpu_seconds_total",] <= samples["cordwood_cpu_seconds_total",]
        assert samples["cordwood_resident_memory_bytes",] > 10_000_000


async def test_a_warning_is_given_once_before_a_loss_and_once_when_it_happened(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "cordwood.lag")
    async with broker(log_retention_ms="3600000", lag_warning_ms="1000000") as stage:
        await stage.create("t")
        stage.append("t", 100, int(time.time() * 1000) - 3_000_000)
        await stage.commit("readers", "t", 40)
        await stage.commit("finished", "t", 100)
        watch = stage.node.lag_watch
        await eventually_here(lambda: [watched for watched in watch.positions.values() if watched.warned])
        stage.server.driver.run(lambda: stage.node.hosted.leader("t", 0).replica.log.delete_records_before(70))
        await eventually_here(lambda: watch.overtaken_total, to_be=1)
        sweep = watch.positions
        await eventually_here(lambda: watch.positions is not sweep)
        sweep = watch.positions
        await eventually_here(lambda: watch.positions is not sweep)
        samples = await stage.scrape()
        assert samples["cordwood_group_lost_records", "readers", "t", "0"] == 30
        assert samples["cordwood_group_lag_records", "readers", "t", "0"] == 30
        assert samples["cordwood_group_positions_overtaken_total",] == 1
    said = [record.getMessage() for record in caplog.records if record.name == "cordwood.lag"]
    assert len(said) == 2, said
    assert said[0].startswith("group readers may lose records of t-0 in ")
    assert said[1] == ("group readers has lost up to 30 records of t-0: its position is 40, and the log begins at 70")


async def test_a_hot_partition_has_its_share_of_the_traffic() -> None:
    async with broker(num_partitions="4") as stage:
        await stage.create("t")
        now_ms = int(time.time() * 1000)
        stage.append("t", 1, now_ms, partition=0)
        stage.append("t", 1, now_ms, partition=1)
        await eventually_here(lambda: TopicPartition("t", 1) in stage.node.lag_watch.traffic)
        for _ in range(3):
            stage.append("t", 1, now_ms, partition=0, size=1000)
        stage.append("t", 1, now_ms, partition=1, size=1000)
        samples = await stage.scraped(
            lambda found: 0.74 < found.get(("cordwood_partition_traffic_share", "t", "0"), 0) < 0.76
        )
        assert samples["cordwood_partition_traffic_share", "t", "1"] == pytest.approx(0.25, abs=0.01)
        # Three of four parts to the busiest; the others have a third of a part each.
        assert samples["cordwood_topic_traffic_skew", "t"] == pytest.approx(9, abs=0.5)


async def test_a_topic_whose_records_all_go_to_one_of_few_partitions_is_skewed_beyond_any_limit() -> None:
    async with broker(num_partitions="3") as stage:
        await stage.create("t")
        await stage.create("even")
        now_ms = int(time.time() * 1000)
        for partition in range(3):
            stage.append("even", 1, now_ms, partition=partition)
        stage.append("t", 1, now_ms, partition=0)
        await eventually_here(lambda: TopicPartition("t", 0) in stage.node.lag_watch.traffic)
        await eventually_here(lambda: TopicPartition("even", 2) in stage.node.lag_watch.traffic)
        stage.append("t", 1, now_ms, partition=0, size=1000)
        for partition in range(3):
            stage.append("even", 1, now_ms, partition=partition, size=1000)
        samples = await stage.scraped(lambda found: ("cordwood_topic_traffic_skew", "t") in found)
        assert samples["cordwood_topic_traffic_skew", "t"] == math.inf
        even = await stage.scraped(lambda found: ("cordwood_topic_traffic_skew", "even") in found)
        assert even["cordwood_topic_traffic_skew", "even"] == pytest.approx(1, abs=0.1)


async def test_internal_topics_and_those_with_one_partition_have_no_skew() -> None:
    async with broker() as stage:
        await stage.create("t")
        now_ms = int(time.time() * 1000)
        stage.append("t", 1, now_ms)
        await stage.commit("readers", "t", 0)
        await eventually_here(lambda: stage.node.lag_watch.positions)
        for number in range(5):
            await stage.commit("readers", "t", number)
            stage.append("t", 1, now_ms)
        samples = await stage.scraped(
            lambda found: (
                max(
                    (rate for name, rate in found.items() if name[:2] == (APPEND_RATE, "__consumer_offsets")),
                    default=0,
                )
                > 0
                and found.get((APPEND_RATE, "t", "0"), 0) > 0
            )
        )
        assert not [name for name in samples if name[0] == "cordwood_topic_traffic_skew"]


async def test_refused_appends_are_counted_by_error() -> None:
    with Broker(settings={"metrics.listener": "127.0.0.1:0", "auto.create.topics.enable": False}) as embedded:
        admin = AdminClient({"bootstrap.servers": embedded.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, config={"max.message.bytes": "1000"})])["t"].result(120)
        producer = Producer({"bootstrap.servers": embedded.bootstrap_servers})
        producer.produce("t", bytes(5000))
        producer.produce("t", b"taken")
        await asyncio.to_thread(producer.flush, 30)
        stage = Stage(embedded._calls.server)
        samples = await stage.scrape()
        assert samples["cordwood_refused_appends_total", "MESSAGE_TOO_LARGE"] == 1
        assert len([name for name in samples if name[0] == "cordwood_refused_appends_total"]) == 1


async def test_free_disk_space_is_told_for_the_data_directory(tmp_path: Path) -> None:
    texts = EVERYTHING | {"log.dirs": str(tmp_path)}
    server = await Server.start(BrokerSettings.from_texts(texts))
    try:
        samples = await Stage(server).scrape()
        disk = os.statvfs(tmp_path)
        assert samples["cordwood_disk_size_bytes", str(tmp_path)] == disk.f_blocks * disk.f_frsize
        assert 0 < samples["cordwood_disk_free_bytes", str(tmp_path)] <= disk.f_blocks * disk.f_frsize
    finally:
        await server.stop()


async def test_in_memory_there_is_no_disk_to_tell_of() -> None:
    async with broker() as stage:
        sizes = ("cordwood_disk_size_bytes", "cordwood_disk_free_bytes")
        assert not [name for name in await stage.scrape() if name[0] in sizes]


async def test_partitions_without_a_position_are_told_also_of_a_group_without_members() -> None:
    async with broker(num_partitions="2") as stage:
        await stage.create("t")
        stage.append("t", 5, int(time.time() * 1000), partition=1)
        await stage.commit("readers", "t", 0)
        samples = await stage.scraped(lambda found: ("cordwood_group_lag_records", "readers", "t", "0") in found)
        assert samples["cordwood_group_never_committed", "readers", "t", "1"] == 1


async def test_requests_and_connections_are_counted() -> None:
    async with broker() as stage:
        reader, writer = await asyncio.open_connection(*stage.server.address)
        ask = b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
        for _ in range(3):
            writer.write(len(ask).to_bytes(4, "big") + ask)
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size)
        samples = await stage.scrape()
        assert samples["cordwood_requests_total", "ApiVersions"] == 3
        assert samples["cordwood_request_bytes_total", "ApiVersions"] == 3 * len(ask)
        assert samples["cordwood_response_bytes_total", "ApiVersions"] == 3 * (size + 4)
        assert samples["cordwood_request_duration_seconds_count", "ApiVersions"] == 3
        assert samples["cordwood_connections",] == 1
        writer.close()
        await stage.scraped(lambda found: found["cordwood_connections",] == 0)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 "),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 "),
        (b"hello\r\n\r\n", b"HTTP/1.1 400 "),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000, b"HTTP/1.1 431 "),
    ],
)
async def test_what_is_no_scrape_is_refused(request_bytes: bytes, status: bytes) -> None:
    async with broker() as stage:
        head, _ = await stage.http(request_bytes)
        assert head.startswith(status)


async def test_a_broker_says_over_http_that_it_runs_and_takes_clients() -> None:
    async with broker() as stage:
        for path, words in ((b"/live", b"the broker runs"), (b"/ready", b"the broker takes clients")):
            head, body = await stage.http(b"GET " + path + b" HTTP/1.1\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert body.strip() == words


async def test_a_broker_that_starts_or_cannot_go_on_runs_but_is_not_ready() -> None:
    ready = b"GET /ready HTTP/1.1\r\n\r\n"
    reason = "the broker starts: it opens its logs"
    endpoint = await metrics_endpoint.MetricsEndpoint.start(
        ListenerAddress("METRICS", "127.0.0.1", 0), lambda: lambda: b"", lambda: reason
    )
    reader, writer = await asyncio.open_connection(*endpoint.address)
    writer.write(ready)
    answer = await reader.read()
    writer.close()
    endpoint.close()
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert answer.endswith(reason.encode() + b"\n")
    async with broker() as stage:
        stage.server._fail(OSError("the disk is gone"))
        head, body = await stage.http(ready)
        assert head.startswith(b"HTTP/1.1 503 ")
        assert body.strip() == b"the broker cannot go on: the disk is gone"


async def test_a_scrape_that_is_not_read_is_dropped_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_endpoint, "TIMEOUT_S", 0.2)
    text = bytes(32 << 20)  # more than the kernel takes for a peer that does not read
    endpoint = await metrics_endpoint.MetricsEndpoint.start(
        ListenerAddress("METRICS", "127.0.0.1", 0), lambda: lambda: text, lambda: ""
    )
    reader, writer = await asyncio.open_connection(*endpoint.address, limit=1024)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    for scrapes in (1, 0):
        while len(endpoint._open) != scrapes:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    received = 0
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(1 << 20):
            received += len(part)
    assert received < len(text)
    writer.close()
    endpoint.close()


async def test_probes_are_answered_while_many_connections_send_half_of_a_request() -> None:
    """17 half requests made /live and /ready fail for 10 s: an orchestrator would restart the broker."""
    endpoint = await metrics_endpoint.MetricsEndpoint.start(
        ListenerAddress("METRICS", "127.0.0.1", 0), lambda: lambda: b"", lambda: ""
    )
    halves = []
    for _ in range(metrics_endpoint.MAX_CONNECTIONS + 10):
        half = await asyncio.open_connection(*endpoint.address)
        half[1].write(b"GET /metrics HTTP")
        halves.append(half)
    while len(endpoint._open) < metrics_endpoint.MAX_CONNECTIONS:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    for target in (b"/live", b"/ready", b"/metrics"):
        reader, writer = await asyncio.open_connection(*endpoint.address)
        writer.write(b"GET " + target + b" HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
    assert len(endpoint._open) <= metrics_endpoint.MAX_CONNECTIONS
    with contextlib.suppress(ConnectionError):
        assert await halves[0][0].read() == b""
    for _, writer in halves:
        writer.close()
    endpoint.close()


async def test_a_stalled_loop_is_counted() -> None:
    async with broker() as stage:
        await asyncio.sleep(0)
        time.sleep(0.25)  # noqa: ASYNC251 the stall
        samples = await stage.scraped(lambda found: found["cordwood_loop_stalls_total",] >= 1)
        assert samples["cordwood_loop_longest_stall_seconds",] >= 0.05


async def test_after_a_restart_a_group_that_nobody_asks_about_is_watched_again(tmp_path: Path) -> None:
    texts = EVERYTHING | {"log.dirs": str(tmp_path), "log.segment.bytes": "1000", "log.retention.ms": "3600000"}
    settings = BrokerSettings.from_texts(texts)
    began_ms = int(time.time() * 1000) - 1_000_000
    stage = Stage(await Server.start(settings))
    try:
        await stage.create("t")
        for hundred in range(10):
            stage.append("t", 20, began_ms + hundred * 100_000, size=30)
        await stage.commit("readers", "t", 50)
    finally:
        await stage.server.stop()
    stage = Stage(await Server.start(settings))
    try:
        key = ("readers", "t", "0")
        samples = await stage.scraped(lambda found: ("cordwood_group_lag_records", *key) in found)
        assert samples["cordwood_group_lag_records", *key] == 150
        # Offset 50 is in the third batch, which came 800 s ago and has a segment of its own.
        assert 700 < samples["cordwood_group_lag_seconds", *key] < 930
        assert 2770 < samples["cordwood_group_time_to_data_loss_seconds", *key] <= 2800.001
    finally:
        await stage.server.stop()


async def test_the_keys_behind_a_hot_partition_are_named_only_if_that_is_wanted() -> None:
    for wanted in ("true", "false"):
        async with broker(num_partitions="4", metrics_hot_keys=wanted) as stage:
            await stage.create("t")
            now_ms = int(time.time() * 1000)
            stage.append("t", 1, now_ms, partition=2)
            await eventually_here(lambda: TopicPartition("t", 2) in stage.node.lag_watch.traffic)
            stage.append("t", 90, now_ms, partition=2, keys=[b"whale"] * 9 + [b"minnow"])
            if wanted == "false":
                found = await stage.scraped(lambda found: ("cordwood_topic_traffic_skew", "t") in found)
                assert not [key for key in found if key[0] == "cordwood_partition_hot_key_share"]
                continue
            found = await stage.scraped(lambda found: ("cordwood_partition_hot_key_share", "t", "2", "whale") in found)
            assert found["cordwood_partition_hot_key_share", "t", "2", "whale"] == pytest.approx(0.9)
            assert found["cordwood_partition_hot_key_share", "t", "2", "minnow"] == pytest.approx(0.1)


async def test_hot_keys_that_look_alike_are_told_apart() -> None:
    async with broker(num_partitions="4", metrics_hot_keys="true") as stage:
        await stage.create("t")
        now_ms = int(time.time() * 1000)
        stage.append("t", 1, now_ms, partition=2)
        await eventually_here(lambda: TopicPartition("t", 2) in stage.node.lag_watch.traffic)
        stage.append("t", 90, now_ms, partition=2, keys=[b"\xff", rb"\xff", rb"\xff"])
        found = await stage.scraped(lambda found: any(key[0] == "cordwood_partition_hot_key_share" for key in found))
        shares = {key[3]: value for key, value in found.items() if key[0] == "cordwood_partition_hot_key_share"}
        assert shares == {r"\xff": pytest.approx(1 / 3), r"\\xff": pytest.approx(2 / 3)}


@pytest.mark.stories
async def test_retention_takes_what_was_foreseen_and_not_before() -> None:
    async with broker(
        log_retention_ms="8000",
        log_segment_bytes="1000",
        log_retention_check_interval_ms="100",
        log_flush_offset_checkpoint_interval_ms="100",
        lag_warning_ms="0",
    ) as stage:
        await stage.create("t")
        came_ms = int(time.time() * 1000)
        for _ in range(5):
            stage.append("t", 20, came_ms, size=30)
        await stage.commit("readers", "t", 30)
        watch, key = stage.node.lag_watch, ("readers", TopicPartition("t", 0))
        await eventually_here(lambda: key in watch.positions)
        foreseen_ms = watch.positions[key].lag.time_to_data_loss_ms
        assert foreseen_ms is not None
        assert 0 <= foreseen_ms <= 8001
        log = stage.node.hosted.leader("t", 0).replica.log
        await eventually_here(lambda: log.offsets.start > 30)
        assert time.time() * 1000 > came_ms + 8000
        await eventually_here(lambda: watch.positions[key].lag.lost_records == log.offsets.start - 30)
        assert watch.overtaken_total == 1
