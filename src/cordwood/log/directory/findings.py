"""Known damage in the logs of one data directory, and the progress of the scrub, kept over restarts.

The findings say which offsets cannot be read, since when, and why. The scrub adds findings, and so do recovery and
readers that meet damage. The file is written whole, with a checksum: a flipped bit must not move a finding, since
readers are refused there. If the file is missing or damaged, the scrub begins anew and finds the damage again.
"""

import json
import zlib
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from cordwood.log.parts.report import Damage
from cordwood.model.identifiers import TopicPartition
from cordwood.segments.damaged import DamagedCheckpoint

FILE_NAME = "scrub-checkpoint"
MAX_FINDINGS = 1000
"""Further findings are counted but not kept: a disk in such a state is not repaired range by range."""
MAX_REPAIRS = 100
"""The newest repairs are kept."""

_VERSION = 2
_WITHOUT_CHECKSUM = 1
"""Two flipped bits away from the present version."""


class Finding(NamedTuple):
    """A range of damaged offsets of one partition."""

    partition: TopicPartition
    file: str
    """The name of the file in the partition's directory."""
    position: int
    first_offset: int
    end_offset: int
    reason: str
    found_ms: int

    @classmethod
    def of(cls, damage: Damage, wall_ms: int) -> "Finding":
        return cls(
            damage.partition,
            damage.file.rpartition("/")[2],
            damage.position,
            damage.first_offset,
            damage.end_offset,
            damage.reason,
            wall_ms,
        )

    @property
    def segment_base_offset(self) -> int | None:
        """The base offset of the damaged segment; None if the whole log is gone."""
        digits = self.file.partition(".")[0]
        return int(digits) if digits.isdecimal() else None


class Repaired(NamedTuple):
    """Damaged offsets whose batches came from other replicas."""

    partition: TopicPartition
    first_offset: int
    end_offset: int
    broker_ids: tuple[int, ...]
    repaired_ms: int


class Place(NamedTuple):
    """The last segment that the scrub has checked."""

    partition: TopicPartition
    base_offset: int


class Findings:
    """All findings, and the progress of the scrub. `changed` is True until both are saved."""

    def __init__(self) -> None:
        self.pass_began_ms: int | None = None
        """The beginning of the present pass; None: no pass is under way."""
        self.last_pass_began_ms: int | None = None
        self.last_pass_ended_ms: int | None = None
        self.checked: Place | None = None
        self.changed = False
        self.not_kept = 0
        self._found: dict[tuple[TopicPartition, str, int], Finding] = {}
        self.repairs: deque[Repaired] = deque(maxlen=MAX_REPAIRS)
        """The last repairs, oldest first."""

    def __len__(self) -> int:
        return len(self._found)

    def all(self) -> list[Finding]:
        return sorted(self._found.values(), key=lambda each: (each.partition, each.first_offset))

    def of(self, partition: TopicPartition) -> list[Finding]:
        return [finding for finding in self.all() if finding.partition == partition]

    def add(self, damages: Iterable[Damage], wall_ms: int) -> list[Finding]:
        """Adds the damage that a log has found; returns new findings."""
        new = []
        for damage in damages:
            finding = Finding.of(damage, wall_ms)
            key = (finding.partition, finding.file, finding.position)
            if key in self._found:
                continue
            if len(self._found) >= MAX_FINDINGS:
                self.not_kept += 1
                continue
            self._found[key] = finding
            new.append(finding)
        self.changed |= bool(new)
        return new

    def take(self, findings: Iterable[Finding]) -> None:
        """Adds findings of partitions that come from another data directory."""
        for finding in findings:
            self._found.setdefault((finding.partition, finding.file, finding.position), finding)
            self.changed = True

    def remove(self, findings: Iterable[Finding]) -> None:
        """Removes findings that no longer hold: retention or a deletion took the records, or they were repaired."""
        for finding in findings:
            self._found.pop((finding.partition, finding.file, finding.position), None)
            self.changed = True

    def repaired(self, findings: Iterable[Finding], broker_ids: Iterable[int], wall_ms: int) -> None:
        """Replaces findings by the note that batches of these brokers repaired them."""
        brokers = tuple(sorted(broker_ids))
        for finding in findings:
            self.repairs.append(Repaired(finding.partition, finding.first_offset, finding.end_offset, brokers, wall_ms))
            self.remove([finding])

    def forget_topic(self, topic: str) -> None:
        self.remove([each for each in self.all() if each.partition.topic == topic])
        kept = [each for each in self.repairs if each.partition.topic != topic]
        if len(kept) < len(self.repairs):
            self.repairs = deque(kept, maxlen=MAX_REPAIRS)
            self.changed = True

    def to_bytes(self) -> bytes:
        fields = {
            "version": _VERSION,
            "pass_began_ms": self.pass_began_ms,
            "last_pass_began_ms": self.last_pass_began_ms,
            "last_pass_ended_ms": self.last_pass_ended_ms,
            "checked": None if self.checked is None else [*self.checked.partition, self.checked.base_offset],
            "findings": [[*finding.partition, *finding[1:]] for finding in self.all()],
            "repairs": [[*repaired.partition, *repaired[1:]] for repaired in self.repairs],
        }
        return json.dumps({**fields, "checksum": _checksum(fields)}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Findings":
        """The findings in the output of `to_bytes`. Raises DamagedCheckpoint for other bytes."""
        findings = cls()
        try:
            fields = json.loads(data)
            if fields["version"] not in (_VERSION, _WITHOUT_CHECKSUM):
                raise DamagedCheckpoint(f"{FILE_NAME}: version {fields['version']!r} is unknown")
            checksum = fields.pop("checksum", None)
            if fields["version"] == _VERSION and checksum != _checksum(fields):
                raise DamagedCheckpoint(f"{FILE_NAME}: its checksum is wrong")
            for name in ("pass_began_ms", "last_pass_began_ms", "last_pass_ended_ms"):
                value = fields[name]
                setattr(findings, name, None if value is None else int(value))
            if fields["checked"] is not None:
                topic, index, base_offset = fields["checked"]
                findings.checked = Place(TopicPartition(str(topic), int(index)), int(base_offset))
            for topic, index, file, position, first, end, reason, found_ms in fields["findings"]:
                partition = TopicPartition(str(topic), int(index))
                finding = Finding(partition, str(file), int(position), int(first), int(end), str(reason), int(found_ms))
                findings._found[partition, finding.file, finding.position] = finding
            # An earlier version kept no repairs.
            for topic, index, first, end, broker_ids, repaired_ms in fields.get("repairs", ()):
                partition = TopicPartition(str(topic), int(index))
                brokers = tuple(int(broker_id) for broker_id in broker_ids)
                findings.repairs.append(Repaired(partition, int(first), int(end), brokers, int(repaired_ms)))
        except (ValueError, TypeError, KeyError, LookupError) as error:
            raise DamagedCheckpoint(f"{FILE_NAME}: {error!r}") from None
        return findings


def _checksum(fields: dict[str, Any]) -> str:
    """The checksum of the file's other fields."""
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True).encode()):08x}"
