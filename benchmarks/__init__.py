"""Measures ckpttool against TensorFlow doing the same work: `python -m benchmarks`."""
