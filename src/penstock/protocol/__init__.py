"""Kafka's protocol as values and bytes: messages, frames, record batches, error codes.

Everything here is pure: no sockets, no files, no clock, and no knowledge of what a broker does with a message.
"""
