"""`./tools/bench kernels`: rows, accuracy, attention and the CUDA kernel."""
