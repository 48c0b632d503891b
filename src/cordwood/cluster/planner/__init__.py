"""Plans or refuses changes of the metadata: pure functions of the image and the request.

The planner has no store, clock, randomness or asyncio. A refusal is a ProtocolError with Kafka's code and a text that
says what to do; a change is a `Plan` of transactions.
"""
