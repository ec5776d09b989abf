"""CUDA C++ kernels from block graphs, self-contained and readable."""
