"""Games on several brokers: pauses, cuts and deaths of single machines, leases that end, clients that go astray.

CORDWOOD_SIM_SEEDS=2000 plays more of them. `python -m simulation --nodes 3 --game groups --seed N` plays one
again.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any

import pytest
from simulation.game import SimulationFailed
from simulation.world.exchange import Connection, Exchange, Network
from simulation.world.slow_store import SlowStore
from tests.seeds import seeds

from cordwood.cluster.metadata.image import TopicImage
from cordwood.cluster.metadata_writer import MetadataWriter
from cordwood.cluster.stores.interface import LeaseEnded
from cordwood.model.errors import ErrorCode
from cordwood.model.moment import Moment
from cordwood.node.coordinators import transaction_completion
from cordwood.node.partitions.hosted import Deposed, HostedReplicas
from cordwood.wire.apis import ApiKey
from simulation import group_game, log_game, micro_batch_game, mixed_group_game, transaction_game

Patch = pytest.MonkeyPatch
NODES, STEPS, FEW_STEPS, FAMILY_STEPS = 3, 1000, 400, 2000
REPLICATED_STEPS = 4000
MOST_GAMES = 30
SEEDS = int(os.environ.get("CORDWOOD_SIM_SEEDS", "6"))

PRINT_DIGEST = "from simulation.log_game import play; print(play({seed}, {steps}, nodes={nodes}).digest)"

LOG: Callable[[int], Any] = partial(log_game.play, steps=STEPS, nodes=NODES)
GROUPS: Callable[[int], Any] = partial(group_game.play, nodes=NODES)
TRANSACTIONS: Callable[[int], Any] = partial(transaction_game.play, nodes=NODES)
FAMILIES: Callable[[int], Any] = partial(micro_batch_game.play, steps=FAMILY_STEPS, nodes=NODES)


@cache
def played(game: Callable[[int], Any], seed: int) -> Any:
    """A game is played once, and looked at by several tests. Not for brokers with a bug: theirs is another game."""
    return game(seed)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_acknowledged_records_outlive_the_faults_of_single_machines(seed: int) -> None:
    played(LOG, seed)


@pytest.mark.parametrize("seed", seeds(SEEDS // 2))
def test_groups_work_while_the_machine_of_their_coordinator_fails(seed: int) -> None:
    played(GROUPS, seed)


@pytest.mark.parametrize("seed", seeds(SEEDS // 3))
def test_mixed_groups_work_on_two_brokers(seed: int) -> None:
    mixed_group_game.play(seed, nodes=2)


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_transactions_are_whole_over_brokers_that_fail_and_lose_each_other(seed: int) -> None:
    played(TRANSACTIONS, seed)


@pytest.mark.parametrize("seed", seeds(SEEDS // 2))
def test_micro_batches_are_seen_once_and_whole_over_brokers_that_fail_and_lose_each_other(seed: int) -> None:
    played(FAMILIES, seed)


@pytest.mark.parametrize("play", [group_game.play, mixed_group_game.play], ids=["groups", "mixed groups"])
def test_groups_work_while_their_coordinators_move(play: Callable[..., Any]) -> None:
    for seed in seeds(SEEDS // 6):
        play(seed, REPLICATED_STEPS // 2, nodes=NODES, replicas=NODES)


@pytest.mark.parametrize("seed", seeds(SEEDS // 3))
def test_transactions_are_whole_while_their_coordinators_move(seed: int) -> None:
    transaction_game.play(seed, REPLICATED_STEPS, nodes=NODES, replicas=NODES)


@pytest.mark.parametrize("seed", seeds(SEEDS // 3))
def test_micro_batches_are_seen_once_and_whole_while_their_coordinator_moves(seed: int) -> None:
    micro_batch_game.play(seed, REPLICATED_STEPS, nodes=NODES, replicas=NODES)


def test_a_topic_is_deleted_while_a_broker_with_its_directories_is_away() -> None:
    log_game.play(56, 1500, nodes=NODES)


def test_the_games_are_about_something() -> None:
    total = Counter[str]()
    for seed in range(3):
        outcome = played(LOG, seed)
        total += outcome.events + Counter(
            promises=outcome.promises, records=outcome.records_read, requests=outcome.requests, lives=outcome.lives
        )
    assert total["requests"] > 300
    assert total["promises"] > 50
    assert total["records"] > 200
    assert total["lives"] > 12
    groups = Counter(asdict(played(GROUPS, 1)))
    assert groups["commits"] > 50
    transactions = sum((Counter(asdict(played(TRANSACTIONS, seed))) for seed in range(4)), Counter[str]())
    assert transactions["committed"] > 5
    assert transactions["refused_when_fenced"] > 3
    families = sum((Counter(asdict(played(FAMILIES, seed))) for seed in range(3)), Counter[str]())
    assert families["finished"] > 3
    assert families["lives"] > 12


def test_the_same_seed_is_the_same_game_in_every_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", PRINT_DIGEST.format(seed=3, steps=FEW_STEPS, nodes=NODES)],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert digests == {f"{log_game.play(3, FEW_STEPS, nodes=NODES).digest}\n"}


def test_the_same_seed_of_groups_has_the_same_transcript() -> None:
    games = [group_game.GroupGame(2, NODES) for _ in range(2)]
    outcomes = [game.play(FEW_STEPS) for game in games]
    assert outcomes[0] == outcomes[1]
    assert games[0].last_steps() == games[1].last_steps()
    for game in games:
        game.world.kill()


# Who guards the guards


def leads_what_the_image_gives_to_others(patch: Patch) -> None:
    real = HostedReplicas._follow_image

    def follow_image(hosted: HostedReplicas, topic: TopicImage, index: int, now: Moment) -> Deposed | None:
        me = hosted._broker_id
        partition = replace(topic.partitions[index], leader=me, replicas=(me,), isr=(me,))
        if partition.leader_broker_epoch > hosted._serving.broker_epoch:
            partition = replace(partition, leader_broker_epoch=hosted._serving.broker_epoch)
        partitions = (*topic.partitions[:index], partition, *topic.partitions[index + 1 :])
        return real(hosted, replace(topic, partitions=partitions), index, now)

    patch.setattr(HostedReplicas, "_follow_image", follow_image)


def gives_out_producer_ids_of_its_own(patch: Patch) -> None:
    async def allocate(writer: MetadataWriter, wall_ms: int) -> range:
        return range(1000)

    patch.setattr(MetadataWriter, "allocate_producer_ids", allocate)


def is_sent_requests_twice(patch: Patch) -> None:
    real = Network.deliver_request

    def deliver_request(network: Network, connection: Connection, now: Moment) -> None:
        first = connection.travelling[0]
        real(network, connection, now)
        if first.key is ApiKey.PRODUCE and not connection.holds:
            number = network.next_correlation_id()
            connection.travelling.appendleft(Exchange(connection, first.key, first.version, first.values, number))
            real(network, connection, now)

    patch.setattr(Network, "deliver_request", deliver_request)


def does_not_come_back_when_its_lease_ended(patch: Patch) -> None:
    real = SlowStore.grant
    granted = set[SlowStore]()

    async def grant(store: SlowStore, ttl_ms: int) -> int:
        if store in granted:
            raise LeaseEnded("for good")
        granted.add(store)
        return await real(store, ttl_ms)

    patch.setattr(SlowStore, "grant", grant)


def takes_an_unanswered_marker_for_written(patch: Patch) -> None:
    patch.setattr(
        transaction_completion, "_ENDED_THERE", (*transaction_completion._ENDED_THERE, ErrorCode.NETWORK_EXCEPTION)
    )


@pytest.mark.parametrize(
    ("sabotage", "play"),
    [
        (leads_what_the_image_gives_to_others, LOG),
        (leads_what_the_image_gives_to_others, GROUPS),
        (gives_out_producer_ids_of_its_own, LOG),
        (is_sent_requests_twice, LOG),
        (does_not_come_back_when_its_lease_ended, GROUPS),
        (takes_an_unanswered_marker_for_written, TRANSACTIONS),
        (takes_an_unanswered_marker_for_written, FAMILIES),
    ],
)
def test_the_checkers_notice_a_broker_that(
    sabotage: Callable[[Patch], None], play: Callable[[int], Any], monkeypatch: Patch
) -> None:
    sabotage(monkeypatch)
    assert any(_fails(play, seed) for seed in range(MOST_GAMES)), f"{MOST_GAMES} games did not notice"


def _fails(play: Callable[[int], Any], seed: int) -> bool:
    try:
        play(seed)
    except SimulationFailed as failure:
        print(str(failure).splitlines()[0])
        return True
    return False
