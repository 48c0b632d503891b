"""Carries out an import: takes the directory and the store, and runs the steps."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from cordwood.broker.importing.steps import Import, Source
from cordwood.broker.recovery.offline import taken
from cordwood.broker.storage.import_note import Note, State, read_note
from cordwood.broker.storage.storage import open_store
from cordwood.broker.supervision.local_brokers import registered
from cordwood.cluster.planner.importing import CannotImport
from cordwood.cluster.stores.interface import MetadataStore, StoreFailure
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.directory.identity import WITNESS_FILE, read_identity
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.errors import EnvironmentFailure
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.quantities import count_in_words
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.listeners import host_and_port

LOOK_EVERY_S = 0.5
_OF_CLUSTERS = ("cluster.", "listeners", "advertised.listeners", "listener.", "inter.broker.", "metrics.listener")
"""The prefixes of settings that a broker leaves out if it starts only to close its logs."""


R = TypeVar("R")


class Place(NamedTuple):
    """A node of a cluster, as far as it is known."""

    node_id: int
    cluster: str | None
    store: str | None


class ImportRequest(NamedTuple):
    directory: str
    """An absolute path."""
    cluster: str | None
    """The name of the cluster; None: that of the import under way, or of the settings."""
    store: str | None
    settings_at: Callable[[Place], BrokerSettings]
    """The broker's settings at its place in the cluster. Raises Failure."""
    dry_run: bool = False
    give_up: bool = False


class Imported(NamedTuple):
    """The result, also for scripts."""

    state: str
    """`planned`, `imported` or `given up`."""
    directory: str
    node_id: int
    cluster: str
    store: str
    cluster_id: str
    topics: int | None = None
    """None: the import had ended before."""
    partitions: int | None = None


def described(found: Imported) -> str:
    content = f"{count_in_words(found.topics or 0, 'topic')} with {count_in_words(found.partitions or 0, 'partition')}"
    return (
        f"{found.directory} (cluster id {found.cluster_id}, node {found.node_id}, {content}) goes to cluster "
        f"{found.cluster} at {found.store}."
    )


async def carry_out_import(
    request: ImportRequest, confirmed: Callable[[Imported], None], say: Callable[[str], None]
) -> Imported:
    """Imports, plans or gives up. `confirmed` is called before the first change, and raises to stop. Raises Failure."""
    try:
        return await _carry_out(request, confirmed, say)
    except EnvironmentFailure as failure:
        raise Failure("STORAGE", str(failure)) from failure
    except OSError as failure:
        raise Failure("SYSTEM", str(failure)) from failure


async def _carry_out(
    request: ImportRequest, confirmed: Callable[[Imported], None], say: Callable[[str], None]
) -> Imported:
    directory = request.directory
    if (ended := _ended_before(request)) is not None:
        return ended
    with taken(directory) as held:
        attempt = _Attempt(request, held, say)
        if request.give_up:
            await attempt.with_store(lambda store: attempt.import_into(store).give_up())
            return attempt.result("given up")
        planned = await attempt.with_store(attempt.look)
    if request.dry_run:
        return planned
    if not attempt.begun:
        confirmed(planned)
    if attempt.needs_a_start:
        say(f"starting a broker on {directory} once, and stopping it: it was not closed by a single broker")
        await _close_cleanly(attempt.settings)
    with taken(directory) as held:
        attempt = _Attempt(request, held, say)
        if attempt.needs_a_start:
            raise Failure(
                "STORAGE", f"a broker was started on {directory} meanwhile", "stop it, and give the command again"
            )
        await attempt.with_store(attempt.run)
    return planned._replace(state="imported")


def _ended_before(request: ImportRequest) -> Imported | None:
    """The result of an import that ended earlier; its broker may run."""
    directory = request.directory
    filesystem = OsFilesystem(directory)
    try:
        note, owner = read_note(filesystem, directory), read_identity(filesystem, directory)
    finally:
        filesystem.close()
    if note is None or owner is None or note.state is not State.DONE:
        return None
    if request.give_up:
        raise Failure("CANNOT_GIVE_UP", f"the import of {directory} into cluster {note.cluster} has ended")
    _check_same(request, note, directory)
    return Imported("imported", directory, note.node_id, note.cluster, note.store, owner.cluster_id)


def _check_same(request: ImportRequest, note: Note, directory: str) -> None:
    """Raises Failure if the command names another cluster than the import that is under way."""
    if request.cluster in (None, note.cluster) and request.store in (None, note.store):
        return
    raise Failure(
        "CANNOT_IMPORT",
        f"the import of {directory} was begun with --cluster {note.cluster} --store {note.store}",
        "go on with these; an import that is not committed can be given up with --give-up first",
    )


