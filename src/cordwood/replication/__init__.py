"""One replica as a state machine: what a leader may promise and show."""
