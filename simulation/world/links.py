"""The links of the made-up network: between clients, brokers and the metadata store, each direction by itself.

Connections are reliable, as TCP's are: a cut link holds messages back, and delivers them when it is healed, unless
their connection was closed meanwhile. A single message is never lost alone: its connection breaks.
"""

CLIENTS, STORE = 0, -1
"""The ends of links that are no brokers. Brokers have their ids, from 1 on."""


class Links:
    """All links. Every link carries messages in both directions unless a direction is cut."""

    def __init__(self) -> None:
        self.cuts: dict[tuple[int, int], int] = {}
        """Directions that carry nothing, from source to target, with the number of causes of each."""

    def carries(self, source: int, target: int) -> bool:
        return (source, target) not in self.cuts

    def cut(self, source: int, target: int) -> None:
        self.cuts[source, target] = self.cuts.get((source, target), 0) + 1

    def heal(self, source: int, target: int) -> None:
        """Takes back one `cut` of this direction."""
        causes = self.cuts.get((source, target), 0)
        if causes > 1:
            self.cuts[source, target] = causes - 1
        else:
            self.cuts.pop((source, target), None)

    def heal_all(self) -> None:
        self.cuts.clear()
