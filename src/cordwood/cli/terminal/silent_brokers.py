"""Names the brokers that do not answer, while a command waits for them.

A broker that hangs still takes connections, by its system, so that a client waits until its own time is up. A person
hears after some seconds which broker that is.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from cordwood.administration.addresses import told_by
from cordwood.administration.asking import describe_cluster
from cordwood.administration.connection import addresses_of
from cordwood.cli.terminal.output import remark
from cordwood.client.bootstrap import Bootstrap
from cordwood.client.settings import Address
from cordwood.model.failure import ExitCode, Failure

_SAY_AFTER_S: Final = 5.0
_ANSWER_WITHIN_S: Final = 2.0
_GROWTH: Final = 0.25
"""A line comes again after this share of the wait, so that a long one does not fill the screen."""
_MOST_ASKED: Final = 16
"""A large cluster is not asked whole: the wait is a person's."""


@contextmanager
def naming_silent_brokers(bootstrap: Bootstrap, say_after_s: float = _SAY_AFTER_S) -> Iterator[None]:
    """Says on standard error which brokers do not answer, if the block takes so long, and again now and then."""
    is_done = threading.Event()
    thread = threading.Thread(
        target=_say_while, args=(is_done, bootstrap, say_after_s), name="cordwood-silence", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        is_done.set()


def silent_brokers(bootstrap: Bootstrap, within_s: float = _ANSWER_WITHIN_S) -> list[Address]:
    """The brokers that do not answer in time: of those named, and of those that one of these tells of."""
    asked = addresses_of(bootstrap)
    known, silent = set(asked), []
    while asked and len(known) - len(asked) < _MOST_ASKED:
        address = asked.pop(0)
        try:
            told = describe_cluster(address, within_s)
        except Failure as failure:
            if failure.exit_code is ExitCode.NOT_REACHABLE:
                silent.append(address)
            continue
        others = {told_by(address, each.host, each.port) for each in told.brokers if not each.is_away}
        asked += sorted(others - known)
        known |= others
    return silent


def _say_while(is_done: threading.Event, bootstrap: Bootstrap, say_after_s: float) -> None:
    since_s, wait_s = time.monotonic(), say_after_s
    while not is_done.wait(wait_s):
        silent = silent_brokers(bootstrap)
        passed_s = time.monotonic() - since_s
        if silent and not is_done.is_set():
            remark(_in_words(silent, passed_s))
        wait_s = max(say_after_s, passed_s * _GROWTH)


def _in_words(silent: Sequence[Address], passed_s: float) -> str:
    verb = "does" if len(silent) == 1 else "do"
    return f"{' and '.join(map(str, silent))} {verb} not answer, {passed_s:.0f} s so far …"
