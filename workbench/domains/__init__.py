"""In what can a program be evaluated: floats, finite field pairs, abstract expressions, work."""
