"""The event loop as the rooms of a node see it: the moment, turns, timers, ports and reports."""
