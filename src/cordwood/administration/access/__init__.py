"""Rules of access as an administrator sees them: the present ones, the deciding one, and those that a program needs."""
