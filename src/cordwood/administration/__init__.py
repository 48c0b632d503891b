"""What an operator can know and plan about a cluster, as values: facts, promises, judgements, plans and their texts.

An ordinary client. Nothing here prints or asks: a caller shows the values, and gives a function for texts that come
while something goes on.
"""

CLIENT_ID = "cordwood-cli"
"""The name under which brokers count the requests of operators."""
