"""Opens one partition's log: cheaply after a clean stop, by recovery otherwise."""
