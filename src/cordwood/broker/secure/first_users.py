"""Users that are made without a broker: before the first start, or in the store of a cluster.

A new store becomes that of a cluster of the newest metadata version: a release that does not know users refuses it.
"""

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable, Sequence

from cordwood.broker.recovery.restoring import carry_out
from cordwood.broker.storage.storage import METADATA_FILE, open_own_store, open_store
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import CLUSTER_ID, IMPORT
from cordwood.cluster.planner.registration import plan_cluster_id
from cordwood.cluster.planner.security.users import SECRET_BYTES, UserChange, plan_alter_users
from cordwood.cluster.registration import new_cluster_id
from cordwood.cluster.stores.interface import MetadataStore
from cordwood.log.directory.data_directory import DataDirectory
from cordwood.log.files.os_filesystem import OsFilesystem
from cordwood.model.credentials import USUAL_SHAPE, ScramMechanism
from cordwood.model.errors import EnvironmentFailure, ProtocolError
from cordwood.model.failure import Failure
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.security.scram import make_keys


def add_first_user(
    settings: BrokerSettings,
    name: str,
    password: str,
    mechanisms: Sequence[ScramMechanism],
    iterations: int,
    *,
    replace: bool = False,
    dry_run: bool = False,
) -> None:
    """Writes a user into the store of the cluster that the settings name, or into that of a data directory without a
    broker. Raises Failure, also for a user that exists, unless `replace`. `dry_run`: an existing store is looked at,
    not changed."""
    keys = user_with(name, password, mechanisms, iterations)
    try:
        if settings.cluster_store:
            asyncio.run(_in_store(lambda: open_store(settings), settings, keys, replace=replace, dry_run=dry_run))
        else:
            _in_directory(settings, keys, replace=replace, dry_run=dry_run)
    except EnvironmentFailure as failure:
        raise Failure("STORAGE", str(failure), "nothing was changed") from failure


def user_with(name: str, password: str, mechanisms: Sequence[ScramMechanism], iterations: int) -> list[UserChange]:
    """The changes that give a user this password. Takes some milliseconds for each mechanism."""
    return [
        UserChange(name, mechanism, make_keys(mechanism, password, os.urandom(USUAL_SHAPE.salt_bytes), iterations))
        for mechanism in mechanisms
    ]


def _in_directory(settings: BrokerSettings, changes: Sequence[UserChange], *, replace: bool, dry_run: bool) -> None:
    path = os.path.abspath(settings.data_directories[0])
    if dry_run and not os.path.exists(os.path.join(path, METADATA_FILE)):
        return
    filesystem = OsFilesystem(path)
    held = DataDirectory(filesystem, path)
    try:
        held.take()
        try:
            asyncio.run(_in_store(lambda: open_own_store(held), settings, changes, replace=replace, dry_run=dry_run))
        finally:
            held.release()
    finally:
        filesystem.close()


async def _in_store(
    opened: Callable[[], Awaitable[MetadataStore]],
    settings: BrokerSettings,
    changes: Sequence[UserChange],
    *,
    replace: bool,
    dry_run: bool,
) -> None:
    store = await opened()
    try:
        await write_user(store, settings, changes, replace=replace, dry_run=dry_run)
    finally:
        await store.close()


async def write_user(
    store: MetadataStore,
    settings: BrokerSettings,
    changes: Sequence[UserChange],
    *,
    replace: bool = False,
    dry_run: bool = False,
) -> None:
    """Writes one user into an open store. Raises Failure, StoreFailure."""
    image = ClusterImage(settings.node_id, settings)
    if not dry_run and await store.get(CLUSTER_ID) is None and await store.get(IMPORT) is None:
        await carry_out(store, plan_cluster_id(new_cluster_id(uuid.uuid4()), image.metadata_versions.highest))
    image.load(await store.list(""))
    (name,) = {change.name for change in changes}
    if name in image.users.rows and not replace:
        raise Failure(
            "DUPLICATE_RESOURCE",
            f"there is a user {name!r} already",
            f"start the broker: then `cordwood user password {name}` changes the password",
        )
    if dry_run:
        return
    outcome = plan_alter_users(image, changes, os.urandom(SECRET_BYTES))[name]
    if isinstance(outcome, ProtocolError):
        raise Failure(outcome.code.name, outcome.message)
    assert outcome.plan is not None
    await carry_out(store, outcome.plan)
