"""The security trail of a running broker: a bounded queue, a thread, and a file that rotates by renaming."""
