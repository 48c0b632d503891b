"""Several brokers inside this process that are one cluster, with their metadata store in this process, too."""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from cordwood.embedded.broker import Broker, client_settings, secure_side
from cordwood.embedded.loop_calls import BrokerStopped
from cordwood.embedded.store_thread import StoreThread
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.listeners import PLAINTEXT, ListenerAddress, brokers_apart
from cordwood.model.settings.setting import InvalidSetting
from cordwood.node.partitions.partition import no_such_partition

NAME: Final = "embedded"
_ENOUGH_NODES: Final = 3
"""With three replicas, two can be asked to have each record, and one broker may be away."""
_METADATA_FILE: Final = "metadata.sqlite"
_OWN_SETTINGS: Final = (
    "cluster.name",
    "cluster.store",
    "node.id",
    "listeners",
    "inter.broker.listener.name",
    "broker.rack",
)
_KNOWN_WITHIN_S: Final = 60.0


class Cluster:
    """Brokers 1 to `nodes`, each on a port of its own.

        with Cluster(nodes=3) as cluster:
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
            ...
            cluster.leader("orders", 0).kill()

    Topics have three replicas and min.insync.replicas 2 (with fewer nodes, as many replicas as nodes, and 1), unless
    `settings` say otherwise. Without `data_dir` the data is in memory and lives as long as this object; with it,
    `data_dir/node-1` and so on have the data of the brokers. `racks` are given to the brokers in turn.

    With `secure=True` clients reach the brokers as they reach a secure `Broker`, by `client_settings`; the brokers
    speak TLS among themselves.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str | int | float | bool] | None = None,
        host: str = "127.0.0.1",
        racks: Sequence[str] = (),
        secure: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"a cluster has at least one broker, not {nodes}")
        for name in settings or {}:
            if name.strip() in _OWN_SETTINGS:
                raise InvalidSetting(f"the brokers of an embedded cluster take no setting {name}: the cluster sets it")
        self._directory = None if data_dir is None else os.path.abspath(data_dir)
        if self._directory is not None and "," in self._directory:
            raise InvalidSetting("an embedded cluster has one data_dir, with a directory for each broker in it")
        self._sockets = tempfile.TemporaryDirectory(prefix="cordwood-")
        self._socket_path = f"{self._sockets.name}/metadata.sock"
        database = None if self._directory is None else f"{self._directory}/{_METADATA_FILE}"
        self._store = StoreThread(self._socket_path, NAME, database)
        self._settings = {
            "min.insync.replicas": 2 if nodes >= _ENOUGH_NODES else 1,
            **(settings or {}),
        }
        self._racks = tuple(racks)
        self._secure = secure_side(secure=secure, users=users)
        self._users = users
        self._addresses: dict[int, str] = {}
        self.brokers: dict[int, Broker] = {node_id: self._broker(node_id, host) for node_id in range(1, nodes + 1)}
        """The brokers by their ids. A broker can be stopped, killed and started again by itself."""

    def _broker(self, node_id: int, host: str) -> Broker:
        own: dict[str, str | int] = {"cluster.name": NAME, "cluster.store": self.store, "node.id": node_id}
        if self._secure is None:
            own |= brokers_apart(ListenerAddress(PLAINTEXT, host, 0), (f"{PLAINTEXT}:{PLAINTEXT}",), 0)
        if self._racks:
            own["broker.rack"] = self._racks[(node_id - 1) % len(self._racks)]
        directory = None if self._directory is None else f"{self._directory}/node-{node_id}"
        return Broker(
            data_dir=directory,
            settings={**self._settings, **own},
            host=host,
            secure=self._secure is not None,
            users=self._users,
        )

    def __repr__(self) -> str:
        return f"<Cluster of {', '.join(f'{node_id}: {broker!r}' for node_id, broker in self.brokers.items())}>"

    def start(self) -> Self:
        """Starts the cluster, and returns when all brokers take part and each knows it of all. Raises
        EnvironmentFailure or OSError, with nothing left running."""
        if self._directory is not None:
            os.makedirs(self._directory, exist_ok=True)
        self._store.start()
        try:
            self._each(lambda broker: broker.start())
            self._each(self._await_all)
            self._addresses = {node_id: broker.bootstrap_servers for node_id, broker in self.brokers.items()}
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops all brokers, then the metadata store. Safe to call twice."""
        try:
            self._each(lambda broker: broker.stop())
        finally:
            self._store.stop()

    def _await_all(self, broker: Broker) -> None:
        """Returns when the broker knows that all brokers take part: a controller that knows of two only places no topic
        on three."""
        deadline = time.monotonic() + _KNOWN_WITHIN_S
        while broker.log.brokers() != list(self.brokers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{broker.bootstrap_servers} knows brokers {broker.log.brokers()} after a minute")
            time.sleep(0.002)

    def _each(self, act: Callable[[Broker], object]) -> None:
        """Acts on all brokers side by side, and raises the first failure once all are done."""
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            futures = [threads.submit(act, broker) for broker in self.brokers.values()]
        for future in futures:
            future.result()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The value for a client's `bootstrap.servers`: the addresses of all brokers, also of stopped ones."""
        if not self._addresses:
            raise BrokerStopped("the cluster has not been started")
        return ",".join(self._addresses.values())

    def client_settings(self, user: str = "") -> dict[str, Any]:
        """The settings of a client of the cluster, as `Broker.client_settings` has them."""
        return client_settings(self._secure, user, self.bootstrap_servers)

    @property
    def store(self) -> str:
        """The value of `cluster.store` for another broker that is to join; its `cluster.name` is `embedded`."""
        return f"unix://{self._socket_path}"

    def leader(self, topic: str, partition: int = 0) -> Broker:
        """The broker that leads the partition, as the running broker with the newest metadata knows it: an acknowledged
        producer learned of the leader from one broker, and others may not know it yet. Raises ProtocolError if there is
        no leader."""
        told: list[tuple[int, int | None]] = []
        for broker in self.brokers.values():
            with suppress(BrokerStopped):
                told.append(broker.log.leader_at_revision(topic, partition))
        if not told:
            raise BrokerStopped("all brokers have stopped")
        _, leader = max(told, key=lambda answer: answer[0])
        if leader is None:
            raise no_such_partition(topic, partition)
        if leader not in self.brokers:
            raise ProtocolError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader now.")
        return self.brokers[leader]
