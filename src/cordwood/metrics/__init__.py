"""The broker's metrics: their names and meanings, and their text for Prometheus.

`names` is the list that docs/metrics.md is made from; `histogram` counts without a library, so that a broker without
metrics imports nothing and does next to nothing; `exposition` needs prometheus-client and is imported only if metrics
are served.
"""
