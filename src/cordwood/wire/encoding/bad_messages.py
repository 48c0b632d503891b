"""Mistakes of a peer on the wire, below the level where an error code could answer."""

from cordwood.model.errors import ErrorCode, ProtocolError


class BadRequest(ProtocolError):
    """The bytes are not the request that they claim to be. There is no answer: the connection is closed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class FrameTooLarge(BadRequest):
    """The size prefix exceeds the limit of a request. No memory was allocated for it."""


class OtherProtocol(BadRequest):
    """The bytes belong to another protocol than Kafka's, such as TLS or HTTP."""

    def __init__(self, protocol: str) -> None:
        super().__init__(f"The peer speaks {protocol}, not the Kafka protocol.")
        self.protocol = protocol


class TooManyElements(BadRequest):
    """The request has more array elements than it may have, or than its reader reads in one go."""


class AnswerTooLarge(Exception):
    """The answer would not fit into one response."""


class TextTooLong(AnswerTooLarge):
    """A string of a message exceeds the most bytes that strings of the protocol have."""
