"""Runs the workers of one data directory: its lock, its metadata, and a process for each broker.

A worker that ends is started again, after a pause that grows while it keeps ending. A worker whose registration ended
although its process runs is hung: it is killed, and started again. When this process ends, however that happens, the
workers end with it.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from cordwood.broker.supervision.local_brokers import (
    Broker,
    LocalBrokers,
    bootstrap_servers,
    free_ports,
    registered,
    until_all_serve,
    words_of,
)
from cordwood.broker.supervision.worker_shares import CLUSTER_NAME, Apart, ports_needed, shares
from cordwood.cluster.metadata.rows import BrokerRow
from cordwood.model.back_off import BackOff
from cordwood.model.errors import EnvironmentFailure
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.listeners import brokers_apart, host_and_port

if TYPE_CHECKING:
    from cordwood.broker.secure.client_files import SecureDirectory

BACK_OFF = BackOff(500, 30_000)
"""A worker that ends is started again at once. If it ends again soon there is a pause, which doubles each time."""
STEADY_S = 60.0
"""A worker that ran for this long is restarted at once."""
LOOK_EVERY_S = 0.5
HUNG_AFTER_LEASES = 2
"""A worker is killed if its registration is away for this multiple of its lease."""


class Plan(NamedTuple):
    """The request to `cordwood serve --workers`."""

    workers: int
    settings: BrokerSettings
    words: tuple[str, ...]
    """Arguments that are passed on to the workers: the places of settings."""
    environment: dict[str, str]
    secure: "SecureDirectory | None" = None
    """The files with which clients reach secure workers; None: the settings are as the user gave them."""

    @property
    def directory(self) -> str:
        return os.path.abspath(self.settings.data_directories[0])


class _Worker:
    """One worker over all its lives."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.incarnation: str | None = None
        """The registration with which the present life has served; None: it has not yet."""
        self.former: str | None = None
        """The registration of the previous life."""
        self.launched_s = 0.0
        self.soon_ended = 0
        """The lives in a row that were short."""
        self.missed = 0
        """The looks in a row at which the registration was away."""