class _Attempt:
    """One look at a directory whose lock is held."""

    def __init__(self, request: ImportRequest, held: DataDirectory, say: Callable[[str], None]) -> None:
        self._held = held
        self._say = say
        owner = held.identity()
        assert owner is not None, "`taken` refuses directories without an owner"
        self._owner = owner
        note = read_note(held.filesystem, held.path)
        self.begun = note is not None
        place = Place(owner.node_id, request.cluster, request.store)
        if note is not None:
            _check_same(request, note, held.path)
            place = place._replace(cluster=note.cluster, store=note.store)
        elif request.give_up:
            raise Failure("NOTHING_TO_GIVE_UP", f"no import of {held.path} is under way")
        self.settings = settings = request.settings_at(place)
        if not settings.cluster_store:
            raise Failure("USAGE", "which cluster?", "give --cluster NAME and --store URL", ExitCode.USAGE)
        if note is None:
            _check_single(held)
            note = Note(os.urandom(16).hex(), settings.cluster_name, settings.cluster_store, owner.node_id)
        self._note = note
        self.needs_a_start = not self.begun and (
            held.arranged_for_workers or not held.stopped_cleanly() or not owner.storage_id
        )

    async def with_store(self, work: "Callable[[MetadataStore], Awaitable[R]]") -> "R":
        """Does work with the cluster's store. Raises Failure."""
        try:
            store = await open_store(self.settings)
            try:
                return await work(store)
            finally:
                await store.close()
        except CannotImport as refusal:
            raise Failure("CANNOT_IMPORT", str(refusal)) from refusal
        except StoreFailure as failure:
            hint = "the command can be given again, and goes on where it ended" if self.begun else ""
            raise Failure("CLUSTER", str(failure), hint) from failure

    def import_into(self, store: MetadataStore) -> Import:
        return Import(self._held, self._owner, store, self.settings, self._note, self._say)

    async def run(self, store: MetadataStore) -> None:
        self.begun = True
        importing = self.import_into(store)
        meanings = {step.name: step.meaning for step in importing.steps}
        await importing.run(lambda step: self._say(f"{step}: {meanings[step]}"))

    async def look(self, store: MetadataStore) -> Imported:
        """Refuses imports that cannot succeed, before any change."""
        if self.begun:
            return self.result("planned")
        source = await self.import_into(store).check(moves_first=self.needs_a_start)
        return self.result("planned", source)

    def result(self, state: str, source: Source | None = None) -> Imported:
        topics = None if source is None else len(source.image.topics)
        partitions = None if source is None else source.image.partition_count
        note = self._note
        return Imported(
            state, self._held.path, note.node_id, note.cluster, note.store, self._owner.cluster_id, topics, partitions
        )


def _check_single(held: DataDirectory) -> None:
    """Raises Failure for the directory of a broker that is already part of a cluster."""
    if held.filesystem.exists(f"{held.path}/{WITNESS_FILE}"):
        raise Failure("CANNOT_IMPORT", f"{held.path} is the directory of a broker that is part of a cluster already")


async def _close_cleanly(settings: BrokerSettings) -> None:
    """Starts a broker alone and stops it: recovers logs, and takes partitions back from workers. Raises
    EnvironmentFailure."""
    from cordwood.broker.server import Server

    texts = {name: text for name, text in settings.texts.items() if not name.startswith(_OF_CLUSTERS)}
    server = await Server.start(BrokerSettings.from_texts({**texts, "listeners": "127.0.0.1:0"}))
    await server.stop()
    if server.failed.done():
        raise EnvironmentFailure(f"the broker on {settings.log_dirs} cannot go on: {server.failed.result()}")


async def until_enough_serve(settings: BrokerSettings, count: int, say: Callable[[str], None]) -> str:
    """Waits until enough brokers serve. Returns their addresses."""
    store = await open_store(settings)
    said = ""
    try:
        while True:
            serving = {broker: row for broker, row in (await registered(store)).items() if not row.fenced}
            if len(serving) >= count:
                first = (row.endpoints[0] for row in serving.values())
                return ",".join(host_and_port(each.host, each.port) for each in first)
            names = ", ".join(map(str, sorted(serving))) or "none"
            text = f"{len(serving)} of {count} brokers serve ({names}): start the others; Ctrl-C ends the wait"
            if text != said:
                say(text)
                said = text
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        await store.close()
