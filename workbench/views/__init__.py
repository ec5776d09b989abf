"""Records as plain view data, SVG and figures; no widgets."""
