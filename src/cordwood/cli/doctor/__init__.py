"""`cordwood doctor`: what will hurt a broker on this machine, before it does.

facts.py measures the machine, judgement.py says what the facts mean, command.py shows it.
"""
