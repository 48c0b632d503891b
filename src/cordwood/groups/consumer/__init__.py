"""Groups of the consumer protocol (KIP-848): the broker assigns, members reconcile step by step, no round stops them.

All state but deadlines is in the log. A heartbeat is computed on values, and yields the records that change them.
"""
