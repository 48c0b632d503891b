"""A support bundle of a running broker, and of one that does not answer: complete as far as can be, without secrets."""

import json
import tarfile
from pathlib import Path

from tests.cli.conftest import Cordwood

from cordwood.cli.support_bundle import metrics_of, of_the_machine, without_secrets
from cordwood.embedded import Broker, Cluster
from cordwood.model.settings.configuration import load_settings


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as bundle:
        files = {member.name.removeprefix("cordwood-support/"): bundle.extractfile(member) for member in bundle}
        return {name: file.read() for name, file in files.items() if file is not None}


def test_a_bundle_tells_of_a_broker_all_but_its_records(tmp_path: Path) -> None:
    log, bundle = tmp_path / "broker.log", tmp_path / "bundle.tar.gz"
    log.write_text("a line that went by etcd://root:hunter2@host:2379\n")
    with Broker(data_dir=tmp_path / "data", settings={"metrics.listener": "127.0.0.1:0"}) as broker:
        cordwood_cli = Cordwood(broker.bootstrap_servers)
        cordwood_cli("topic", "create", "orders", "--partitions", "2")
        cordwood_cli("produce", "orders", stdin="a-record-that-nobody-else-sees\n")
        arguments = ["support-bundle", "-o", bundle, "-d", tmp_path / "data", "--log-file", log, "--timeout", "60"]
        said = cordwood_cli.json(*arguments)
        # The broker's settings name port 0, so the bundle misses the metrics; here is the port that was picked.
        address = broker._calls.server.metrics_address
        assert address is not None
        ((metrics_name, metrics),) = metrics_of(1, f"0.0.0.0:{address[1]}", address[0], 10.0)
    parts = contents(bundle)
    assert set(said["parts"]) <= set(parts)
    assert {"about.json", "settings.json", "status.json", "topics.json", "files.txt", "doctor.json", "log.txt"} <= set(
        parts
    )
    assert [each["partition"] for each in json.loads(parts["topics.json"])["orders"]] == [0, 1]
    assert b"/00000000000000000000.log" in parts["files.txt"]  # of whichever partition got the record
    assert [line.partition(":")[0] for line in said["missing"]] == ["the metrics of broker 1"]
    assert (metrics_name, b"cordwood_connections" in metrics) == ("metrics-1.txt", True)
    everything = metrics + b"".join(parts.values())
    assert b"a-record-that-nobody-else-sees" not in everything
    assert b"hunter2" not in everything


def test_a_bundle_without_a_broker_says_what_is_missing(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar.gz"
    said = Cordwood("127.0.0.1:1").json("support-bundle", "-o", bundle, "-d", tmp_path)
    assert {line.partition(":")[0] for line in said["missing"]} == {
        "the brokers' settings",
        "the cluster's state",
        "the metrics",
        "the log",
    }
    parts = contents(bundle)
    assert {"about.json", "files.txt", "doctor.json", "missing.txt"} == set(parts)
    assert b"no broker answers" in parts["missing.txt"]
    assert b"the log: no logging.file is known" in parts["missing.txt"]


def test_a_bundle_of_a_broker_that_does_not_run_is_made_by_its_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "broker.log").write_text("the disk is full\n")
    file = tmp_path / "broker.toml"
    file.write_text(
        f'log.dirs = "{tmp_path}/data"\nlogging.file = "{tmp_path}/broker.log"\nlisteners = "127.0.0.1:28123"\n'
    )
    bundle = tmp_path / "bundle.tar.gz"
    Cordwood("127.0.0.1:1").json("support-bundle", "-o", bundle, "--config", file)
    parts = contents(bundle)
    assert parts["log.txt"] == b"the disk is full\n"
    assert "files.txt" in parts
    assert b"127.0.0.1:28123" in parts["doctor.json"], "the ports are those of the broker, not the defaults"


def test_a_bundle_of_a_cluster_has_the_log_the_files_and_the_ports_of_every_broker_of_this_machine(
    tmp_path: Path,
) -> None:
    with Cluster(2, data_dir=tmp_path / "cluster") as cluster:
        homes = {int(home.name.removeprefix("node-")): home for home in (tmp_path / "cluster").glob("node-*")}
        for node, home in homes.items():
            home.with_name(f"node-{node}.log").write_text(f"a line of {node}\n")
        bundle = tmp_path / "bundle.tar.gz"
        said = Cordwood(cluster.bootstrap_servers).json("support-bundle", "-o", bundle, "--timeout", "60")
    assert [line.partition(":")[0] for line in said["missing"]] == ["the metrics"]
    parts = contents(bundle)
    assert homes.keys() == {1, 2}
    for node in homes:
        assert parts[f"log-{node}.txt"] == f"a line of {node}\n".encode()
        assert b"meta.properties" in parts[f"files-{node}.txt"]
        assert b"9092" not in parts[f"doctor-{node}.json"]
    assert set(json.loads(parts["settings.json"])) == {"1", "2"}


def test_a_broker_with_tls_is_described_without_its_keys() -> None:
    told = {
        "node.id": "1",
        "listeners": "USERS://h:1,127.0.0.1:2",
        "listener.security.protocol.map": "USERS:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "metrics.listener": "https://h:3",
        "ssl.keystore.location": "broker.pem",
    }
    settings = load_settings(settings=of_the_machine(told))
    assert [listener.name for listener in settings.listener_list] == ["USERS", "PLAINTEXT"]
    assert settings.metrics_address is not None
    assert settings.metrics_address.port == 3


def test_secrets_are_known_by_their_names_and_places() -> None:
    shown = without_secrets(
        {
            "cluster.etcd.password": "x",
            "cluster.store": "etcd://a:b@h:1",
            "log.dirs": "/d",
            "ssl.key": "k",
            "p.token": "",
        }
    )
    assert shown == {
        "cluster.etcd.password": "(hidden)",
        "cluster.store": "etcd://(hidden)@h:1",
        "log.dirs": "/d",
        "ssl.key": "(hidden)",
        "p.token": "",
    }
