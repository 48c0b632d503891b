"""The event loop as the rooms of a node see it: the present moment, deadlines, work in turns, effects.

One thread drives a node. Everything in one event of the node happens at one moment, `now`.
"""

from collections.abc import Callable

from cordwood.model.moment import Moment
from cordwood.node.loop.in_turns import InTurns
from cordwood.node.loop.ports import Effects
from cordwood.node.loop.timers import Timer, Timers
from cordwood.node.loop.turns import Turns


class Loop:
    __slots__ = ("effects", "in_turns", "now", "timers", "turns")

    def __init__(self, effects: Effects, now: Moment) -> None:
        self.effects = effects
        """Work that must not be done in the loop."""
        self.now = now
        """The moment of the node's current event, set when the event begins."""
        self.timers = Timers()
        self.turns = Turns(self.timers, effects.wake, lambda: self.now)
        """Steps of wide requests."""
        self.in_turns = InTurns(self.timers, effects.wake, lambda: self.now)
        """Steps of the node's own work."""

    def after(self, delay_ms: int, callback: Callable[[Moment], None]) -> Timer:
        """Calls back once, when the delay is over. The driver is told of the deadline."""
        timer = self.timers.at(self.now.boot_ms + delay_ms, callback)
        self.effects.wake()
        return timer
