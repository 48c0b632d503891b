"""One replica as a state machine: the promises of a leader to producers and readers."""
