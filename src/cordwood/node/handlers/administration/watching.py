"""WatchReport, an API of our own between brokers: positions of groups, and the traffic of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.node.requests.brokers_only import check_broker
from cordwood.node.requests.request import Request, serves
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.duties.watch_reports import WatchReports
    from cordwood.wire.message_types.watch_report import WatchReport


class WatchingRooms(Protocol):
    """The rooms of a node that this handler needs."""

    image: ClusterImage
    watch_reports: WatchReports


def watch_report(rooms: WatchingRooms, request: Request[WatchReport]) -> None:
    report = request.decode()
    try:
        check_broker(rooms.image, request, report.broker_id, report.broker_epoch)
    except ProtocolError as refusal:
        request.answer(error_code=refusal.code)
        return
    sums = rooms.watch_reports.take(report, request.now.boot_ms)
    request.answer(
        error_code=ErrorCode.NONE,
        topics=[{"topic_id": topic_id, "bytes_per_second": found} for topic_id, found in sums.items()],
    )


HANDLERS = (serves(ApiKey.WATCH_REPORT, 0, 0, watch_report),)
