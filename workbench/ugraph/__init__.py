"""What is a program: kernel, block and thread graphs, their text, JSON, hashes and axes."""
