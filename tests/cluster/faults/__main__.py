"""Faults on a real cluster of three brokers and three members of etcd, judged by the history of its clients.

    python -m tests.cluster.faults --minutes 60 --seed 7 --namespaces       # all faults, mixed, for an hour
    python -m tests.cluster.faults --rounds 3 --only partition --namespaces # one kind, three times
    python -m tests.cluster.faults --rounds 1 --only kill-9,paused          # on the loopback address

A run is a sequence of acts. In an act clients write and read while faults come and go; then everything is mended, all
replicas get in sync, every acknowledged record is read, and all brokers stop and have the same bytes. Partitions of
the network and slow links need --namespaces; full disks and power cuts need --disks. Both need root.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path

from tests.cluster.faults.clients import Clients
from tests.cluster.faults.kinds import KINDS, Fault
from tests.cluster.faults.stage import Stage
from tests.cluster.faults.switch import NoNetwork
from tests.crash.mounts import MountUnavailable
from tests.etcd.finding import NoEtcd, find_etcd

NOT_HERE = 77
"""The exit code where this machine cannot run it."""
ACT_S = 240.0
STOP_WITHIN_S = 60.0
CHANCE_OF_A_SECOND = 0.35


class Diary:
    """What was done, and when: on the output and in a file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._began_s = time.monotonic()

    def say(self, words: str) -> None:
        line = f"{datetime.now(UTC):%H:%M:%S.%f}"[:-3] + f" {time.monotonic() - self._began_s:8.2f} {words}"
        print(line, flush=True)
        self._file.write(line + "\n")


