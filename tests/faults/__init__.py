"""Brokers that are killed, stopped, starved of disk and started twice, under load from real clients."""
