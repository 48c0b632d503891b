"""The leader machine against a dumb twin, which looks at every single record instead of comparing ends."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.replication.leader_stage import LeaderStage

FOLLOWERS = (2, 3)
ME = 1

commands = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("follower"), st.sampled_from(FOLLOWERS), st.integers(0, 9)),
    st.tuples(st.just("isr"), st.sampled_from(["1", "1,2", "1,3", "1,2,3"])),
    st.tuples(st.just("set"), st.just("min.insync.replicas"), st.integers(1, 3)),
    st.tuples(st.just("set"), st.just("ack.durability"), st.sampled_from(["disk", "os"])),
)


class Twin:
    """Who has which record, and which ones are committed."""

    def __init__(self) -> None:
        self.records = 0
        self.synced = 0
        self.holds: dict[int, int] = dict.fromkeys(FOLLOWERS, 0)
        self.isr = [ME, *FOLLOWERS]
        self.least = 1
        self.on_disk = True
        self.committed: set[int] = set()

    def play(self, command: str, *words: object) -> None:
        match command, words:
            case "append", (int(count),):
                self.records += count
            case "flush", _:
                self.synced = self.records
            case "follower", (int(broker), int(end)):
                self.holds[broker] = end
            case "isr", (str(members),):
                self.isr = [int(member) for member in members.split(",")]
            case "set", ("min.insync.replicas", int(least)):
                self.least = least
            case "set", (_, str(durability)):
                self.on_disk = durability == "disk"
        if len(self.isr) >= self.least:
            self.committed |= {record for record in range(self.records) if self._everybody_has(record)}

    def _everybody_has(self, record: int) -> bool:
        mine = self.synced if self.on_disk else self.records
        return record < mine and all(record < self.holds[member] for member in self.isr if member != ME)

    @property
    def high_watermark(self) -> int:
        return next(offset for offset in range(self.records + 1) if offset not in self.committed)


@settings(max_examples=60, deadline=None)
@given(st.lists(commands, max_size=25))
def test_the_high_watermark_is_what_the_twin_says(script: list[tuple[object, ...]]) -> None:
    stage, twin = LeaderStage(), Twin()
    stage.play("lead 0 1,2,3")
    for command, *words in script:
        if command == "flush" and twin.synced == twin.records:
            continue
        if command == "follower":
            # A follower has nothing that the leader has not.
            words[1] = min(int(str(words[1])), twin.records)
        stage.play(" ".join(map(str, (command, *words))))
        twin.play(str(command), *words)
        assert stage.leader.high_watermark == twin.high_watermark, (command, words)
        assert stage.leader.last_stable_offset <= stage.leader.high_watermark <= twin.records
