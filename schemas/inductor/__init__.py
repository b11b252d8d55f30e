"""Read files that accompany a trace: output of PyTorch's compiler, and annotations of CUDA graphs."""
