"""What was found and measured: schemas and the append-only store."""
