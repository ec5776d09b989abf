"""Which µGraphs compute the same: values first, then graphs."""
