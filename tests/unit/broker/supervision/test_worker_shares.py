"""What each worker of `cordwood serve --workers` is started with."""

import os
from pathlib import Path

import pytest

from cordwood.broker.supervision.cores import usable_cores
from cordwood.broker.supervision.worker_shares import ports_needed, shares
from cordwood.model.failure import Failure
from cordwood.model.settings.broker_settings import BrokerSettings


def settings(**texts: str) -> BrokerSettings:
    return BrokerSettings.from_texts({name.replace("__", "_").replace("_", "."): text for name, text in texts.items()})


def test_ports_and_ids_follow_each_other() -> None:
    own = settings(
        listeners="CLIENTS://0.0.0.0:9092,INNER://127.0.0.1:9192",
        listener_security_protocol_map="CLIENTS:PLAINTEXT,INNER:PLAINTEXT",
        inter_broker_listener_name="INNER",
        advertised_listeners="CLIENTS://example.org:19092",
        metrics_listener="127.0.0.1:9404",
        node_id="7",
    )
    first, second = shares(own, "/data", "unix:///data/metadata.sock", 2, [])
    assert (first.node_id, second.node_id) == (7, 8)
    assert first.settings["listeners"] == "CLIENTS://0.0.0.0:9092,INNER://127.0.0.1:9192"
    assert second.settings["listeners"] == "CLIENTS://0.0.0.0:9093,INNER://127.0.0.1:9193"
    assert second.settings["advertised.listeners"] == "CLIENTS://example.org:19093"
    assert second.settings["metrics.listener"] == "127.0.0.1:9405"
    assert second.settings["log.dirs"] == "/data/workers/8"
    assert second.settings["node.id"] == "8"
    # A broker takes them.
    BrokerSettings.from_texts({**own.texts, **second.settings})


def test_port_0_takes_free_ports() -> None:
    own = settings(listeners="127.0.0.1:0", metrics_listener="127.0.0.1:0")
    assert ports_needed(own, 2) == 6
    found = shares(own, "/data", "unix:///s", 2, [15001, 15002, 15003, 15004, 15005, 15006])
    assert [share.listeners[0].port for share in found] == [15001, 15004]


def test_workers_have_a_listener_of_their_own_beside_the_one_of_clients() -> None:
    own = settings(listeners="0.0.0.0:9092", advertised_listeners="example.org:9092")
    assert ports_needed(own, 2) == 2
    for place, share in enumerate(shares(own, "/data", "unix:///s", 2, [15001, 15002])):
        clients, workers = BrokerSettings.from_texts({**own.texts, **share.settings}).listener_list
        assert (clients.name, clients.address.port, clients.between_brokers) == ("PLAINTEXT", 9092 + place, False)
        assert (str(workers.address), workers.between_brokers) == (f"BROKERS://127.0.0.1:{15001 + place}", True)
        assert (str(clients.advertised), workers.advertised) == (f"PLAINTEXT://example.org:{9092 + place}", None)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({"listeners": "A://127.0.0.1:9092,B://127.0.0.1:9093"}, "would both have port 9093"),
        ({"listeners": "127.0.0.1:9092", "metrics_listener": "127.0.0.1:9093"}, "would both have port 9093"),
        ({"listeners": "127.0.0.1:65535"}, "would have port 65536"),
    ],
)
def test_ports_that_overlap_or_do_not_exist_are_refused(texts: dict[str, str], told: str) -> None:
    if "A://" in texts["listeners"]:
        texts = {
            **texts,
            "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
            "inter_broker_listener_name": "A",
        }
    with pytest.raises(Failure, match=told):
        shares(settings(**texts), "/data", "unix:///s", 2, [15001, 15002])


def test_memory_is_divided_and_replicas_are_not_multiplied() -> None:
    (share, *_) = shares(
        settings(default_replication_factor="3"), "/data", "unix:///s", 4, [15001, 15002, 15003, 15004]
    )
    assert share.settings["tail.memory.max.bytes"] == str(67_108_864 // 4)
    assert share.settings["queued.max.request.bytes"] == str(104_857_600)
    assert share.settings["log.cleaner.dedupe.buffer.size"] == str(134_217_728 // 4)
    assert share.settings["default.replication.factor"] == "1"
    assert share.settings["replication.factor.max"] == "1"
    (share, *_) = shares(
        settings(log_scrub_bytes_per_second="0"), "/data", "unix:///s", 4, [15001, 15002, 15003, 15004]
    )
    assert share.settings["log.scrub.bytes.per.second"] == "0"


@pytest.mark.parametrize(
    ("files", "line", "cores"),
    [
        ({}, "0::/", None),
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"cpu.max": "100000 100000"}, "0::/", 1),
        ({"cpu.max": "50000 100000"}, "0::/", 1),
        ({"a/cpu.max": "100000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", 1),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/x", 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "4:cpu,cpuacct:/x", None),
    ],
)
def test_auto_counts_the_cores_that_the_process_may_use(
    tmp_path: Path, files: dict[str, str], line: str, cores: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(text + "\n")
    (tmp_path / "own").write_text(line + "\n")
    found = usable_cores(tmp_path / "cgroup", tmp_path / "own")
    assert found == (len(os.sched_getaffinity(0)) if cores is None else cores)


def test_metrics_with_tls_stay_so() -> None:
    own = settings(metrics_listener="https://127.0.0.1:9404", ssl_keystore_location="broker.pem")
    (only,) = shares(own, "/data", "unix:///s", 1, [15001])
    assert only.settings["metrics.listener"] == "HTTPS://127.0.0.1:9404"


def test_workers_may_have_one_listener_with_tls() -> None:
    own = settings(listeners="SSL://127.0.0.1:9093", ssl_keystore_location="broker.pem")
    (only,) = shares(own, "/data", "unix:///s", 1, [15001])
    assert only.settings["listeners"] == "SSL://127.0.0.1:9093,BROKERS://127.0.0.1:15001"
