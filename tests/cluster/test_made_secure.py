"""A running cluster gets TLS, log-ins and rights as docs/operations/secure-a-cluster.md says, under load."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess, free_port
from tests.cluster.confluent_load import Application, Reader, TransactionalWriter, Writer, at_work, lost, stop
from tests.deadline import eventually
from tests.etcd.members import EtcdCluster
from tests.interop.confluent_clients import read_to_end

from cordwood.administration.cluster.view import cluster_view, with_releases
from cordwood.administration.connection import Connection
from cordwood.model.failure import Failure

pytestmark = pytest.mark.timeout(900)
StartEtcd = Callable[..., AbstractContextManager[EtcdCluster]]
PAGE = Path(__file__).parents[2] / "docs/operations/secure-a-cluster.md"
NODES = (1, 2, 3)
PORTS = ("9092", "9094", "9095")
PARTITIONS = range(3)
TIMEOUT_S = 60
PATIENT = {"transaction.timeout.ms": 600_000}
"""No transaction ends by itself while brokers of a busy machine start."""


def blocks(kind: str) -> Iterator[str]:
    """The fenced blocks of the page that have this info string."""
    return iter(re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


class Configured(BrokerProcess):
    """A broker whose settings are in a file alone."""

    def _listen(self) -> list[str]:
        return []


class Site:
    """Three brokers at addresses of this machine, and the files of the page in one directory."""

    def __init__(self, etcd: EtcdCluster, directory: Path) -> None:
        self.directory = directory
        self._ports = {(node, port): str(free_port()) for node in NODES for port in PORTS}
        self._place = {"cluster.name": '"woods"', "cluster.store": f'"etcd://{",".join(etcd.endpoints)}"'}
        self._place["broker.lease.ms"] = "20000"  # a busy machine
        self._settings: dict[str, str] = {}
        self.brokers = {
            node: Configured(directory / f"data-{node}", options=("--config", str(self._config(node))))
            for node in NODES
        }

    def _config(self, node: int) -> Path:
        return self.directory / f"node-{node}.toml"

    def here(self, text: str, node: int = 1) -> str:
        """The text of the page for this machine: those about broker 1 are for `node`."""
        text = text.replace("/etc/cordwood/", f"{self.directory}/").replace("broker-1.", f"broker-{node}.")
        text = re.sub(r"10\.0\.0\.1:(\d+)\b(?!,10)", lambda at: f"127.0.0.1:{self._ports[node, at[1]]}", text)
        return text.replace("10.0.0.$n", "127.0.0.1")

    def configure(self, toml: str) -> None:
        """Adds the lines to the files of all brokers, in place of those with the same names."""
        self._settings |= {name: value for name, _, value in (line.partition(" = ") for line in toml.splitlines())}
        password = self.directory / "broker.password"
        for node in NODES:
            own = {**self._place, "node.id": str(node), **self._settings}
            text = self.here("".join(f"{name} = {value}\n" for name, value in own.items()), node)
            known = password.read_text().strip() if password.exists() else ""
            self._config(node).write_text(text.replace("PASSWORD", known))

    def servers(self, port: str) -> str:
        return ",".join(f"127.0.0.1:{self._ports[node, port]}" for node in NODES)

    def walk(self, commands: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}
        environment |= {"SERVERS": self.servers("9092"), "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}
        script = self.here(commands)
        done = subprocess.run(
            ["bash", "-eu", "-c", script], cwd=self.directory, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def client(self, properties: str, user: str) -> dict[str, str]:
        """The settings of the page for a program."""
        settings = dict(line.split("=", 1) for line in self.here(properties).splitlines())
        password = (self.directory / f"{user}.password").read_text().strip()
        own = {"bootstrap.servers": self.servers("9094"), "sasl.username": user, "sasl.password": password}
        return {**settings, **own}

    def restart_all(self, connection: Callable[[], Connection]) -> None:
        def troubles() -> list[str]:
            try:
                view = with_releases(cluster_view(connection()), TIMEOUT_S)
            except Failure as failure:
                return [failure.message]
            away = [] if len(view.nodes) == len(NODES) else [f"{len(view.nodes)} brokers"]
            unreached = [reason for node in view.nodes for reason in node.unreached]
            return [*away, *unreached, *(f"{each.partition}: {each.in_words}" for each in view.troubles)]

        for broker in self.brokers.values():
            eventually(troubles, to_be=[], what="no trouble")
            assert broker.stop() == 0, broker.output()
            broker.start()
        eventually(troubles, to_be=[], what="no trouble")


class Programs:
    """A producer, a transactional one, and a reader, who take the same settings."""

    def __init__(self, name: str, settings: Mapping[str, str], transactional_id: str) -> None:
        servers, rest = settings["bootstrap.servers"], {k: v for k, v in settings.items() if k != "bootstrap.servers"}
        self.orders = Writer(f"{name}-orders", servers, "orders", **{"enable.idempotence": True}, **rest)
        self.payments = TransactionalWriter(
            f"{name}-payments", servers, "payments", **{"transactional.id": transactional_id, **PATIENT}, **rest
        )
        self.reader = Reader(f"{name}-reader", servers, ["orders", "payments"], "shop", "classic", **rest)
        self.all: list[Application] = [self.orders, self.payments, self.reader]

    def errors(self) -> list[str]:
        return [error for each in self.all for error in each.errors]


def test_nothing_is_lost_doubled_or_refused_on_the_way_from_plain_text(start_etcd: StartEtcd, tmp_path: Path) -> None:
    steps, commands = blocks("toml"), blocks("sh walk")
    (properties,) = blocks("properties")
    with start_etcd() as etcd, ExitStack() as stack:
        site = Site(etcd, tmp_path)
        site.configure(next(steps))
        for broker in site.brokers.values():
            stack.enter_context(broker)
        plain = Connection(site.servers("9092"), TIMEOUT_S)
        eventually(lambda: len(cluster_view(plain).nodes), to_be=3, what="three brokers")
        admin = AdminClient({"bootstrap.servers": site.servers("9092")})
        new = [NewTopic(name, 3, 3, config={"min.insync.replicas": "2"}) for name in ("orders", "payments")]
        for created in admin.create_topics(new).values():
            created.result(TIMEOUT_S)

        before = Programs("before", {"bootstrap.servers": site.servers("9092")}, "payments")
        with at_work(before.all):
            site.walk(next(commands))
            site.walk(next(commands))
            site.configure(next(steps))
            site.restart_all(lambda: plain)
            site.walk(next(commands))
            eventually(lambda: before.reader.values, what="records that are read")
        # The programs move: with the same group and the same transactional id.
        after = Programs("after", site.client(properties, "shop"), "payments")
        secure = Connection(site.servers("9094"), TIMEOUT_S, site.client(properties, "admin"))
        with at_work(after.all):
            site.configure(next(steps))
            site.restart_all(lambda: secure)
            site.configure(next(steps))
            site.restart_all(lambda: secure)
            stop([after.orders, after.payments])
            written = [*before.orders.acknowledged, *before.payments.acknowledged]
            written += [*after.orders.acknowledged, *after.payments.acknowledged]
            eventually(
                lambda: not lost(written, [*before.reader.values, *after.reader.values]), what="everything that is read"
            )
        for writer in (before.orders, before.payments, after.orders, after.payments):
            print(f"{writer.name}: {len(writer.acknowledged)} records, slowest {writer.longest_wait_s:.2f} s")
        assert before.errors() == after.errors() == []
        config = {**site.client(properties, "admin"), "isolation.level": "read_committed"}
        for one, other in ((before.orders, after.orders), (before.payments, after.payments)):
            assert len(one.acknowledged) > 0 < len(other.acknowledged)
            found = read_to_end(config["bootstrap.servers"], one.topic, PARTITIONS, config=config)
            values = sorted((message.value() or b"").decode() for message in found)
            assert values == sorted([*one.acknowledged, *other.acknowledged])
        said = "".join(broker.output_path.read_text() for broker in site.brokers.values())
        assert "User:shop" not in said.replace("the log-in of User:shop", "")
        assert "no log-in at broker" not in said
