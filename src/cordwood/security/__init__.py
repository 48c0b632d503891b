"""Who asks, and what somebody may do: principals, sessions, operations and resources, without I/O."""
