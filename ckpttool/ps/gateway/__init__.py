"""The gateway: a process that serves snapshots over HTTP (docs/serve-ps.md)."""
