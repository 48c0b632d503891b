"""The settings of brokers, topics and groups: declared once, with name, kind, default, meaning and bounds."""
