"""Passes over a verified µGraph: layouts, operator order, memory, thread graphs."""
