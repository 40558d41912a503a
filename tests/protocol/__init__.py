"""Tests of `penstock.protocol`: our bytes against those of two other implementations, and against hostile ones."""
