"""Names and quantities of the options that users give to the source and the sink."""
