"""Consumer positions: state machines over the records of __consumer_offsets."""
