"""Mistakes of a peer on the wire, below the level where an error code could answer."""

from cordwood.model.errors import ErrorCode, ProtocolError


class BadRequest(ProtocolError):
    """Bytes that are not the request they claim to be. There is no answer: the connection is closed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class FrameTooLarge(BadRequest):
    """A size prefix beyond the limit of a request. No memory was allocated for it."""


class OtherProtocol(BadRequest):
    """Bytes of another protocol than Kafka's, such as TLS or HTTP."""

    def __init__(self, protocol: str) -> None:
        super().__init__(f"The peer speaks {protocol}, not the Kafka protocol.")
        self.protocol = protocol


class TooManyElements(BadRequest):
    """More array elements than a request may have, or than its reader reads in one go."""


class AnswerTooLarge(Exception):
    """The answer would not fit into one response."""


class TextTooLong(AnswerTooLarge):
    """A message would have a string of more bytes than strings of the protocol have."""
