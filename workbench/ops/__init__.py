"""What is an operator: one frozen record each, gathered in one registry."""
