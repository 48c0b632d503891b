"""`cordwood spark`: commands for the checkpoints of Spark queries. They need no Spark."""
