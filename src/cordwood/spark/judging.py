"""What a planner does about losses: stop the query with an error that says all, or say it and go on."""

import logging
import time
from collections.abc import Sequence

from cordwood.client.cluster import Cluster
from cordwood.spark.data_loss import DataLoss, Ledger, Loss
from cordwood.spark.explaining import advise, explain

_log = logging.getLogger(__name__)


def judge(cluster: Cluster, losses: Sequence[Loss], ledger: Ledger, *, fail: bool) -> None:
    """DataLoss if the query is to fail; else each loss is counted in the ledger and logged, once."""
    if not losses:
        return
    text = explain(cluster, losses, int(time.time() * 1000))
    if fail:
        raise DataLoss(f"The query cannot read all that it should.\n{text}\n{advise(losses)}")
    for loss in losses:
        if loss.end is not None:
            ledger.add(loss.partition, loss.start, loss.end)
    _log.warning(
        "data loss (failOnDataLoss=false), %d offsets in this run of the query so far:\n%s", ledger.total, text
    )
