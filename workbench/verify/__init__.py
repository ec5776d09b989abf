"""Are two programs equal: probability with a bound, proof, or a witness against."""
