"""The verdict on a follower's log, and replicas that compact, go away, are filled and lead, as sets of offsets."""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from cordwood.replication.dropped_deletions import Verdict, judge
from cordwood.segments.dropped_deletions import Dropped

judge_in_games = judge
OWN, OTHER = Dropped(1, 5), Dropped(2, 5)


@pytest.mark.parametrize(
    ("own", "leaders", "empty", "end", "verdict"),
    [
        (None, None, False, 3, Verdict.GO_ON),
        (OWN, None, False, 3, Verdict.GO_ON),
        (OWN, OTHER, False, 6, Verdict.GO_ON),
        (OWN, OTHER, False, 5, Verdict.REFILL),
        (None, OTHER, False, 3, Verdict.REFILL),
        (OTHER, OTHER, False, 3, Verdict.GO_ON),
        (OWN, OTHER, True, 3, Verdict.TAKE_OVER),
        (OWN, OTHER, True, 6, Verdict.GO_ON),
        (OTHER, OTHER, True, 3, Verdict.GO_ON),
    ],
)
def test_the_verdict_follows_from_both_notes_and_the_end(
    own: Dropped | None, leaders: Dropped | None, empty: bool, end: int, verdict: Verdict
) -> None:
    assert judge(own, leaders, empty=empty, end=end) is verdict


@dataclass
class Replica:
    """Offsets come in pairs: a value at an even one, and its deletion somewhere behind, at an odd one."""

    end: int = 0
    has: set[int] = field(default_factory=set)
    note: Dropped | None = None
    in_sync: bool = True
    refills: int = 0


class Cluster:
    def __init__(self) -> None:
        self.deletes: dict[int, int] = {}
        """The value that each deletion deletes."""
        self.open: list[int] = []
        """Values without a deletion."""
        self.replicas = [Replica(), Replica(), Replica()]
        self.leader = self.replicas[0]
        self.marks = 0

    def append(self, number: int) -> None:
        end = self.leader.end
        if number % 2 and self.open:
            self.deletes[end] = self.open.pop(number % len(self.open))
        else:
            self.open.append(end)
        self.leader.has.add(end)
        self.leader.end += 1
        for each in self.replicas:
            if each is not self.leader and each.in_sync:
                self.fetch(each, 1)

    def fetch(self, follower: Replica, count: int) -> None:
        leader = self.leader
        if follower is leader:
            return
        verdict = judge_in_games(follower.note, leader.note, empty=not follower.end, end=follower.end)
        if verdict is Verdict.REFILL:
            assert not follower.in_sync, "a replica in sync is never filled anew"
            follower.has, follower.end = set(), 0
            follower.refills += 1
            return
        if verdict is Verdict.TAKE_OVER:
            follower.note = leader.note
        upto = min(follower.end + count, leader.end)
        follower.has |= {offset for offset in leader.has if follower.end <= offset < upto}
        follower.end = upto
        follower.in_sync = follower.in_sync or upto == leader.end

    def compact(self, replica: Replica) -> None:
        """Removes deleted values, and the deletions that a round before has seen to be alone."""
        alone = {
            deletion
            for deletion, value in self.deletes.items()
            if deletion in replica.has and value not in replica.has and deletion < self.high_watermark
        }
        if alone and replica.in_sync:
            self.marks += 1
            before = -1 if replica.note is None else replica.note.highest
            replica.note = Dropped(self.marks, max(before, *alone))
            replica.has -= alone
        replica.has -= {
            value for deletion, value in self.deletes.items() if deletion in replica.has and deletion < replica.end
        }

    @property
    def high_watermark(self) -> int:
        return min(each.end for each in self.replicas if each.in_sync)

    def check(self) -> None:
        for replica in self.replicas:
            for deletion, value in self.deletes.items():
                if deletion < replica.end and deletion not in replica.has:
                    assert value not in replica.has, f"{value} is back: {replica}"


def play(seed: int) -> Cluster:
    """Plays a game. A replica is away for long, so that compaction comes some rounds further."""
    chance, cluster = random.Random(seed), Cluster()
    for _ in range(80):
        replica = chance.choice(cluster.replicas)
        match chance.choice("aaacccclldeff"):
            case "a":
                cluster.append(chance.randrange(6))
            case "c":
                cluster.compact(replica)
            case "l" if replica.in_sync:
                cluster.leader = replica
            case "d" if replica is not cluster.leader:
                replica.in_sync = False
            case "e" if not replica.in_sync and chance.random() < 0.3:
                replica.has, replica.end, replica.note = set(), 0, None
            case "f" if not replica.in_sync:
                for _ in range(chance.choice((1, 1, 9))):
                    cluster.fetch(replica, chance.choice((1, 5, 1000)))
        cluster.check()
    for replica in cluster.replicas:
        for _ in range(3):
            cluster.fetch(replica, 1000)
        assert replica.end == cluster.leader.end, "a replica that is filled comes to the end"
    cluster.check()
    return cluster


def play_all(games: int) -> list[Cluster]:
    return [play(seed) for seed in range(games)]


def test_no_replica_keeps_a_value_without_its_deletion() -> None:
    played = play_all(200)
    assert sum(replica.refills for cluster in played for replica in cluster.replicas) > 20


BROKEN: dict[str, Callable[..., Verdict]] = {
    "never fills a replica anew": lambda verdict, **_: Verdict.GO_ON if verdict is Verdict.REFILL else verdict,
    "takes no note over": lambda verdict, **_: Verdict.GO_ON if verdict is Verdict.TAKE_OVER else verdict,
    "goes on at the deletion itself": lambda verdict, leaders, end, **_: (
        Verdict.GO_ON if leaders is not None and leaders.highest == end else verdict
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=list(BROKEN))
def test_games_notice_a_verdict_that(broken: Callable[..., Verdict], monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(own: Dropped | None, leaders: Dropped | None, *, empty: bool, end: int) -> Verdict:
        return broken(judge(own, leaders, empty=empty, end=end), leaders=leaders, end=end)

    monkeypatch.setattr(sys.modules[__name__], "judge_in_games", wrong)
    with pytest.raises(AssertionError, match="is back"):
        play_all(1000)
