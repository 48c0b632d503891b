"""kill -9 under load, then one damage to one file: every acknowledged record is served unchanged, or reported.

A round kills the broker in the middle of appends, rolls, compaction, transactions, creations and deletions of topics.
Its directory is kept; copies of it are damaged, one file each, and a broker is started on each copy.
`CORDWOOD_DAMAGE_ROUNDS` plays more rounds; a failure prints the seed of the damage.
"""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import EXECUTABLE, BrokerProcess
from tests.crash.conftest import SEED
from tests.crash.damage import Damage, harm
from tests.crash.judging import Judge
from tests.crash.ledger import Ledger, Load, create_topics
from tests.crash.start_after_damage import ServingHere, ServingProcess, Started
from tests.deadline import eventually

from cordwood.client.cluster import Cluster
from cordwood.client.errors import RequestRefused
from cordwood.client.settings import ClientSettings
from cordwood.model.errors import ErrorCode

ROUNDS = int(os.environ.get("CORDWOOD_DAMAGE_ROUNDS", "1"))
DAMAGES = 6
"""Damages after each kill."""

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.check.interval.ms": "300",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


class Game:
    """A broker that is killed again and again, and copies of its directory that are damaged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ledger = Ledger()
        self.pristine = directory / "data"
        self.older = directory / "older"
        self.older.mkdir()
        self.broker = self._broker(self.pristine)
        self.outcomes: dict[str, int] = {}
        self.killed_s = 0.0

    def _broker(self, data_dir: Path) -> BrokerProcess:
        return BrokerProcess(data_dir, settings=SETTINGS, output=self.directory / f"{data_dir.name}.out")

    def close(self) -> None:
        self.broker.kill()

    def live(self, life: int, chance: random.Random) -> None:
        """One life under load, ended by kill -9."""
        if self.pristine.exists():
            shutil.rmtree(self.older)
            shutil.copytree(self.pristine, self.older)
        self.broker.settings["log.flush.offset.checkpoint.interval.ms"] = str(chance.choice([100, 300, 60_000]))
        self.broker.start()
        if not life:
            create_topics(self.broker.bootstrap, self.ledger)
        load = Load(self.broker.bootstrap, self.ledger, life)
        records, transactions, topics = self.ledger.outcomes
        load.start()

        def busy() -> bool:
            now = self.ledger.outcomes
            return now[0] > records + 200 and now[1] > transactions + 3 and now[2] > topics + 3

        eventually(busy, what="acknowledgements of all kinds")
        time.sleep(chance.uniform(0, 1.5))
        self.broker.kill()
        self.killed_s = time.monotonic()
        load.end()

    def damage_once(self, seed: str, *, as_process: bool = False) -> None:
        """Damages a copy, starts a broker on it and judges it."""
        chance = random.Random(seed)
        data_dir = self.directory / "damaged"
        shutil.rmtree(data_dir, ignore_errors=True)
        shutil.copytree(self.pristine, data_dir)
        damage = harm(data_dir, self.older, chance)
        broker: Started = ServingHere(data_dir, SETTINGS)
        if as_process:
            broker = ServingProcess(data_dir, settings=SETTINGS)
        said = ""
        try:
            said = self._start(broker, damage)
            if not self._end_open_transactions(broker):
                # The way out that the broker names.
                said += broker.output()
                assert "coordinator.damaged.records=skip" in said, said
                broker.stop()
                broker = ServingHere(data_dir, {**SETTINGS, "coordinator.damaged.records": "skip"})
                said += self._start(broker, damage)
                assert self._end_open_transactions(broker), broker.output()
            judge = Judge(broker, self.ledger, damage, self.pristine, said, self.killed_s)
            problems = judge.judge()
            if not problems and chance.random() < 0.4:
                said += broker.output()
                if broker.stop() != 0:
                    problems.append("the broker does not stop in order")
                said += self._start(broker, damage)
                again = Judge(broker, self.ledger, damage, self.pristine, said, self.killed_s)
                problems += [f"after a stop and a start: {each}" for each in again.judge()]
            name = f"{damage.kind} {damage.file.suffix or damage.file.name}"
            self.outcomes[name] = self.outcomes.get(name, 0) + 1
            if problems:
                listed = "\n".join(problems[:10])
                raise AssertionError(
                    f"{damage} (seed {seed}): {len(problems)} problems\n{listed}\n{said}{broker.output()[-6000:]}"
                )
        finally:
            broker.kill()

    def _start(self, broker: Started, damage: Damage) -> str:
        """Starts it, by the way out that a refusal names. What was said on the way."""
        said = ""
        for _ in range(4):
            serves = broker.launch_or_refuse()
            refusal = broker.output()
            if serves and ("is set aside" not in refusal or "put-back" in said):
                return said
            said += refusal
            if serves:
                broker.stop()
            else:
                broker.kill()
            if "is set aside" in refusal:
                said += self._recover("put-back", broker.data_dir, "--all")
            elif "cordwood recover metadata" in refusal:
                said += self._recover("metadata", broker.data_dir)
            elif "move it away" in refusal:
                (broker.data_dir / "meta.properties").unlink()
            else:
                break
        raise AssertionError(f"{damage}: no start, and no way out is named:\n{said[-6000:]}")

    @staticmethod
    def _recover(command: str, data_dir: Path, *arguments: str) -> str:
        done = subprocess.run(
            [str(EXECUTABLE), "recover", command, str(data_dir), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"recover {command}: {done.stdout}{done.stderr}"
        return f"recover {command}: {done.stdout}{done.stderr}"

    @staticmethod
    def _end_open_transactions(broker: Started) -> bool:
        """False: there is no coordinator."""
        with Cluster(ClientSettings(broker.bootstrap, retry_timeout_ms=5000)) as cluster:
            try:
                cluster.init_producer_id("payer", 20_000)
            except RequestRefused as refused:
                if refused.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    raise
                return False
        return True


@pytest.fixture
def game(tmp_path: Path) -> Iterator[Game]:
    game = Game(tmp_path)
    yield game
    game.close()


@pytest.mark.timeout(120 + 120 * ROUNDS)
def test_after_a_kill_and_a_damage_all_is_served_or_reported(game: Game) -> None:
    for number in range(ROUNDS):
        game.live(number, random.Random(f"{SEED}-{number}"))
        for each in range(DAMAGES):
            game.damage_once(f"{SEED}-{number}-{each}", as_process=each == 0)
    print(game.outcomes)
