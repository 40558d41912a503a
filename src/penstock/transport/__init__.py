"""Bytes in and out of sockets.

Owns: the listener, connections, their buffers and bounds, the order of responses.
Never: the meaning of a request.
"""
