"""Moments for tests."""

from cordwood.model.moment import Moment


def at(ms: int) -> Moment:
    """The moment at which both clocks show `ms`. The simulator's clocks differ, so that its games see a confusion."""
    return Moment(ms, ms)
