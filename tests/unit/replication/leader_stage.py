"""A leader on a stage: commands in, what it says and where its ends are out. The language of the transcripts."""

from tests.moments import at

from cordwood.log.files.crashing_filesystem import CrashingFilesystem
from cordwood.log.log import Log
from cordwood.log.upkeep.flushing import FlushTicket
from cordwood.model.errors import ProtocolError
from cordwood.model.identifiers import NO_OFFSET, BrokerEpoch, BrokerId, Offset, TopicPartition
from cordwood.model.settings.topic_settings import resolve
from cordwood.records.build import build_batch
from cordwood.replication.in_sync import Version
from cordwood.replication.leader import LeaderReplica, Proposal

NOW_MS = 1_700_000_000_000
ME = 1
EPOCH_OF_FOLLOWERS = BrokerEpoch(7)
NO_CONNECTION = -1
LAG_MS = 1000


class LeaderStage:
    def __init__(self) -> None:
        self._filesystem = CrashingFilesystem()
        self._filesystem.make_directory("/data")
        self._settings = {"min.insync.replicas": "1", "ack.durability": "disk"}
        self._log = self._open()
        self._leader: LeaderReplica | None = None
        self._ticket: FlushTicket | None = None
        self._revision = 1
        self._clock_ms = 0
        self._proposal: Proposal | None = None

    def _open(self) -> Log:
        return Log.open(
            self._filesystem,
            "/data/orders-0",
            TopicPartition("orders", 0),
            resolve(self._settings),
            recovery_point=0,
            clean=False,
            now=at(NOW_MS),
        )

    @property
    def _min_insync(self) -> int:
        return int(self._settings["min.insync.replicas"])

    @property
    def leader(self) -> LeaderReplica:
        assert self._leader is not None, "a transcript begins with `lead`"
        return self._leader

    def play(self, line: str) -> str:
        """One command; the answer, if it has one, and the state after it."""
        command, *words = line.split()
        try:
            said = getattr(self, f"_do_{command}")(*words)
        except ProtocolError as refusal:
            said = refusal.code.name
        return self._state() if said is None else f"{said}; {self._state()}"

    def _state(self) -> str:
        log, leader = self._log, self.leader
        return (
            f"log end {log.offsets.end}, durable {log.offsets.durable_end}, high watermark {leader.high_watermark}, "
            f"stable {leader.last_stable_offset}"
        )

    def _do_lead(self, epoch: str, isr: str) -> None:
        members = [int(member) for member in isr.split(",")]
        self._leader = LeaderReplica(
            self._log, ME, int(epoch), members, self._min_insync, version=Version(0, self._revision)
        )

    def _do_append(self, count: str) -> None:
        batch = build_batch([(NOW_MS, b"key", b"value", ())] * int(count))
        self._log.append(batch, leader_epoch=self.leader.leader_epoch, now=at(NOW_MS))
        self.leader.advance()

    def _do_flush(self) -> None:
        self._do_begin_flush()
        self._do_end_flush()

    def _do_begin_flush(self) -> None:
        self._ticket = self._log.begin_flush()

    def _do_end_flush(self) -> str:
        assert self._ticket is not None
        self._ticket.sync()
        self._ticket.finish()
        return "moved" if self.leader.advance() else "stays"

    def _do_follower(self, broker_id: str, end_offset: str) -> str:
        follower, end = BrokerId(int(broker_id)), Offset(int(end_offset))
        moved = self.leader.follower_fetched(
            follower, EPOCH_OF_FOLLOWERS, end, NO_OFFSET, NO_CONNECTION, self._clock_ms
        )
        return "moved" if moved else "stays"

    def _do_isr(self, isr: str, elr: str = "") -> str:
        """The image shows a new in-sync set."""
        self._revision += 1
        eligible = [int(member) for member in elr.split(",") if member]
        members = [int(member) for member in isr.split(",")]
        moved = self.leader.image_shows(members, eligible, Version(self._revision, self._revision))
        return "moved" if moved else "stays"

    def _do_wait(self, wait_ms: str) -> None:
        self._clock_ms += int(wait_ms)

    def _do_propose(self) -> str:
        proposal = self.leader.propose(self._clock_ms, LAG_MS, range(1, 4), lambda _: EPOCH_OF_FOLLOWERS)
        if proposal is None:
            return "nothing"
        self._proposal = proposal
        return f"asks for {','.join(map(str, sorted(proposal.isr)))}"

    def _do_outcome(self, outcome: str) -> str:
        assert self._proposal is not None
        getattr(self.leader.in_sync, outcome)(self._proposal.version)
        moved = self.leader.proposal_ended()
        maximal = ",".join(map(str, sorted(self.leader.in_sync.maximal)))
        return f"counts with {maximal}, {'moved' if moved else 'stays'}"

    def _do_latest(self) -> str:
        return "known" if self.leader.knows_high_watermark else "not known yet"

    def _do_set(self, name: str, value: str) -> str:
        self._settings[name] = value
        self._log.change_settings(resolve(self._settings))
        moved = self.leader.change_min_insync(self._min_insync)
        enough = "enough in sync" if self.leader.enough_in_sync else "too few in sync"
        return f"{enough}, {'moved' if moved else 'stays'}"

    def _do_request(self, epoch: str) -> str:
        self.leader.check_epoch(int(epoch))
        return "taken"

    def _do_end_of(self, epoch: str) -> str:
        found, end_offset = self.leader.end_offset_for(int(epoch))
        return f"epoch {found} ends at {end_offset}"

    def _do_diverges(self, last_epoch: str, offset: str) -> str:
        diverging = self.leader.divergence(int(last_epoch), int(offset))
        return "agrees" if diverging is None else f"diverged at the end of epoch {diverging[0]}, offset {diverging[1]}"

    def _do_power_cut(self) -> str:
        """Unsynced writes may stay or go: the seed of this disk lets them go."""
        before = self._log.offsets.end
        self._filesystem.crash()
        self._log = self._open()
        self._leader = LeaderReplica(self._log, ME, self.leader.leader_epoch + 1, [ME], self._min_insync)
        return f"lost {before - self._log.offsets.end}"
