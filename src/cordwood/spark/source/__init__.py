"""The reading half of format "cordwood": which offsets a query reads, which task reads them, and the rows they give."""