class Workers(LocalBrokers):
    """The workers, made by `up`, which returns when all of them serve."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        super().__init__(say)
        self._plan = plan
        self._workers: list[_Worker] = []

    @property
    def bootstrap_servers(self) -> str:
        return bootstrap_servers(self.brokers)

    async def up(self) -> None:
        await self._open()
        plan = self._plan
        url = await self._serve_store(plan.directory, CLUSTER_NAME)
        ports = free_ports(needed) if (needed := ports_needed(plan.settings, plan.workers)) else []
        apart: Apart = brokers_apart
        if plan.secure is not None:
            from cordwood.broker.secure.preparing import between_brokers

            apart = partial(between_brokers, plan.secure)
        for share in shares(plan.settings, plan.directory, url, plan.workers, ports, apart):
            address = share.listeners[0].host, share.listeners[0].port
            words = [*plan.words, *words_of(share.settings)]
            broker = await self._launch(share.node_id, address, words, plan.environment, None)
            self._workers.append(_Worker(broker))
        await until_all_serve(self.brokers, self._store, set(), self._say)
        rows = await registered(self._store)
        if plan.secure is not None:
            plan.secure.point_at(",".join(_told(rows[broker.node_id]) for broker in self.brokers))
        for worker in self._workers:
            worker.incarnation = row.incarnation if (row := rows.get(worker.broker.node_id)) is not None else None
            self._tasks.append(asyncio.create_task(self._keep(worker), name=f"keep worker {worker.broker.node_id}"))
        self._tasks.append(asyncio.create_task(self._watch(), name="watch the workers"))

    async def _open(self) -> None:
        """Takes the directory, opens its metadata, and arranges its partitions for the workers."""
        from cordwood.broker.storage.storage import open_own_store
        from cordwood.broker.workers.arranging import arrange_offline, take_for_workers
        from cordwood.cluster.metadata.versions import supported_up_to
        from cordwood.log.directory.data_directory import DataDirectory
        from cordwood.log.files.os_filesystem import OsFilesystem

        plan, settings = self._plan, self._plan.settings
        if len(settings.data_directories) > 1:
            raise Failure(
                "USAGE",
                "workers share one data directory, and log.dirs names several",
                "give one directory, on a volume over all disks; or serve several directories without --workers",
                ExitCode.USAGE,
            )
        filesystem = OsFilesystem(plan.directory)
        logs = DataDirectory(filesystem, plan.directory)
        try:
            logs.take()
        except EnvironmentFailure as error:
            raise Failure(
                "IN_USE", str(error), "stop the broker that runs there, or give another --data-dir"
            ) from error

        async def release() -> None:
            logs.release()
            filesystem.close()

        self._ends.append(release)
        if (owner := logs.identity()) is not None and (owner.directories or owner.home_id):
            raise Failure(
                "SEVERAL_DIRECTORIES",
                f"{plan.directory} is one of several data directories of a broker, and workers share one",
                "serve all directories without --workers; docs/operations/disks.md says how one becomes the only one",
            )
        self._store = store = await open_own_store(logs)
        self._ends.append(store.close)
        newest = supported_up_to(settings.metadata_version_max).highest
        await take_for_workers(logs, store, settings.node_id, newest)
        brokers = range(settings.node_id, settings.node_id + plan.workers)
        await arrange_offline(logs, store, brokers, settings, alone=False)

    # Workers that end or hang

    async def _keep(self, worker: _Worker) -> None:
        """Starts a worker again whenever it ends."""
        broker = worker.broker
        clock_s = asyncio.get_running_loop().time
        worker.launched_s = clock_s()
        while True:
            await broker.child.wait()
            if self._stopping:
                return
            if clock_s() - worker.launched_s > STEADY_S:
                worker.soon_ended = 0
            pause_s = BACK_OFF.pause_ms(worker.soon_ended) / 1000
            self._say(
                f"worker {broker.node_id} (pid {broker.child.pid}) ended: {broker.child.exit_reason}. Its partitions "
                "are away until it serves again; it is started " + (f"in {pause_s:g} s" if pause_s else "now")
            )
            await asyncio.sleep(pause_s)
            worker.soon_ended += 1
            worker.former, worker.incarnation, worker.missed = worker.incarnation or worker.former, None, 0
            worker.launched_s = clock_s()
            try:
                await broker.launch_again()
            except OSError as error:
                self._say(f"worker {broker.node_id} cannot be started: {error}")

    async def _watch(self) -> None:
        """Follows the registrations: a worker that serves again is reported, one that hangs is killed."""
        lease_s = self._plan.settings.broker_lease_ms / 1000
        missed_at_most = int(HUNG_AFTER_LEASES * lease_s / LOOK_EVERY_S)
        while True:
            try:
                rows = await registered(self._store)
            except EnvironmentFailure as error:
                if not self.failed.done():
                    self.failed.set_result(Failure("STORAGE", str(error)))
                return
            for worker in self._workers:
                row = rows.get(worker.broker.node_id)
                if worker.broker.child.ended:
                    continue
                if row is not None:
                    worker.missed = 0
                    if worker.incarnation is None and not row.fenced and row.incarnation != worker.former:
                        self._serves_again(worker, row.incarnation)
                elif worker.incarnation is not None:
                    # Looks are counted, not time: while this process is stopped, no worker can renew a registration.
                    worker.missed += 1
                    if worker.missed > missed_at_most:
                        await self._end_hung(worker)
            await asyncio.sleep(LOOK_EVERY_S)

    def _serves_again(self, worker: _Worker, incarnation: str) -> None:
        worker.incarnation = incarnation
        took_s = asyncio.get_running_loop().time() - worker.launched_s
        broker = worker.broker
        self._say(f"worker {broker.node_id} (pid {broker.child.pid}) serves again, {took_s:.1f} s after its start")

    async def _end_hung(self, worker: _Worker) -> None:
        worker.missed = 0
        broker = worker.broker
        self._say(
            f"worker {broker.node_id} (pid {broker.child.pid}) hangs: its registration ended, and it has not come "
            "back. It is killed"
        )
        await broker.child.kill()


def _told(row: BrokerRow) -> str:
    """The address that clients of the worker's first listener are told."""
    return host_and_port(row.endpoints[0].host, row.endpoints[0].port)
