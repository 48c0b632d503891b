"""The request for checked batches of another replica (SoundBatches)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cordwood.node.loop.peers import PeerRequest
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.serving import Serving
    from cordwood.node.partitions.partition import Partition
    from cordwood.wire.message_types.sound_batches import SoundBatches

VERSIONS: Final = (0, 0)
TIMEOUT_MS: Final = 30_000


def sound_batches_request(
    image: ClusterImage,
    serving: Serving,
    broker_id: int,
    partition: Partition,
    first_offset: int,
    end_offset: int,
    max_bytes: int,
) -> PeerRequest[SoundBatches.Response]:
    """Asks a broker for the batches from one offset up to another. The answer has the first of them at least."""
    values = {
        "broker_id": image.node_id,
        "broker_epoch": serving.broker_epoch,
        "topic_id": partition.topic_id,
        "partition": partition.name.partition,
        "first_offset": first_offset,
        "end_offset": end_offset,
        "max_bytes": max_bytes,
    }
    return PeerRequest(broker_id, ApiKey.SOUND_BATCHES, VERSIONS, values, TIMEOUT_MS)
