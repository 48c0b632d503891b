"""Found by Spark under its name: exposes the data source of `cordwood.spark`."""
