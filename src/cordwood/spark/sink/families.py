"""Exactly once per micro-batch: a task writes in a slot of its family, and keeps the family alive while it works.

A renewal is for the whole family: tasks that still work keep the slot of a task that is done long before. It happens in
a thread with a connection of its own, because the task may wait minutes inside Spark for its next rows. It begins
before the task has a slot, because the first rows may take as long.
"""

import logging
import threading

from cordwood.client.cluster import Cluster
from cordwood.client.errors import ClientError
from cordwood.client.families import FamilyMember
from cordwood.client.settings import ClientSettings
from cordwood.spark.sink.options import Guarantee, OlderBatches, UnknownQuery
from cordwood.spark.sink.promises import Producer, Promise, WriteIdentity
from cordwood.spark.sink.protocol import Slot, Verdict, check_known, judge
from cordwood.wire.apis import ApiKey

_log = logging.getLogger("cordwood.spark.sink")

RENEWALS_PER_TIMEOUT = 4
"""Three renewals may fail before anything is lost."""


class FamilyPromise(Promise):
    guarantee = Guarantee.MICRO_BATCH

    def __init__(
        self,
        cluster: Cluster,
        identity: WriteIdentity,
        timeout_ms: int,
        older: OlderBatches,
        unknown: UnknownQuery,
    ) -> None:
        self._cluster = cluster
        self._identity = identity
        self._timeout_ms = timeout_ms
        self._older = older
        self._unknown = unknown

    def begin(self) -> Producer | None:
        family, batch_id = self._identity.family, self._identity.batch_id
        joined = self._cluster.family_join(family, batch_id, self._timeout_ms)
        check_known(family, batch_id, joined.standing.last_batch_id, self._unknown)
        if judge(family, batch_id, joined.standing.last_batch_id, self._older) is Verdict.SKIP:
            return None
        assert joined.member is not None, f"{family}: no slot for batch {batch_id}, which is not decided"
        self.slot = Slot(*joined.member)
        return Producer(*joined.member)

    def abandon(self) -> None:
        if self.slot is None:
            return
        try:
            self._cluster.family_decide(
                self._identity.family, self._identity.batch_id, commit=False, winners=[FamilyMember(*self.slot)]
            )
        except ClientError as error:
            _log.info("%s is left to its timeout, or to the batch's end: %s", self.slot.transactional_id, error)


class Renewer:
    """Renews a family from a thread of its own, from the first quarter of its timeout on, for as long as the context
    lasts. A batch without a member is not renewed."""

    def __init__(self, settings: ClientSettings, family: str, batch_id: int, timeout_ms: int) -> None:
        self._settings = settings
        self._family = family
        self._batch_id = batch_id
        self._interval_s = timeout_ms / RENEWALS_PER_TIMEOUT / 1000
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"renew {family}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Ends the renewals, without waiting for an answer that is under way."""
        self._stopped.set()

    def _run(self) -> None:
        if self._stopped.wait(self._interval_s):
            return
        with Cluster(self._settings) as cluster:
            while True:
                try:
                    if not cluster.supports(ApiKey.FAMILY_RENEW):
                        return
                    decided = cluster.family_renew(self._family, self._batch_id).decided
                except ClientError as error:
                    decided = False
                    _log.warning("family %s could not be renewed, will be tried again: %s", self._family, error)
                # If the batch is decided, this attempt is not among the winners, and learns that when it next sends
                # something.
                if self._stopped.wait(self._interval_s) or decided:
                    return
