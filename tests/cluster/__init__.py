"""Tests of `penstock.cluster`: settings, the coordination contract, and the administration over a real store."""
