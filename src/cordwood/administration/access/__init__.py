"""Who may do what, as an administrator sees it: users, the rules of access, the deciding one, those a program needs."""
