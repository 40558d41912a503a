"""Tests of `penstock.server`: handlers called directly, over a real administration."""
