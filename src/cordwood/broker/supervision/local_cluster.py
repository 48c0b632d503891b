"""Runs a local cluster: its metadata, its brokers, and the order in which they start and stop.

The metadata is in an etcd of three members, or in a store of this process that the brokers reach over a socket. The
choice is made when the directory is new, and stays.
"""

import asyncio
import fcntl
import os
import shlex
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from cordwood.broker.supervision.children import Child
from cordwood.broker.supervision.etcd_members import MEMBERS, Etcd, EtcdMembers, member_directory
from cordwood.broker.supervision.local_brokers import (
    METADATA_FILE,
    Broker,
    LocalBrokers,
    free_ports,
    registered,
    until_all_serve,
    words_of,
)
from cordwood.log.directory.identity import PROPERTIES_FILE
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.settings.listeners import PLAINTEXT, SASL_SSL, ListenerAddress, brokers_apart

if TYPE_CHECKING:
    from cordwood.broker.secure.client_files import SecureDirectory

_LOCK_FILE = "supervisor.lock"
_ETCD_CLIENT_PORTS = 1000
_ETCD_PEER_PORTS = 2000
_INNER_PORTS = 3000
"""The distance of the ports of etcd's members, and of those between brokers, from the ports for clients."""


class Plan(NamedTuple):
    """The request to `cordwood cluster up`."""

    name: str
    nodes: int
    directory: str
    """The absolute path of the directory."""
    base_port: int
    """The port of the first broker; 0: free ports."""
    etcd: Etcd | None
    """None: the supervisor keeps the metadata."""
    assignments: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    """The racks of the brokers, in turn."""
    secure: "SecureDirectory | None" = None
    """The files with which clients reach secure brokers; None: the brokers speak plain text."""


