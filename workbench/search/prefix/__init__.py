"""The paper's search: prefixes extended operator by operator, for teaching, for the ablation, and as a check."""
