"""Whole brokers on made-up machines: time, disks, threads, network and metadata store follow a seed.

The parts under test are real (node, driver, log, metadata writer). The seams are made up: `clock`, `turn_loop` (the
event loop), `disk`, `threads` (flushes and work in threads), `slow_store` (the metadata store), `exchange`
(connections), `peers` and `links`. A `Life` is one process of a broker; a `Machine` has a disk and a clock, and can end
the life on it at any write; a `World` is all machines, their links and the store. `workloads` are the clients, `ledger`
holds the promises to clients, `checkers` judge.

`game` is the skeleton that all games share: a safety phase with faults, then a liveness phase in which all pending
requests have to end. `log_game`, `transaction_game`, `group_game`, `mixed_group_game`, `micro_batch_game` and
`replication_game` add clients, faults and checkers. The same seed gives the same game, event by event. With several
nodes `cluster_faults` are added, and clients have to find leaders and coordinators.

    python -m simulation --seed 17
    python -m simulation --game groups --seeds 100
    python -m simulation --game groups --nodes 3
    python -m simulation --game replication --nodes 3
"""
