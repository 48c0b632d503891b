"""A whole broker on a made-up machine: time, disk, threads, network and metadata store follow a seed.

The parts under test are real (node, driver, log, metadata writer). The seams are made up: `clock`, `turn_loop` (the
event loop), `disk`, `threads` (flushes and work in threads), `slow_store` (the metadata store) and `exchange`
(connections). A `World` puts the parts together and can end a broker's life at any write. `workloads` are the clients,
`ledger` holds the promises to clients, `checkers` judge.

`game` is the skeleton that all games share: a safety phase with faults, then a liveness phase in which all pending
requests have to end. `log_game`, `transaction_game`, `group_game`, `mixed_group_game` and `micro_batch_game` add
clients, faults and checkers. The same seed gives the same game, event by event.

    python -m cordwood.simulation --seed 17
    python -m cordwood.simulation --game groups --seeds 100
"""
