"""Judges losses for a planner: stops the query with an error that names all of them, or logs them and goes on."""

import logging
import time
from collections.abc import Sequence

from cordwood.client.cluster import Cluster
from cordwood.spark.source.data_loss import DataLoss, Ledger, Loss
from cordwood.spark.source.explaining import advise, explain

_log = logging.getLogger(__name__)


def judge(cluster: Cluster, losses: Sequence[Loss], ledger: Ledger, *, fail: bool) -> None:
    """Raises DataLoss if the query is to fail; else counts each loss in the ledger and logs it, once."""
    if fail and losses:
        raise DataLoss(f"The query cannot read all that it should.\n{_explain(cluster, losses)}\n{advise(losses)}")
    news = [loss for loss in losses if loss.end is None or ledger.add(loss.partition, loss.start, loss.end)]
    if news:
        text = "data loss (failOnDataLoss=false), %d offsets in this run of the query so far:\n%s"
        _log.warning(text, ledger.total, _explain(cluster, news))


def _explain(cluster: Cluster, losses: Sequence[Loss]) -> str:
    return explain(cluster, losses, int(time.time() * 1000))
