"""Switches: the points at which readers of an output topic go over from one edition's topic to another's.

A swap cannot take back what readers of a topic have read, so each edition writes a topic of its own. A reader that is
to see the output of every input record once needs two offsets that belong together: where it leaves the one topic, and
where it enters the other.

- A swap notes `at`: the positions up to which the leaving edition has read its inputs. The leaving edition writes
  nothing more, so all that it wrote is from records before `at`.
- The entering edition has read no further. It reads up to `at` exactly and ends a batch there. Then the switch is
  settled: the ends of both editions' topics are noted, and readers go over.
- Until then nobody has read from the entering edition's topic. Another swap changes where the switch leads; a swap back
  to the edition that was left takes the switch away.

Switches are numbered by their place in the list, which never changes once they are settled. A reader notes how many it
has taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from cordwood.pipelines.editions.positions import Positions, ahead, from_json, to_json


@dataclass(frozen=True)
class Step:
    """The step of a reader from one topic to another: the offset of the next record in every partition of both."""

    leaves: str
    leaves_at: Mapping[int, int]
    enters: str
    enters_at: Mapping[int, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "leaves": self.leaves,
            "enters": self.enters,
            "at": to_json({self.leaves: self.leaves_at, self.enters: self.enters_at}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        at = from_json(value["at"])
        return cls(value["leaves"], at[value["leaves"]], value["enters"], at[value["enters"]])


@dataclass(frozen=True)
class Switch:
    """The change from one live edition to another, as readers of its topics see it."""

    before: str
    now: str
    at: Positions
    """How far `before` has read the inputs, and of topics that it has left the ends."""
    steps: Mapping[str, Step] | None = None
    """The steps by declared topic, of those topics that change; None until `now` has read up to `at`."""

    @property
    def is_settled(self) -> bool:
        return self.steps is not None

    def is_beyond(self, step: Step) -> bool:
        """True if `before` has taken this step in an input and read on."""
        return bool(ahead({step.enters: self.at.get(step.enters, {})}, {step.enters: step.enters_at}))

    def to_json(self) -> dict[str, Any]:
        steps = None if self.steps is None else {name: step.to_json() for name, step in self.steps.items()}
        return {"before": self.before, "now": self.now, "at": to_json(self.at), "steps": steps}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        found = value["steps"]
        steps = None if found is None else {name: Step.from_json(step) for name, step in found.items()}
        return cls(value["before"], value["now"], from_json(value["at"]), steps)


@dataclass(frozen=True)
class Followed:
    """The place of a reader in the output of another pipeline."""

    pipeline: str
    output: str
    """The declared topic."""
    edition: str
    topic: str
    """The topic that the reader reads now, which `edition` writes or wrote."""
    switches: int
    """How many switches the reader has taken."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(value["pipeline"], value["output"], value["edition"], value["topic"], int(value["switches"]))


Switches = tuple[Switch, ...]


def pending(switches: Sequence[Switch]) -> Switch | None:
    """The last switch, if it is not settled."""
    return switches[-1] if switches and not switches[-1].is_settled else None


def swapped(switches: Switches, before: str, now: str, at: Positions) -> Switches:
    """The switches after a swap from `before`, which has read up to `at`, to `now`."""
    waiting = pending(switches)
    if waiting is None:
        return (*switches, Switch(before, now, at))
    if now == waiting.before:
        return switches[:-1]
    return (*switches[:-1], replace(waiting, now=now))


def settled(switches: Switches, steps: Mapping[str, Step]) -> Switches:
    """The switches after the entering edition has read up to the point of the last one."""
    waiting = pending(switches)
    assert waiting is not None, "there is a switch to settle"
    return (*switches[:-1], replace(waiting, steps=steps))
