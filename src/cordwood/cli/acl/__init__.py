"""`cordwood acl`: one file per command; `named.py` has what they share: principals, operations and resources."""
