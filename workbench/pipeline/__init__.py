"""From a program to a certified, scheduled, measured µGraph: search, verify, tune, emit, measure, rank, explain."""
