"""What to write to the metadata store for a change, and whether to: pure functions of the image and the request.

No store, clock, randomness or asyncio in here. A refusal is a ProtocolError with Kafka's code and a text that says what
to do; a change is a `Plan` of transactions.
"""
