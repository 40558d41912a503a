"""Tests of `penstock.cluster`: settings, the coordination contract, and the controller over a real store."""
