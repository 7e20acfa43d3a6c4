"""Tables in: from whatever holds columns to finite numbers with names."""
