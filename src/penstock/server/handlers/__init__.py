"""One file per API: its handler, a stateless function."""
