"""Kafka Connect with Debezium on PostgreSQL, exactly once, with kill -9 of the worker."""

import json
import os
import pwd
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ConfigResource
from tests.broker_process import free_port
from tests.interop_software.software import debezium_plugins, java_command, postgres_binaries
from tests.interop_software.stage import Stage, Started, committed_values, until

TOPIC = "shop.public.orders"
ROWS = 200
_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


class Postgres:
    def __init__(self, stage: Stage, binaries: Path) -> None:
        self._stage = stage
        self._binaries = binaries
        self.port = free_port()
        data = stage.path / "postgres"
        data.mkdir()
        self._as_user: list[str] = []
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(data, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        stage.run([*self._as_user, f"{binaries}/initdb", "-D", str(data), "-A", "trust", "-U", "shop"], cwd=data)
        options = {
            "wal_level": "logical",
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
        }
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = [f"{binaries}/postgres", "-D", str(data), "-p", str(self.port), *settings]
        stage.start("postgres", [*self._as_user, *command], cwd=data)
        ready = [f"{binaries}/pg_isready", "-h", "127.0.0.1", "-p", str(self.port)]
        until(lambda: _succeeds(stage, ready), what="PostgreSQL")

    def run(self, sql: str) -> None:
        psql = shutil.which("psql") or f"{self._binaries}/psql"
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "shop", "-d", "postgres"]
        self._stage.run([psql, "-v", "ON_ERROR_STOP=1", *where, "-c", sql])


def _succeeds(stage: Stage, command: list[str]) -> bool:
    try:
        stage.run(command, timeout_s=20)
    except AssertionError:
        return False
    return True


class Connect:
    """One worker, whose offsets, settings and state are in the broker."""

    def __init__(self, stage: Stage, bootstrap: str, plugins: Path) -> None:
        self._stage = stage
        self._port = free_port()
        self._starts = 0
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "exactly.once.source.support": "enabled",
            "key.converter": _CONVERTER,
            "value.converter": _CONVERTER,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "listeners": f"http://127.0.0.1:{self._port}",
            "plugin.path": str(plugins.parent),
            "plugin.discovery": "service_load",
            "session.timeout.ms": "10000",
        }
        self._properties = stage.path / "connect.properties"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def start(self) -> Started:
        self._starts += 1
        command = java_command("org.apache.kafka.connect.cli.ConnectDistributed", str(self._properties))
        worker = self._stage.start(f"connect-{self._starts}", command)
        until(lambda: self.ask("GET", "/connectors") is not None, what="Connect")
        return worker

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, or None while there is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None


def captured(bootstrap: str) -> list[int]:
    """The ids of the rows whose creation was captured, in the order of the partition."""
    events = [json.loads(value) for _, value in committed_values(bootstrap, TOPIC) if value]
    return [event["after"]["id"] for event in events if event["op"] in ("c", "r")]


def exactly_once(stage: Stage) -> None:
    binaries, plugins = postgres_binaries(), debezium_plugins()
    database = Postgres(stage, binaries)
    database.run("create table orders (id int primary key, item text)")
    database.run(f"insert into orders select n, 'item ' || n from generate_series(1, {ROWS}) n")
    broker = stage.broker()
    connect = Connect(stage, broker.bootstrap, plugins)
    worker = connect.start()
    settings = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "shop",
        "database.password": "none",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "table.include.list": "public.orders",
        "exactly.once.support": "required",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.compression.type": "lz4",
        "topic.creation.default.preallocate": "false",
    }
    until(lambda: connect.ask("POST", "/connectors", {"name": "shop", "config": settings}), what="the connector")
    until(lambda: len(captured(broker.bootstrap)) >= ROWS, what="the first rows")
    worker.kill()
    database.run(f"insert into orders select n, 'item ' || n from generate_series({ROWS + 1}, {2 * ROWS}) n")
    worker = connect.start()
    until(lambda: len(captured(broker.bootstrap)) >= 2 * ROWS, what="the rows written after the kill")
    database.run("update orders set item = 'sold' where id = 7; delete from orders where id = 8")
    until(lambda: _operations(broker.bootstrap).issuperset({"u", "d"}), what="the update and the deletion")
    assert captured(broker.bootstrap) == list(range(1, 2 * ROWS + 1))
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert admin.describe_configs([resource])[resource].result(120)["compression.type"].value == "lz4"
    worker.stop()


def _operations(bootstrap: str) -> set[str]:
    return {json.loads(value)["op"] for _, value in committed_values(bootstrap, TOPIC) if value}
