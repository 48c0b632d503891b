"""`cordwood spark …`: what Spark's queries leave behind. Needs no Spark."""
