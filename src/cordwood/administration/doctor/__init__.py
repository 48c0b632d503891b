"""Facts about a machine, and the judgement whether a broker runs well on it."""
