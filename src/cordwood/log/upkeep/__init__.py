"""Changes of one partition's log besides appends: rolling, flushing, checkpoints, retention, cuts."""
