"""Kafka's wire protocol: frames, request headers, and the codecs of requests and responses. Bytes in, values out.

No sockets and no state of the broker. Produce, Fetch, Metadata and ApiVersions have codecs written by hand, because
they are hot, large or the first that a client needs; all others follow their schemas in `messages/`. For bad bytes of a
peer, decoding raises `BadRequest` and nothing else.
"""
