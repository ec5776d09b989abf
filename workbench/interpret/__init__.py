"""What does a program compute: one traversal, many domains."""
