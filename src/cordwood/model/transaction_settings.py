"""The settings of transactions and of the internal topic that holds them."""

from dataclasses import dataclass

from cordwood.model.settings import int16, int32


@dataclass(frozen=True, init=False, repr=False, eq=False)
class TransactionSettings:
    """Transactions and the internal topic that holds them."""

    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = int32(
        10_000, "How often open transactions are checked for their timeout.", low=1
    )
    transaction_max_timeout_ms: int = int32(
        900_000, "The longest transaction timeout that a producer may ask for.", low=1
    )
    transaction_partitions_max: int = int32(
        10_000,
        "Partitions that one transaction writes to at most: its producer is told POLICY_VIOLATION beyond that, and "
        "aborts. Kafka has no limit of its own.",
        low=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = int32(
        3_600_000, "How often transactional ids are checked for expiry.", low=1
    )
    transaction_state_log_min_isr: int = int32(
        2,
        "The `min.insync.replicas` of the internal topic of transactions. Takes effect when that topic is created. A "
        "topic with fewer replicas needs all of them.",
        low=1,
    )
    transaction_state_log_num_partitions: int = int32(
        50, "Partitions of the internal topic of transactions. Takes effect when that topic is created.", low=1
    )
    transaction_state_log_replication_factor: int = int16(
        3,
        "Replicas of the internal topic of transactions. With fewer brokers there are fewer, and more are added as "
        "brokers register.",
        low=1,
    )
    transaction_state_log_segment_bytes: int = int32(
        104_857_600,
        "Segment size of the internal topic of transactions. Takes effect when that topic is created.",
        low=1,
    )
    transactional_id_expiration_ms: int = int32(
        604_800_000, "How long a transactional id that no producer uses is remembered.", low=1
    )
    transactional_ids_max: int = int32(
        100_000,
        "Transactional ids that this broker coordinates at most. A new one beyond that is refused with "
        "POLICY_VIOLATION, which `init_transactions` reports; known ones go on. Kafka has no limit of its own.",
        low=1,
    )
