"""The broker's metrics: their names and meanings, and their text for Prometheus.

`names` is the list that docs/metrics.md is made from; `histogram` counts without a library, so that nothing is imported
and next to nothing is done while nobody asks; `exposition` needs prometheus-client and is imported only where metrics
are served.
"""
