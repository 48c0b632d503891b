"""The parts of one partition's log that own its state, and how they are rebuilt from its bytes."""
