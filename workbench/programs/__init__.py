"""Programs that are studied, and the good µGraphs that the literature knows for them."""
