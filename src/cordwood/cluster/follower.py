"""Keeps the image of the cluster's metadata up to date by following the store. Belongs to one event loop.

A watch that broke is taken up at the revision after the image's, so no change is lost or seen twice. After a compaction
the whole store is listed again. A store that went back in time is refused: following ends with StoreWentBack. After a
break the store is asked whether it made the newest known change; a store that has compacted too much to know is listed,
and compared by its epochs.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from cordwood.cluster.metadata.image import ClusterImage, ImageDelta
from cordwood.cluster.metadata.known_epochs import behind, known_epochs
from cordwood.cluster.metadata.newest import Newest, is_in_history, newest_of
from cordwood.cluster.metadata.rows import CLUSTER_ID
from cordwood.cluster.stores.interface import (
    Compacted,
    Event,
    Listing,
    MetadataStore,
    StoreFailure,
    StoreUnavailable,
    StoreWentBack,
)
from cordwood.cluster.stores.leases import monotonic_ms
from cordwood.model.back_off import BackOff

_EVENTS_AT_ONCE = 500
BACK_OFF = BackOff(50, 5_000)
LONGEST_REACH_S = 15
"""The time that a change has to reach the image: three times as long as a broken watch needs to recover."""


class ImageFollower:
    """An image and the watch that feeds it. Calls `on_change` in the loop after every change of the image, also if only
    its revision moved."""

    def __init__(
        self,
        store: MetadataStore,
        image: ClusterImage,
        *,
        on_change: Callable[[ImageDelta], None] = lambda delta: None,
        boot_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """`boot_ms` reads the boot clock."""
        self.image = image
        self.on_change = on_change
        self.watchers: list[Callable[[ImageDelta], None]] = []
        """Called after `on_change`, in the loop."""
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the store is no longer followed: with the reason if the store failed."""
        self._store = store
        self._reaching: list[tuple[int, asyncio.Future[None]]] = []
        self._following: asyncio.Task[None] | None = None
        self._boot_ms = boot_ms
        self._failures = 0
        self._broke_at_ms = 0
        self.newest: Newest | None = None
        """The newest change that is in the image."""

    @property
    def changed_revision(self) -> int:
        """The revision of the newest change in the image. Every follower of the store reaches it by an event, and may
        never reach the image's own revision, which other users of the store move as well."""
        return 0 if self.newest is None else self.newest.revision

    async def load(self) -> None:
        """Loads the whole image, without a call of `on_change`. Raises StoreFailure."""
        self._load(await self._store.list(""))

    def _load(self, listing: Listing) -> ImageDelta:
        before = self.image.revision
        if 0 < before <= listing.revision and (what := behind(known_epochs(self.image), listing.items)) is not None:
            raise StoreWentBack(what=what)
        delta = self.image.load(listing)
        newest = max(listing.items, key=lambda item: item.mod_revision, default=None)
        self.newest = None if newest is None else newest_of(newest.key, newest.value, newest.mod_revision)
        return delta

    def follow(self) -> None:
        """Follows the store from the image's revision on."""
        assert self._following is None, "followed twice"
        self._following = asyncio.create_task(self._follow(), name="follow the metadata store")
        self._following.add_done_callback(self._followed)

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])

    async def _follow(self) -> None:
        compacted = broken = False
        while True:
            try:
                if compacted:
                    listing = await self._store.list("")
                    self._image_changed(self.image.revision, self._load(listing))
                elif broken and not await self._is_the_same():
                    compacted = True
                    continue
                compacted = broken = False
                async for step in self._store.watch("", self.image.revision + 1):
                    for group in _slices(step.events):
                        last = group[-1]
                        self.newest = newest_of(last.key, last.value, last.mod_revision)
                        self._image_changed(self.image.revision, self.image.apply(group))
                        await asyncio.sleep(0)
                    if step.revision > self.image.revision:
                        self._image_changed(self.image.revision, self.image.apply((), step.revision))
            except Compacted:
                compacted = True
            except StoreUnavailable:
                broken = True
                await self._pause()

    async def _is_the_same(self) -> bool:
        """Refuses a store that went back: a watch from a revision in the future would wait silently. False: the store
        has forgotten too much to know, and has to be listed."""
        revision = (await self._store.list(CLUSTER_ID)).revision
        if revision < self.image.revision:
            raise StoreWentBack(self.image.revision, revision)
        known = None if self.newest is None else await is_in_history(self._store, self.newest)
        if known is False:
            assert self.newest is not None
            raise StoreWentBack(self.newest.revision, self.newest.revision - 1)
        return known is True

    async def _pause(self) -> None:
        """Waits twice as long as the last time, unless the watch worked for longer than the longest pause."""
        if self._boot_ms() - self._broke_at_ms > 2 * BACK_OFF.longest_ms:
            self._failures = 0
        self._broke_at_ms = self._boot_ms()
        self._failures += 1
        await asyncio.sleep(BACK_OFF.pause_ms(self._failures) / 1000)

    def _image_changed(self, revision_before: int, delta: ImageDelta) -> None:
        if delta or delta.revision > revision_before:
            self.on_change(delta)
            for watcher in self.watchers:
                watcher(delta)
        for revision, waiter in self._reaching:
            if revision <= self.image.revision and not waiter.done():
                waiter.set_result(None)

    def _followed(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        for _, waiter in self._reaching:
            if not waiter.done():
                waiter.set_exception(StoreFailure("the metadata store is no longer followed"))
        if self.stopped.done():
            return
        if error is None:
            self.stopped.set_result(None)
        else:
            self.stopped.set_exception(error)

    async def reach(self, revision: int) -> None:
        """Waits until the image is at this revision of the store. Raises StoreFailure, after LONGEST_REACH_S at the
        latest: the changes up to that revision may be made, and the image may lack them."""
        if self.image.revision >= revision:
            return
        if self._following is None or self._following.done():
            raise StoreFailure("the metadata store is not followed")
        waiter = asyncio.get_running_loop().create_future()
        entry = (revision, waiter)
        self._reaching.append(entry)
        try:
            async with asyncio.timeout(LONGEST_REACH_S):
                await waiter
        except TimeoutError:
            raise StoreUnavailable(
                f"the watch of the metadata store has not come to revision {revision} within {LONGEST_REACH_S} s"
            ) from None
        finally:
            self._reaching.remove(entry)


def _slices(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """Groups the events by whole revisions, about _EVENTS_AT_ONCE in a group, so that the loop is not held up."""
    start = 0
    for index in range(1, len(events)):
        if index - start >= _EVENTS_AT_ONCE and events[index].mod_revision != events[index - 1].mod_revision:
            yield events[start:index]
            start = index
    if events:
        yield events[start:]
