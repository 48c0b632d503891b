"""Tables of PostgreSQL: tasks copy rows into a staging table, one transaction merges them with the batch's number."""
