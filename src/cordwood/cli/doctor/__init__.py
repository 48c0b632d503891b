"""`cordwood doctor`: finds trouble for a broker on this machine before it happens.

facts.py measures the machine, judgement.py judges the facts, command.py shows the findings.
"""
