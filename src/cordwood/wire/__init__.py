"""Kafka's wire protocol: frames, request headers, and the codecs of requests and responses. Bytes in, values out.

No sockets and no state of the broker. The APIs of the hot path and of a client's first contact are written by hand and
need nothing but the standard library; everything else goes through kio, which is imported when the first such request
arrives. Whatever a peer sends, decoding raises `BadRequest` and nothing else.
"""
