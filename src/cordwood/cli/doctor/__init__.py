"""`cordwood doctor`: finds trouble for a broker on this machine before it happens.

measuring.py measures the machine, `administration/doctor` judges the facts, command.py shows the findings.
"""
