"""Policy: pure functions from facts, settings and a clock to decisions with reasons."""
