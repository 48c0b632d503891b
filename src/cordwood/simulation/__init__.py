"""A whole broker on a made-up machine: time, disk, threads, network and metadata store belong to a seed.

The parts under test are the real ones (node, driver, log, controller). What is made up are the seams: `clock`,
`turn_loop` (the event loop), `disk`, `threads` (flushes and work in threads), `slow_store` (the metadata store) and
`exchange` (connections). A `World` puts them together and can end a broker's life at any write; `workloads` are the
clients, `ledger` is what they were promised, `checkers` judge, and `run` is the game: a safety phase with faults, then
a liveness phase in which everything pending has to come to its end. The same seed gives the same run, event by event.

`transaction_game`, `group_game` and `micro_batch_game` are games of their own, with clients and checkers of their own.

    python -m cordwood.simulation --seed 17
    python -m cordwood.simulation --game groups --seeds 100
"""
