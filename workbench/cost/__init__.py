"""How fast should a µGraph be: hardware records, cost models, lower bounds."""
