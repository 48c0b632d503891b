"""The file that decides which edition of a pipeline is live: `live.json`, replaced as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from cordwood.pipelines.definition.errors import DamagedState
from cordwood.pipelines.editions.positions import Positions, from_json, to_json
from cordwood.pipelines.editions.switches import Switch, Switches

FORMAT: Final = 1
"""Version of the files of a pipeline's state. A higher number was written by a newer program."""


@dataclass(frozen=True)
class Live:
    """The edition that readers get, and those that they got before."""

    edition: str
    before: tuple[str, ...]
    """Editions that were live, the latest one last: a rollback goes back along them."""
    effects_from: Positions
    """Records before these positions have had their effects: the live edition writes nothing of them to outputs that
    are not replayable. The positions are in the topics that the live edition reads, by their ids: an earlier edition
    may have read earlier topics of the same names."""
    since_ms: int
    switches: Switches = ()
    """The changes of the live edition, for readers of its topics; only those at which there were such readers."""

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "edition": self.edition,
            "before": list(self.before),
            "effects_from": to_json(self.effects_from),
            "since_ms": self.since_ms,
            "switches": [switch.to_json() for switch in self.switches],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any], path: Path) -> Self:
        check_format(value, path)
        try:
            return cls(
                value["edition"],
                tuple(value["before"]),
                from_json(value["effects_from"]),
                value["since_ms"],
                tuple(Switch.from_json(switch) for switch in value.get("switches", ())),
            )
        except (KeyError, TypeError) as error:
            raise DamagedState(f"{path}: {type(error).__name__}: {error}") from error


def check_format(value: Mapping[str, Any], path: Path) -> None:
    if value.get("format") != FORMAT:
        raise DamagedState(f"{path} is of format {value.get('format')!r}, this program knows {FORMAT}")
