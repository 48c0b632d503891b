"""Plans changes of users and of the rules of access."""
