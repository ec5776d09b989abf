"""One module per command of the command line: what it takes, and what it answers.

Invariant: a command returns an `Answer` and prints nothing; `cli` prints it, as text or as one JSON object.
"""
