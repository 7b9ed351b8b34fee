"""A parameter-server cluster on TensorFlow's runtime, from Python: see docs/serve-ps.md."""
