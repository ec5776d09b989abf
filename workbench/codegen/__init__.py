"""How is a µGraph written as source, one folder per backend."""
