"""Measures ckpttool against TensorFlow: `python -m benchmarks`."""
