"""A process with simulated brokers, driven by lines of JSON: `{"do": name, ...}` on stdin, one answer each on stdout.

Times in answers are of the clock of time.monotonic(), which all processes of a machine share.
"""

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import uvloop

from benchmarks import processes
from benchmarks.scale.brokers import Brokers, Place
from benchmarks.scale.counting import Counts
from cordwood.broker.machine.garbage import collect_seldom
from cordwood.cluster.metadata.image import ClusterImage, ImageDelta
from cordwood.cluster.metadata.partitions import PartitionImage
from cordwood.cluster.planner.placement import Assignment
from cordwood.cluster.planner.topics import NewTopic
from cordwood.model.errors import ProtocolError

ANSWERED_WITHIN_S = 300


class Awaited:
    """Partitions for which something is awaited. Looks at a partition only when it changes."""

    def __init__(
        self,
        image: ClusterImage,
        concerned: Callable[[PartitionImage], bool],
        there: Callable[[PartitionImage], bool],
    ) -> None:
        self._there = there
        self._left: dict[str, set[int]] = {}
        for topic in image.sorted_topics():
            indexes = {index for index, partition in enumerate(topic.partitions) if concerned(partition)}
            if indexes:
                self._left[topic.name] = indexes
        self.count = sum(map(len, self._left.values()))
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._look(delta=None, image=image)

    def changed(self, delta: ImageDelta, image: ClusterImage) -> None:
        self._look(delta, image)

    def _look(self, delta: ImageDelta | None, image: ClusterImage) -> None:
        names = list(self._left) if delta is None else [change.after.name for change in delta.changed]
        for name in names:
            left = self._left.get(name)
            if left is None:
                continue
            partitions = image.topics[name].partitions
            left.difference_update([index for index in left if self._there(partitions[index])])
            if not left:
                del self._left[name]
        if not self._left and not self.done.done():
            self.done.set_result(time.monotonic())


def awaited(image: ClusterImage, what: str, brokers: frozenset[int]) -> Awaited:
    match what:
        case "led":
            return Awaited(image, lambda each: each.leader in brokers, lambda each: each.leader not in {-1, *brokers})
        case "out":
            return Awaited(
                image, lambda each: not brokers.isdisjoint(each.replicas), lambda each: brokers.isdisjoint(each.isr)
            )
        case "in sync":
            return Awaited(
                image,
                lambda each: not brokers.isdisjoint(each.replicas),
                lambda each: len(each.isr) == len(each.replicas) and each.leader >= 0,
            )
        case "preferred":
            return Awaited(
                image,
                lambda each: each.replicas[0] in brokers and each.leader != each.replicas[0],
                lambda each: each.leader == each.replicas[0],
            )
    raise ValueError(what)


