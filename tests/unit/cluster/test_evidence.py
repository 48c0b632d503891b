"""Refused connections end the registration of a dead broker before its lease ends; nothing else does."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.unit.cluster.test_controller import Cluster, CountingStore, cluster

from cordwood.cluster.evidence import REVOKED_AGAIN_MS, Evidence
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.metadata.rows import EVIDENCE
from cordwood.cluster.planner.evidence import FIRST_OBSERVERS, observing_turn
from cordwood.cluster.stores.interface import Compare, Operation, TxnResult


def evidence(cluster: Cluster, observer: int) -> Evidence:
    found = cluster.running[observer].evidence
    assert found is not None
    return found


async def evidence_is_seen(three: Cluster, *observers: int) -> None:
    seen = {observer for each in three.some.image.evidence.values() for observer in each}
    assert seen <= set(observers)
    await three.until(lambda image: set(observers) <= {one for each in image.evidence.values() for one in each})


def electable(image: ClusterImage, broker_id: int, epoch: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.epoch == epoch and broker.electable


async def test_two_observers_end_the_registration_of_a_broker_and_forget_their_evidence() -> None:
    async with cluster(1, 2, 3) as three:
        await three.create("t", (3, 1, 2))
        evidence(three, 1).refused(3, 1)
        await evidence_is_seen(three, 1)
        assert 3 in three.some.image.brokers
        evidence(three, 2).refused(3, 1)
        await three.until(lambda image: image.topics["t"].partitions[0].leader == 1)
        assert 3 not in three.some.image.brokers
        await three.until(lambda image: not image.evidence)


@pytest.mark.parametrize(
    ("stopping", "level", "words"),
    [(True, "INFO", "is stopping, and listens no longer"), (False, "WARNING", "refuses connections")],
)
async def test_only_the_end_of_a_broker_that_did_not_say_that_it_stops_is_a_warning(
    stopping: bool, level: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "cordwood.cluster")
    async with cluster(1, 2, 3) as three:
        if stopping:
            await three.running[3].registration.say(draining=True)
        for observer in (1, 2):
            evidence(three, observer).refused(3, 1)
        await three.until(lambda image: 3 not in image.brokers)
        await three.until(lambda image: not image.evidence)
    said = {(each.levelname, each.getMessage()) for each in caplog.records if "registration is ended" in each.message}
    assert said == {(level, f"broker 3 {words}: its registration is ended")}


async def test_of_many_brokers_that_see_a_death_a_few_write_it_down() -> None:
    async with cluster(*range(1, 21)) as many:
        seen: set[int] = set()
        many.some.follower.watchers.append(lambda delta: seen.update(*many.some.image.evidence.values()))
        dead = many.running.pop(20)
        for observer in many.running:
            evidence(many, observer).refused(20, 1)
        await many.until(lambda image: 20 not in image.brokers)
        assert 2 <= len(seen) <= FIRST_OBSERVERS
        await dead.stop()


class SlowStore(CountingStore):
    """Others write while a transaction is on its way: each takes another time."""

    called = 0

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        self.called += 1
        for _ in range(20 * (self.called % 7)):
            await asyncio.sleep(0)
        return await super().txn(compares, operations)


async def test_evidence_is_written_and_deleted_once_however_many_die_together() -> None:
    store = SlowStore()
    async with cluster(*range(1, 21), store=store) as many:
        dead = {each: many.running.pop(each) for each in (16, 17, 18, 19, 20)}
        store.written.clear()
        for observer in many.running:
            for each in dead:
                evidence(many, observer).refused(each, 1)
        await many.until(lambda image: not dead.keys() & image.brokers.keys() and not image.evidence)
        written = [put.key for put in store.written if put.key.startswith(EVIDENCE)]
        deleted = [key for key in store.deleted if key.startswith(EVIDENCE)]
        assert len(written) >= 2 * len(dead)
        assert sorted(deleted) == sorted(written) == sorted(set(written))
        for writer in dead.values():
            await writer.stop()


async def test_brokers_that_come_later_write_a_death_down_if_the_first_did_not_see_it() -> None:
    async with cluster(*range(1, 21)) as many:
        dead = many.running.pop(20)
        last = sorted(many.running, key=lambda each: observing_turn(many.running[each].image, 20))[-2:]
        assert observing_turn(many.running[last[0]].image, 20) > 1
        for observer in last:
            evidence(many, observer).refused(20, 1)
        await many.until(lambda image: 20 not in image.brokers)
        await dead.stop()


async def test_a_broker_that_is_reached_in_time_is_not_written_down() -> None:
    async with cluster(*range(1, 21)) as many:
        in_turn = sorted(range(1, 20), key=lambda each: observing_turn(many.running[each].image, 20))
        earlier, later = in_turn[5], in_turn[-1]
        turns = [observing_turn(many.running[each].image, 20) for each in (earlier, later)]
        assert 0 < turns[0] < turns[1]
        evidence(many, earlier).refused(20, 1)
        evidence(many, later).refused(20, 1)
        evidence(many, earlier).reached(20, 1)
        await evidence_is_seen(many, later)
        assert 20 in many.some.image.brokers


async def test_the_controllers_registration_is_ended_as_well() -> None:
    async with cluster(1, 2, 3) as three:
        dead = three.running.pop(1)
        for observer in (2, 3):
            evidence(three, observer).refused(1, 1)
        await three.until(lambda image: image.controller is not None and image.controller.broker_id in (2, 3))
        assert 1 not in three.some.image.brokers
        await dead.stop()


async def test_one_observer_is_enough_if_no_other_is_left() -> None:
    async with cluster(1, 2) as two:
        evidence(two, 1).refused(2, 1)
        await two.until(lambda image: 2 not in image.brokers)


async def test_one_observer_of_two_is_not_enough() -> None:
    async with cluster(1, 2, 3) as three:
        evidence(three, 1).refused(3, 1)
        await evidence_is_seen(three, 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert 3 in three.some.image.brokers


async def test_an_observer_that_reaches_the_broker_takes_its_evidence_back() -> None:
    async with cluster(1, 2, 3) as three:
        evidence(three, 1).refused(3, 1)
        await evidence_is_seen(three, 1)
        evidence(three, 1).reached(3, 1)
        await three.until(lambda image: not image.evidence)


async def test_evidence_against_an_earlier_registration_counts_for_nothing() -> None:
    async with cluster(1, 2, 3) as three:
        old = three.running[3]
        await three.start(3)
        await three.until(lambda image: electable(image, 3, 2))
        for observer in (1, 2):
            evidence(three, observer).refused(3, 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert three.some.image.evidence == {}
        assert 3 in three.some.image.brokers
        await old.stop()


async def test_a_broker_that_does_not_listen_yet_is_not_suspected() -> None:
    async with cluster(1, 2) as two:
        await two.start(3, ready=False)
        await two.until(lambda image: 3 in image.brokers)
        for observer in (1, 2):
            evidence(two, observer).refused(3, 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert two.some.image.evidence == {}


@pytest.mark.parametrize(("later_ms", "ended"), [(REVOKED_AGAIN_MS - 1, False), (REVOKED_AGAIN_MS, True)])
async def test_a_broker_is_ended_at_most_once_a_minute(later_ms: int, ended: bool) -> None:
    async with cluster(1, 2) as two:
        evidence(two, 1).refused(2, 1)
        await two.until(lambda image: 2 not in image.brokers)
        old = two.running[2]
        await two.start(2)
        await two.until(lambda image: electable(image, 2, 2))
        two.boot_ms += later_ms
        evidence(two, 1).refused(2, 2)
        if ended:
            await two.until(lambda image: 2 not in image.brokers)
        else:
            await two.until(lambda image: bool(image.evidence))
            for _ in range(50):
                await asyncio.sleep(0)
            assert 2 in two.some.image.brokers
        await old.stop()