class LocalCluster(LocalBrokers):
    """One local cluster, made by `up`, which returns when all its brokers serve. It never fails as a whole: brokers
    that end are reported, and the others go on."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        super().__init__(say)
        self._plan = plan

    async def up(self) -> None:
        plan = self._plan
        if "," in plan.directory:
            raise Failure(
                "USAGE", "the brokers of one machine share one --data-dir, without commas", "", ExitCode.USAGE
            )
        os.makedirs(plan.directory, exist_ok=True)
        self._take_lock()
        ports = _ports(plan)
        url = await self._start_etcd(plan.etcd, ports) if plan.etcd is not None else await self._serve_metadata()
        await self._secure(ports)
        earlier = {row.incarnation for row in (await registered(self._store)).values()}
        for node_id, (port, inner_port) in enumerate(zip(ports.brokers, ports.inner, strict=True), 1):
            await self._start_broker(node_id, port, inner_port, url)
        await until_all_serve(self.brokers, self._store, earlier, self._say)
        for broker in self.brokers:
            self._tasks.append(asyncio.create_task(self._watch(broker)))

    def _take_lock(self) -> None:
        lock = open(f"{self._plan.directory}/{_LOCK_FILE}", "a+")  # noqa: SIM115  held until all brokers have ended

        async def release() -> None:
            lock.close()

        self._ends.append(release)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Failure(
                "IN_USE",
                f"another `cordwood cluster up` runs on {self._plan.directory}",
                "stop that one, or give another --data-dir",
            ) from error

    async def _secure(self, ports: "_Ports") -> None:
        """Prepares the files and the administrator of secure brokers."""
        if (secure := self._plan.secure) is None:
            return
        from cordwood.broker.secure.preparing import prepare_cluster

        servers = ",".join(f"127.0.0.1:{port}" for port in ports.brokers)
        if remark := await prepare_cluster(secure, self._store, servers):
            self._say(remark)
        secure.point_at(servers)

    def _addresses(self, port: int, inner_port: int) -> dict[str, str]:
        """The settings of a broker that are about its listeners."""
        if (secure := self._plan.secure) is None:
            clients = ListenerAddress(PLAINTEXT, "127.0.0.1", port)
            return brokers_apart(clients, (f"{PLAINTEXT}:{PLAINTEXT}",), inner_port)
        from cordwood.broker.secure.preparing import of_cluster

        return of_cluster(secure, ListenerAddress(SASL_SSL, "127.0.0.1", port), inner_port)

    async def _serve_metadata(self) -> str:
        from cordwood.cluster.stores.sqlite import SqliteStore

        self._store = await SqliteStore.open(f"{self._plan.directory}/{METADATA_FILE}")
        self._ends.append(self._store.close)
        return await self._serve_store(self._plan.directory, self._plan.name)

    async def _start_etcd(self, etcd: Etcd, ports: "_Ports") -> str:
        from cordwood.broker.storage.storage import open_store
        from cordwood.model.settings.broker_settings import BrokerSettings

        members = await EtcdMembers.start(etcd, self._plan.directory, ports.etcd_clients, ports.etcd_peers)
        self._ends.append(members.stop)
        for member in members.members:
            self._tasks.append(asyncio.create_task(self._watch_etcd(member)))
        texts = {"cluster.name": self._plan.name, "cluster.store": members.url, "node.id": "0"}
        self._store = await open_store(BrokerSettings.from_texts(texts))
        self._ends.append(self._store.close)
        return members.url

    async def _start_broker(self, node_id: int, port: int, inner_port: int, url: str) -> None:
        plan = self._plan
        words = ["--cluster", plan.name, "--store", url]
        words += ["--node-id", str(node_id), "--data-dir", f"{plan.directory}/node-{node_id}"]
        words += words_of(self._addresses(port, inner_port))
        if plan.racks:
            words += ["--rack", plan.racks[(node_id - 1) % len(plan.racks)]]
        for assignment in plan.assignments:
            words += ["--set", assignment]
        environment = {name: text for name, text in os.environ.items() if not name.startswith("CORDWOOD_")}
        output = f"{plan.directory}/node-{node_id}.log"
        await self._launch(node_id, ("127.0.0.1", port), words, environment, output)

    async def _watch(self, broker: Broker) -> None:
        await broker.child.wait()
        if not self._stopping:
            self._say(
                f"broker {broker.node_id} (pid {broker.child.pid}) ended: {broker.child.exit_reason}. Its output is in "
                f"{broker.output}. It is not started again; to do so: {shlex.join(('cordwood', *broker.command))}"
            )

    async def _watch_etcd(self, member: Child) -> None:
        await member.wait()
        if not self._stopping:
            self._say(f"{member.name} (pid {member.pid}) ended: {member.exit_reason}. Its output is in {member.output}")


def chosen_metadata(directory: str, choice: str, found: Etcd | None) -> Etcd | None:
    """The etcd that is to keep the metadata; None: the supervisor. Raises Failure."""
    if os.path.exists(f"{directory}/{PROPERTIES_FILE}"):
        raise Failure(
            "USAGE",
            f"{directory} has the data of a single broker ({PROPERTIES_FILE}): the nodes of a cluster have directories "
            "of their own, and would not serve its records",
            "give another --data-dir; `cordwood cluster import` takes the data of a single broker into a new cluster",
            ExitCode.USAGE,
        )
    begun_with_own = os.path.exists(f"{directory}/{METADATA_FILE}")
    begun_with_etcd = os.path.exists(member_directory(directory, 1))
    if choice == "auto":
        choice = "supervisor" if begun_with_own else "etcd" if begun_with_etcd else choice
    if (choice == "etcd" and begun_with_own) or (choice == "supervisor" and begun_with_etcd):
        has = "the supervisor's own store" if begun_with_own else "etcd"
        raise Failure("USAGE", f"{directory} has its metadata in {has}", "give another --data-dir", ExitCode.USAGE)
    if choice == "etcd" and (found is None or found.refusal is not None):
        what = "there is no etcd on the PATH" if found is None else f"{found.path} cannot be used: {found.refusal}"
        raise Failure("ETCD", what, "install etcd 3.5.28, 3.6.9 or later, or give --metadata supervisor")
    return found if choice != "supervisor" and found is not None and found.refusal is None else None


class _Ports(NamedTuple):
    brokers: list[int]
    inner: list[int]
    etcd_clients: list[int]
    etcd_peers: list[int]


def _ports(plan: Plan) -> _Ports:
    counts = (plan.nodes, plan.nodes, MEMBERS, MEMBERS)
    if not plan.base_port:
        free = iter(free_ports(sum(counts)))
        return _Ports(*(list(islice(free, count)) for count in counts))
    firsts = (plan.base_port + above for above in (0, _INNER_PORTS, _ETCD_CLIENT_PORTS, _ETCD_PEER_PORTS))
    return _Ports(*(list(range(first, first + count)) for first, count in zip(firsts, counts, strict=True)))
