"""The copies of the topics that a pipeline makes: how many replicas a topic has, and how many of them have to be in
sync for a write.

A record that was derived from a topic with three copies must not be lost with one disk, and the loss of one broker must
not stop the pipeline. So topics that a pipeline makes are kept as safely as the widest of its inputs, unless the
definition says otherwise.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from cordwood.pipelines.definition.errors import InvalidDefinition, Refusal, Site


@dataclass(frozen=True)
class Replication:
    """The copies that a definition asks for. None: it does not say."""

    replicas: int | None = None
    min_insync: int | None = None

    @classmethod
    def checked(cls, what: str, replicas: int | None, min_insync: int | None, site: Site) -> Self:
        for name, value in (("replicas", replicas), ("min_insync", min_insync)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InvalidDefinition(f"{what}: {name}={value!r}", site, "a whole number from 1 on")
        if replicas is not None and min_insync is not None and min_insync > replicas:
            hint = f"at most as many as replicas={replicas}; one less lets one broker be away"
            raise InvalidDefinition(f"{what}: min_insync={min_insync} could never be reached", site, hint)
        return cls(replicas, min_insync)

    def within(self, other: "Replication") -> "Replication":
        """These copies; where they say nothing, the copies of a wider scope."""
        return Replication(self.replicas or other.replicas, self.min_insync or other.min_insync)


UNSAID: Final = Replication()


class Copies(NamedTuple):
    """The copies of a topic."""

    replicas: int
    min_insync: int
    is_own: bool
    """True if the topic has a `min.insync.replicas` of its own; False: it follows the setting of the brokers."""


def copies_of_new(name: str, asked: Replication, inputs: Iterable[Copies], replaced: Copies | None) -> Copies:
    """The copies of a new topic. Raises Refusal if more of them would have to be in sync than there are.

    The widest input is the one with the most replicas, and of several the one that wants the most in sync. A topic that
    will take another one's place has at least the copies of that one.
    """
    widest = max(inputs, default=Copies(1, 1, False))
    replicas = max(asked.replicas or widest.replicas, 1 if replaced is None else replaced.replicas)
    if asked.min_insync is not None:
        if asked.min_insync > replicas:
            raise Refusal(
                f"the topic {name} would have {replicas} of the {asked.min_insync} replicas that min_insync wants in "
                "sync: nothing could ever be written to it",
                f"replicas={asked.min_insync} or more, or a lower min_insync",
            )
        return Copies(replicas, asked.min_insync, True)
    safest = max((each for each in (widest, replaced) if each is not None), key=lambda each: each[1:])
    if safest.min_insync > replicas:
        return Copies(replicas, replicas, True)
    return Copies(replicas, safest.min_insync, safest.is_own)
