"""The phases of a run: brokers join, partitions are created, nodes die and come back, the controller dies.

The brokers 1 and 2 have a process and an image each; broker 1 is the controller. All others are in one process, with
one image: what they take of two cores, 98 machines would share.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.scale import etcd_figures
from benchmarks.scale.brokers import Place
from benchmarks.scale.children import Child
from benchmarks.scale.etcd_figures import EtcdFigures

CONTROLLER, STANDBY = 1, 2
REPLICAS = 3
PHASES = ("rest", "late", "churn", "node", "rack", "silence", "restart", "controller")
"""In their order, after brokers have joined and partitions were created. The controller dies last."""


class Row(NamedTuple):
    """One figure of a phase."""

    phase: str
    figure: str
    value: float
    unit: str


@dataclass(frozen=True)
class Sizes:
    nodes: int
    partitions: int
    partitions_per_topic: int
    rack: int
    """Nodes of a rack."""
    rest_s: float
    churn: int
    """Changes of in-sync sets, one partition a transaction."""
    restarts: int
    lease_ms: int
    phases: Sequence[str] = PHASES

    @property
    def victim_leads(self) -> int:
        """Leaderships of the node that dies first: three times its even share."""
        return 3 * self.partitions // self.nodes


class Run:
    def __init__(self, sizes: Sizes, endpoints: Sequence[str], say: Callable[[str], None]) -> None:
        self.rows: list[Row] = []
        self._sizes = sizes
        self._endpoints = tuple(endpoints)
        self._say = say
        self._place = Place(self._endpoints, "scale", sizes.rack, 2 * sizes.partitions, sizes.lease_ms)
        self._children: list[Child] = []
        self._others = list(range(3, sizes.nodes + 1))
        self._victim = self._others[-1]
        self._rack = self._others[-1 - sizes.rack : -1]

    async def run(self) -> None:
        phases = {
            "rest": self._rest,
            "late": self._late,
            "churn": self._churn,
            "node": self._one_dies,
            "rack": self._rack_dies,
            "silence": self._silent_death,
            "restart": self._rolling_restart,
            "controller": self._controller_dies,
        }
        assert tuple(phases) == PHASES
        try:
            await self._join()
            await self._create()
            for name, phase in phases.items():
                if name in self._sizes.phases:
                    await phase()
            self._store("at the end", etcd_figures.read(self._endpoints))
        finally:
            for child in self._children:
                await child.kill()

    def _add(self, phase: str, figure: str, value: float, unit: str = "") -> None:
        self.rows.append(Row(phase, figure, value, unit))
        self._say(f"{phase}: {figure} {value:,.3g} {unit}")

    def _store(self, phase: str, figures: EtcdFigures) -> None:
        self._add(phase, "keys in etcd", figures.keys)
        self._add(phase, "database of a member, in use", figures.used_bytes / 1e6, "MB")
        self._add(phase, "database of a member, on disk", figures.database_bytes / 1e6, "MB")
        self._add(phase, "RSS of all members", figures.rss_bytes / 1e6, "MB")

    def _traffic(self, phase: str, began: EtcdFigures, seconds: float, changes: int = 0) -> None:
        used = etcd_figures.read(self._endpoints).since(began)
        self._add(phase, "CPU of etcd", used.cpu_s, "s")
        self._add(phase, "sent by etcd to clients", used.sent_bytes / 1e6, "MB")
        if changes:
            self._add(
                phase,
                "sent for each changed partition, to each watcher",
                used.sent_bytes / changes / used.watchers,
                "B",
            )
        else:
            self._add(phase, "requests to etcd", used.requests / seconds, "/s")

    async def _child(self) -> Child:
        child = await Child.start(self._place)
        self._children.append(child)
        return child

    async def _join(self) -> None:
        phase = "join"
        self._first, self._second = await self._child(), await self._child()
        self._crowd = await self._child()
        await self._first.ask("start_alone", broker_id=CONTROLLER)
        await self._second.ask("start_alone", broker_id=STANDBY)
        began = etcd_figures.read(self._endpoints)
        joined = await self._crowd.ask("start_together", broker_ids=self._others)
        self._add(phase, f"{len(self._others)} brokers register together and take part after", joined["served_s"], "s")
        self._add(phase, "watches", etcd_figures.read(self._endpoints).watchers)
        self._traffic(phase, began, joined["served_s"])

    async def _create(self) -> None:
        phase, sizes = "create", self._sizes
        began, cpu = etcd_figures.read(self._endpoints), await self._cpu()
        per_topic = sizes.partitions_per_topic
        extra = max(0, sizes.victim_leads - sizes.partitions // sizes.nodes)
        spread = sizes.partitions - extra
        topics = [
            (f"topic-{number:05}", min(per_topic, spread - number * per_topic))
            for number in range(-(-spread // per_topic))
        ]
        created = await self._first.ask("create", topics=topics, replicas=REPLICAS, assigned=[])
        seconds = created["seconds"]
        if extra:
            followers = [broker for broker in range(1, sizes.nodes + 1) if broker not in (self._victim, *self._rack)]
            pairs = [
                [self._victim, followers[place % len(followers)], followers[(place + 1) % len(followers)]]
                for place in range(per_topic)
            ]
            more = [
                (f"victim-{number:05}", min(per_topic, extra - number * per_topic))
                for number in range(-(-extra // per_topic))
            ]
            seconds += (await self._first.ask("create", topics=more, replicas=REPLICAS, assigned=pairs))["seconds"]
        revision = await self._revision()
        shown_s = time.monotonic()
        for child in (self._second, self._crowd):
            await child.ask("reach", revision=revision)
        report = await self._first.ask("report")
        self._add(phase, "partitions", report["partitions"])
        self._add(phase, "created in", seconds, "s")
        self._add(phase, "all images have them after further", time.monotonic() - shown_s, "s")
        self._counted(phase, report["counts"])
        self._traffic(phase, began, seconds, sizes.partitions)
        await self._used(phase, cpu)
        self._store(phase, etcd_figures.read(self._endpoints))

    async def _rest(self) -> None:
        phase, rest_s = "at rest", self._sizes.rest_s
        await asyncio.sleep(min(rest_s, 3))
        began, cpu = etcd_figures.read(self._endpoints), await self._cpu()
        await asyncio.sleep(rest_s)
        used = etcd_figures.read(self._endpoints).since(began)
        self._add(phase, "renewals of leases", used.renewals / rest_s, "/s")
        self._add(phase, "CPU of etcd", 1000 * used.cpu_s / rest_s, "ms/s")
        self._add(phase, "sent by etcd to clients", used.sent_bytes / rest_s / 1e3, "kB/s")
        after = await self._cpu()
        for name, before_s in cpu.items():
            self._add(phase, f"CPU of {name}", 1000 * (after[name] - before_s) / rest_s, "ms/s")

    async def _late(self) -> None:
        """One more broker starts, on a cluster that is full already."""
        phase = "one more broker"
        child = await self._child()
        began = etcd_figures.read(self._endpoints)
        started = await child.ask("start_alone", broker_id=self._sizes.nodes + 1)
        sent = etcd_figures.read(self._endpoints).since(began).sent_bytes
        self._add(phase, "takes part after", started["served_s"], "s")
        self._add(phase, "of which lists the store", started["listed_s"], "s")
        self._add(phase, "of which builds the image", started["built_s"], "s")
        self._add(phase, "sent by etcd", sent / 1e6, "MB")
        self._add(phase, "RSS before", started["rss_before"] / 1e6, "MB")
        self._add(phase, "RSS with the image", started["rss"] / 1e6, "MB")
        self._add(phase, "RSS at most", started["rss_peak"] / 1e6, "MB")
        image = (started["rss"] - started["rss_before"]) / self._sizes.partitions
        self._add(phase, "memory of the image and of the listing, a partition", image, "B")
        await child.ask("stop", broker_ids=[self._sizes.nodes + 1])
        self._children.remove(child)
        await child.kill()

    async def _churn(self) -> None:
        """In-sync sets change one at a time: followers leave, and are added again."""
        phase = "in-sync sets"
        began, cpu, first = etcd_figures.read(self._endpoints), await self._cpu(), await self._revision()
        churned = await self._crowd.ask("churn", changes=self._sizes.churn)
        await self._settled()
        changes = await self._revision() - first
        self._add(phase, "changes", changes)
        self._add(phase, "the first half, by all leaders at once, in", churned["seconds"], "s")
        self._traffic(phase, began, churned["seconds"], changes)
        after = await self._cpu()
        for name, before_s in cpu.items():
            self._add(phase, f"CPU of {name}, a change", 1000 * (after[name] - before_s) / changes, "ms")

    async def _one_dies(self) -> None:
        await self._die("one node dies, seen by others", [self._victim], seen=True)
        await self._return("the node returns", [self._victim], wait_for_leaders=True)

    async def _rack_dies(self) -> None:
        await self._die("a rack dies, seen by others", self._rack, seen=True)
        await self._return("the rack returns", self._rack, wait_for_leaders=False)
        elected = await self._first.ask("elect_preferred")
        self._add("preferred leaders", "partitions", elected["partitions"])
        self._add("preferred leaders", "elected by a request in", elected["seconds"], "s")
        await self._settled()

    async def _silent_death(self) -> None:
        lost = [self._others[0]]
        await self._die("one node is cut off, its lease runs out", lost, seen=False)
        await self._return("the node that was cut off returns", lost, wait_for_leaders=False)

    async def _die(self, phase: str, brokers: list[int], *, seen: bool) -> None:
        for name, what in (("led", "led"), ("out", "out")):
            await self._second.ask("await", name=name, what=what, broker_ids=brokers)
        await self._reports()
        began, cpu, first = etcd_figures.read(self._endpoints), await self._cpu(), await self._revision()
        died = await self._crowd.ask("die", broker_ids=brokers, seen=seen)
        if seen:
            for child in (self._first, self._second):
                await child.ask("saw_refused", broker_ids=brokers)
        led = await self._second.ask("done", name="led")
        out = await self._second.ask("done", name="out")
        await self._settled()
        seconds = out["at_s"] - died["at_s"]
        self._add(phase, "nodes", len(brokers))
        self._add(phase, "partitions that lose their leader", led["partitions"])
        self._add(phase, "partitions that lose a replica", out["partitions"])
        self._add(phase, "all have leaders after", led["at_s"] - died["at_s"], "s")
        self._add(phase, "all in-sync sets are without the dead after", seconds, "s")
        self._add(phase, "revisions of the store", await self._revision() - first)
        counted = await self._reports()
        self._counted(phase, counted[0]["counts"])
        self._add(
            phase, "transactions of all other brokers", sum(each["counts"]["transactions"] for each in counted[1:])
        )
        self._traffic(phase, began, seconds)
        await self._used(phase, cpu)

    async def _return(self, phase: str, brokers: list[int], *, wait_for_leaders: bool) -> None:
        await self._second.ask("await", name="in sync", what="in sync", broker_ids=brokers)
        await self._second.ask("await", name="preferred", what="preferred", broker_ids=brokers)
        await self._reports()
        began, cpu = etcd_figures.read(self._endpoints), await self._cpu()
        began_s = time.monotonic()
        started = await self._crowd.ask("start_together", broker_ids=brokers)
        in_sync = await self._second.ask("done", name="in sync")
        self._add(phase, "takes part after", started["served_s"], "s")
        self._add(phase, "all its replicas are in sync after", in_sync["at_s"] - began_s, "s")
        counted = await self._reports()
        changed = sum(each["counts"]["transactions"] for each in counted)
        self._add(phase, "transactions of all brokers", changed)
        self._traffic(phase, began, time.monotonic() - began_s)
        await self._used(phase, cpu)
        if wait_for_leaders:
            preferred = await self._second.ask("done", name="preferred")
            self._add(phase, "leaderships that go back", preferred["partitions"])
            self._add(phase, "the last of them after", preferred["at_s"] - began_s, "s")

    async def _rolling_restart(self) -> None:
        """Some nodes one after the other: drain, stop, start, in sync."""
        phase = "rolling restart"
        took: list[float] = []
        await self._settled()
        cpu, first = await self._cpu(), await self._revision()
        for broker in self._others[1 : 1 + self._sizes.restarts]:
            began_s = time.monotonic()
            stopped = await self._crowd.ask("stop", broker_ids=[broker])
            await self._second.ask("await", name="in sync", what="in sync", broker_ids=[broker])
            await self._crowd.ask("start_together", broker_ids=[broker])
            in_sync = await self._second.ask("done", name="in sync")
            took.append(in_sync["at_s"] - began_s)
            self._say(f"{phase}: broker {broker} stopped in {stopped['seconds']:.2f} s, in sync after {took[-1]:.2f} s")
        self._add(phase, "nodes", len(took))
        self._add(phase, "a node, from its stop until all is in sync: median", sorted(took)[len(took) // 2], "s")
        self._add(phase, "a node, from its stop until all is in sync: longest", max(took), "s")
        self._add(phase, "revisions of the store, a node", (await self._revision() - first) / len(took))
        after = await self._cpu()
        self._add(
            phase, "CPU of the controller, a node", (after["the controller"] - cpu["the controller"]) / len(took), "s"
        )

    async def _controller_dies(self) -> None:
        phase = "the controller dies, seen by others"
        await self._settled()
        report = await self._second.ask("report")
        assert report["controller"] == CONTROLLER, f"broker {report['controller']} is the controller"
        for name in ("led", "out"):
            await self._second.ask("await", name=name, what=name, broker_ids=[CONTROLLER])
        await self._reports()
        died_s = time.monotonic()
        self._children.remove(self._first)
        await self._first.kill()
        await asyncio.gather(
            *(child.ask("saw_refused", broker_ids=[CONTROLLER]) for child in (self._second, self._crowd))
        )
        stood = await self._second.ask("until_controller", other_than=CONTROLLER)
        led = await self._second.ask("done", name="led")
        out = await self._second.ask("done", name="out")
        self._add(phase, "another one is the controller after", stood["at_s"] - died_s, "s")
        self._add(phase, "partitions that lose their leader", led["partitions"])
        self._add(phase, "all have leaders after", led["at_s"] - died_s, "s")
        self._add(phase, "all in-sync sets are without it after", out["at_s"] - died_s, "s")

    async def _settled(self) -> None:
        """Waits until nobody has changed anything for a while."""
        revision = -1
        while revision != (now := await self._revision()):
            revision = now
            await asyncio.sleep(1)

    async def _revision(self) -> int:
        """The newest revision that an image has."""
        told = [await child.ask("revision") for child in (self._first, self._second)]
        return max(int(each["revision"]) for each in told)

    async def _reports(self) -> list[dict[str, Any]]:
        """Of all processes, the controller's first. Counts begin again."""
        return [await child.ask("report") for child in (self._first, self._second, self._crowd)]

    async def _cpu(self) -> dict[str, float]:
        names = ("the controller", "a broker with an image", f"the other {len(self._others)} brokers")
        told = [_cpu_of(child.pid) for child in (self._first, self._second, self._crowd)]
        return dict(zip(names, told, strict=True))

    async def _used(self, phase: str, before: dict[str, float]) -> None:
        for name, after_s in (await self._cpu()).items():
            self._add(phase, f"CPU of {name}", after_s - before[name], "s")

    def _counted(self, phase: str, counts: dict[str, Any]) -> None:
        self._add(phase, "transactions of the controller", counts["transactions"])
        self._add(phase, "of which failed a comparison", counts["failed_comparisons"])
        self._add(phase, "most changes in one (128 are allowed)", counts["most_operations"])
        self._add(phase, "most comparisons in one (128 are allowed)", counts["most_compares"])
        self._add(phase, "the largest one (1,536 KiB are allowed)", counts["most_bytes"] / 1024, "KiB")


def _cpu_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