class Run:
    """Acts on one stage. The seed decides which faults come, on whom, and for how long; the machine does the rest."""

    def __init__(
        self, stage: Stage, diary: Diary, kinds: list[type[Fault]], seed: int, shorter: float, pace_s: float
    ) -> None:
        self._stage = stage
        self._say = diary.say
        self._kinds = kinds
        self._chance = random.Random(seed)
        self._seed = seed
        self._shorter = shorter
        self._pace_s = pace_s
        self.counts: Counter[str] = Counter()
        self.gaps: dict[str, list[float]] = defaultdict(list)
        self.heals: dict[str, list[float]] = defaultdict(list)
        self.found: list[str] = []

    def act(self, number: int, *, until_s: float, rounds: list[type[Fault]] | None) -> None:
        history = self._stage.directory / f"history-{number}.jsonl"
        clients = Clients(self._stage.bootstrap, history, number, self._seed + number, pace_s=self._pace_s)
        try:
            clients.start()
            time.sleep(2)
            for kind in rounds or []:
                self._round(kind, clients, mixed=False)
            while rounds is None and time.monotonic() < until_s:
                self._round(self._chance.choice(self._kinds), clients, mixed=True)
            self._judge(number, clients)
        finally:
            clients.abandon()

    def _round(self, kind: type[Fault], clients: Clients, *, mixed: bool) -> None:
        faults = [self._begin(kind, clients)]
        second = self._chance.choice(self._kinds)
        hold_s = self._chance.uniform(*kind.holds_s) / self._shorter
        if mixed and self._chance.random() < CHANCE_OF_A_SECOND and fits(kind, second):
            time.sleep(hold_s / 2)
            faults.append(self._begin(second, clients))
        time.sleep(hold_s)
        victims = {node_id for fault in faults for node_id in fault.victims}
        self._stage.look_for_the_unexpected(victims)
        for fault in reversed(faults):
            fault.stop()
            self._say(f"  {fault.name} is over")
        self._stage.wait_running()
        healed_s = self._stage.wait_healed()
        if not clients.acknowledgements.come_everywhere():
            self._find("a partition acknowledges nothing though all replicas are in sync")
            for words in clients.explain_silence(self._stage.directory):
                self._say(f"  {words}")
        gap = clients.acknowledgements.longest_gap()
        self._stage.look_for_the_unexpected()
        where = f"{gap.topic}-{gap.partition}"
        self._say(
            f"  in sync after {healed_s:.1f} s; the longest time between two acks was {gap.seconds:.1f} s ({where})"
        )
        if len(faults) == 1:
            self.gaps[kind.name].append(gap.seconds)
            self.heals[kind.name].append(healed_s)

    def _begin(self, kind: type[Fault], clients: Clients) -> Fault:
        fault = kind(self._stage, self._chance, clients.orders)
        if kind.loses_storage:
            self._stage.wait_healed()
        clients.acknowledgements.longest_gap()
        self._say(f"{kind.name} ...")
        self._say(f"  {fault.start()}")
        self.counts[kind.name] += 1
        return fault

    def _judge(self, number: int, clients: Clients) -> None:
        report = clients.finish()
        self._say(f"act {number}: {clients.words()}")
        if not report.clean:
            self._find(report.render())
        for failure in clients.failures:
            self._find(failure)
        self._stage.wait_healed()
        for node in self._stage.nodes:
            code = node.broker.stop(STOP_WITHIN_S)
            if code != 0:
                self._find(f"broker {node.id} ended with {code} after SIGTERM")
        for difference in self._stage.compare_replicas(clients.topics):
            self._find(difference)
        for words in self._stage.unexpected:
            self._find(words)
        self._stage.unexpected.clear()
        totals = report.totals
        self._say(f"act {number} is {'clean' if not self.found else 'NOT clean'}: {totals.acked} acked")

    def _find(self, words: str) -> None:
        self._say(f"FOUND: {words}")
        self.found.append(words)

    def table(self) -> str:
        lines = ["| fault | times | alone | acks stopped for (median, longest) | in sync again after (longest) |"]
        lines.append("| --- | --- | --- | --- | --- |")
        for name, count in sorted(self.counts.items()):
            gaps, heals = sorted(self.gaps[name]), self.heals[name]
            if gaps:
                median = gaps[len(gaps) // 2]
                times = f"{median:.1f} s, {gaps[-1]:.1f} s | {max(heals):.1f} s"
            else:
                times = "- | -"
            lines.append(f"| {name} | {count} | {len(gaps)} | {times} |")
        return "\n".join(lines)


def fits(one: type[Fault], other: type[Fault]) -> bool:
    """Says if the second fault may begin while the first lasts. Records may be lost if storage is lost while others are
    out of sync; a rolling restart and others wait for replicas to be in sync, or for a broker to come back; two faults
    of one family (etcd without its quorum, shorter and longer) would want more victims than there are."""
    alone = {"rolling-restart", "etcd-leader-and-broker", "two-killed", "deposed-leader", "read-errors"}
    related = issubclass(one, other) or issubclass(other, one)
    return not (related or other.loses_storage or {one.name, other.name} & alone)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, help="mixed faults for so long")
    parser.add_argument("--rounds", type=int, default=1, help="without --minutes: each kind so many times, alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help=f"kinds, separated by commas: {', '.join(k.name for k in KINDS)}")
    parser.add_argument("--pace-ms", type=float, default=20, help="the time between two records of a producer")
    parser.add_argument("--shorter", type=float, default=1, help="divides the time that faults last")
    parser.add_argument("--namespaces", action="store_true", help="each node in a network namespace of its own")
    parser.add_argument("--disks", action="store_true", help="each node on a file system of its own")
    parser.add_argument("--directory", type=Path, help="keep everything here: logs, histories, data")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    kinds = [
        kind
        for kind in KINDS
        if (kind.name in wanted if wanted else True)
        and (options.namespaces or not kind.needs_network)
        and (options.disks or not kind.needs_disks)
    ]
    missing = wanted - {kind.name for kind in kinds}
    if missing:
        parser.error(f"{', '.join(sorted(missing))}: unknown, or needs --namespaces or --disks")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = options.directory or Path(tempfile.mkdtemp(prefix="cordwood-faults-"))
    directory.mkdir(parents=True, exist_ok=True)
    diary = Diary(directory / "diary.log")
    diary.say(f"{' '.join(sys.argv[1:])} (seed {options.seed}, pid {os.getpid()}, {directory})")
    try:
        found = play(options, kinds, directory, diary)
    except (NoNetwork, MountUnavailable, NoEtcd) as reason:
        print(f"cannot run here: {reason}")
        return NOT_HERE
    if not found and options.directory is None:
        shutil.rmtree(directory)
    return 1 if found else 0


def play(options: argparse.Namespace, kinds: list[type[Fault]], directory: Path, diary: Diary) -> list[str]:
    began_s = time.monotonic()
    with Stage(directory, find_etcd(), namespaces=options.namespaces, disks=options.disks, say=diary.say) as stage:
        diary.say(f"three nodes serve after {time.monotonic() - began_s:.1f} s")
        run = Run(stage, diary, kinds, options.seed, options.shorter, options.pace_ms / 1000)
        with contextlib.ExitStack() as ending:
            ending.callback(lambda: diary.say(f"\n{run.table()}"))
            if options.minutes is None:
                run.act(0, until_s=0, rounds=kinds * options.rounds)
            else:
                until_s = began_s + options.minutes * 60
                number = 0
                while time.monotonic() < until_s and not run.found:
                    if number:
                        stage.start_brokers()
                    run.act(number, until_s=min(until_s, time.monotonic() + ACT_S), rounds=None)
                    number += 1
        clean = "found nothing" if not run.found else f"FOUND {len(run.found)}"
        diary.say(f"{sum(run.counts.values())} faults in {(time.monotonic() - began_s) / 60:.1f} min: {clean}")
        return run.found


if __name__ == "__main__":
    sys.exit(main())
