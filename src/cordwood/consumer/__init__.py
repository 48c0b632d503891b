"""Effects exactly once, in your own database: `IdempotentConsumer` keeps an effect and the position together."""

from cordwood.consumer.idempotent import IdempotentConsumer, PositionLost
from cordwood.consumer.positions import SqlPositions

__all__ = ["IdempotentConsumer", "PositionLost", "SqlPositions"]
