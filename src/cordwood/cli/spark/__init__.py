"""`cordwood spark`: commands for the checkpoints of Spark queries; they need no Spark."""
