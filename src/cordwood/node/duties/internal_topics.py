"""The controller's duty towards internal topics: they get the replicas that they lack as brokers register.

Any broker could do this, since each write is a compare-and-set; one broker does, so that writes do not race. The
controller looks after each change of the metadata, and again after a pause if a look failed.
"""

from __future__ import annotations

import logging

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.planner.internal_topics import plan_growth, shortages
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.reports import Reports

RETRY_AFTER_MS = 5_000


class InternalTopics:
    def __init__(self, loop: Loop, image: ClusterImage, reports: Reports) -> None:
        self._loop = loop
        self._image = image
        self._reports = reports
        self._busy = False

    def look(self) -> None:
        image = self._image
        if self._busy or len(image.brokers) < 2 or image.controller_id != image.node_id:
            return
        for topic, replicas, setting, wanted in shortages(image):
            self._reports.report(
                logging.WARNING,
                f"{topic} has {replicas} replicas, and {setting} asks for {wanted}: the others are added when brokers "
                "can host them and have caught up",
            )
        if plan_growth(image):
            self._busy = True
            self._loop.effects.metadata(lambda writer: writer.grow_internal_topics(), self._grown)

    def _grown(self, outcome: Exception | None) -> None:
        self._busy = False
        if isinstance(outcome, Exception):
            self._reports.failure(outcome)
            self._loop.after(RETRY_AFTER_MS, lambda now: self.look())
        else:
            self.look()