class Process:
    def __init__(self, place: Place) -> None:
        self._counts = Counts()
        self._brokers = Brokers(place, self._counts)
        self._waits: dict[str, Awaited] = {}

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        method = getattr(self, f"do_{request.pop('do')}")
        told: dict[str, Any] = await method(**request)
        return told

    async def do_start_alone(self, broker_id: int) -> dict[str, Any]:
        gc.collect()
        before = processes.rss_bytes(os.getpid())
        began_s = time.monotonic()
        await self._brokers.start_alone(broker_id)
        started_s = time.monotonic() - began_s
        collect_seldom(asyncio.get_running_loop())
        gc.collect()
        follower = self._brokers.follower
        assert follower is not None
        await self._until_served([broker_id])
        follower.watchers.append(self._changed)
        return {
            "started_s": started_s,
            "served_s": time.monotonic() - began_s,
            "listed_s": follower.listed_s,
            "built_s": follower.built_s,
            "rss_before": before,
            "rss": processes.rss_bytes(os.getpid()),
            "rss_peak": processes.peak_rss_bytes(os.getpid()),
        }

    async def do_start_together(self, broker_ids: list[int]) -> dict[str, Any]:
        began_s = time.monotonic()
        await self._brokers.start_together(broker_ids)
        await self._until_served(broker_ids)
        return {"served_s": time.monotonic() - began_s}

    async def _until_served(self, broker_ids: list[int]) -> None:
        brokers = self._brokers.image.brokers
        await self._until(lambda: all(each in brokers and brokers[each].electable for each in broker_ids))

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Waits until something holds in the image."""
        assert self._brokers.follower is not None
        met = asyncio.Event()

        def look(delta: ImageDelta) -> None:
            if holds():
                met.set()

        look(ImageDelta(0))
        self._brokers.follower.watchers.append(look)
        await met.wait()
        self._brokers.follower.watchers.remove(look)

    async def do_create(
        self, topics: list[tuple[str, int]], replicas: int, assigned: list[list[int]]
    ) -> dict[str, Any]:
        """Creates topics. `assigned` are the replicas of all partitions of each topic; empty: the cluster places."""
        (broker,) = self._brokers.running.values()
        began_s = time.monotonic()
        for name, partitions in topics:
            topic = NewTopic(name, partitions, replicas)
            if assigned:
                places = tuple(Assignment(index, tuple(assigned[index % len(assigned)])) for index in range(partitions))
                topic = NewTopic(name, assignments=places)
            (outcome,) = (await broker.writer.create_topics([topic])).values()
            if isinstance(outcome, ProtocolError):
                raise outcome
        return {"seconds": time.monotonic() - began_s}

    async def do_stop(self, broker_ids: list[int]) -> dict[str, Any]:
        began_s = time.monotonic()
        await self._brokers.stop(broker_ids)
        return {"at_s": began_s, "seconds": time.monotonic() - began_s}

    async def do_die(self, broker_ids: list[int], seen: bool) -> dict[str, Any]:
        began_s = time.monotonic()
        await self._brokers.die(broker_ids)
        if seen:
            self._brokers.saw_refused(broker_ids)
        return {"at_s": began_s}

    async def do_saw_refused(self, broker_ids: list[int]) -> dict[str, Any]:
        self._brokers.saw_refused(broker_ids)
        return {}

    async def do_churn(self, changes: int) -> dict[str, Any]:
        return {"seconds": await self._brokers.churn(changes)}

    async def do_elect_preferred(self) -> dict[str, Any]:
        """An operator's election of all preferred leaders that do not lead."""
        (broker,) = self._brokers.running.values()
        image = self._brokers.image
        names = [
            (topic.name, index)
            for topic in image.sorted_topics()
            for index, partition in enumerate(topic.partitions)
            if partition.leader != partition.replicas[0]
        ]
        began_s = time.monotonic()
        await broker.writer.elect_preferred(names)
        return {"partitions": len(names), "seconds": time.monotonic() - began_s}

    async def do_await(self, name: str, what: str, broker_ids: list[int]) -> dict[str, Any]:
        self._waits[name] = awaited(self._brokers.image, what, frozenset(broker_ids))
        return {"partitions": self._waits[name].count}

    async def do_done(self, name: str) -> dict[str, Any]:
        waits = self._waits[name]
        at_s = await asyncio.wait_for(waits.done, ANSWERED_WITHIN_S)
        del self._waits[name]
        return {"at_s": at_s, "partitions": waits.count}

    async def do_until_controller(self, other_than: int) -> dict[str, Any]:
        image = self._brokers.image
        await self._until(lambda: image.controller is not None and image.controller.broker_id != other_than)
        return {"at_s": time.monotonic(), "controller": image.controller_id}

    async def do_reach(self, revision: int) -> dict[str, Any]:
        assert self._brokers.follower is not None
        await self._brokers.follower.reach(revision)
        return {"at_s": time.monotonic()}

    async def do_revision(self) -> dict[str, Any]:
        return {"revision": self._brokers.image.revision}

    async def do_report(self) -> dict[str, Any]:
        image = self._brokers.image
        return {
            "counts": self._counts.taken(),
            "cpu_s": processes.cpu_seconds(os.getpid()),
            "rss": processes.rss_bytes(os.getpid()),
            "revision": image.revision,
            "partitions": image.partition_count,
            "brokers": len(image.brokers),
            "controller": image.controller_id,
            "led": sum(1 for topic in image.sorted_topics() for each in topic.partitions if each.leader >= 0),
        }

    def _changed(self, delta: ImageDelta) -> None:
        for waits in self._waits.values():
            waits.changed(delta, self._brokers.image)


async def _serve(place: Place) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    process = Process(place)
    running: set[asyncio.Task[None]] = set()

    async def handle(number: int, request: dict[str, Any]) -> None:
        try:
            told = await process.answer(request)
        except Exception as error:
            told = {"error": repr(error)}
        sys.stdout.write(json.dumps({"number": number, **told}) + "\n")
        sys.stdout.flush()

    while line := await reader.readline():
        request = json.loads(line)
        task = asyncio.create_task(handle(request.pop("number"), request))
        running.add(task)
        task.add_done_callback(running.discard)
    os._exit(0)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    uvloop.run(_serve(Place(**{**given, "endpoints": tuple(given["endpoints"])})))
