"""Reports what a query does before its first batch is done, so that nobody watches an empty screen."""

import threading
import time
from typing import TYPE_CHECKING, Final

from cordwood.pipelines.editions.events import Tell

if TYPE_CHECKING:
    from cordwood.pipelines.execution.running import Running

_LOOK_S: Final = 0.5
_IN_WORDS: Final = {
    "Initializing sources": "starting the source",
    "Getting offsets": "asking the broker how far the log goes",
    "Processing new data": "the first batch is under way",
    "Waiting for data": "waiting for records",
}
"""Beginnings of the messages of `StreamingQuery.status`, and their meaning for a waiting user."""


def doing_in_words(message: str) -> str | None:
    """The meaning of Spark's message; None for one that says nothing new."""
    return next((text for beginning, text in _IN_WORDS.items() if message.startswith(beginning)), None)


def tell_what_is_done(running: "Running", tell: Tell) -> None:
    """Reports in a thread of its own what the query does, until its first batch is done or it ends."""

    def watch() -> None:
        said = None
        try:
            while running.query.isActive and not running.has_done_a_batch:
                text = doing_in_words(running.query.status["message"])
                if text is not None and text != said:
                    said = text
                    tell({**running.who, "event": "doing", "text": text})
                time.sleep(_LOOK_S)
        except Exception:
            return  # Spark is gone; the thread that waits for the query reports it

    threading.Thread(target=watch, name="cordwood-telling", daemon=True).start()
