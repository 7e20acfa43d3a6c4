"""The kinds of columns that a table may have: a frozen record each, which knows its features and how to write them."""
