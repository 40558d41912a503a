"""From a request to its response.

Owns: the table of handlers, which is also what ApiVersions announces, and the context they share.
Never: state. A handler is a function.
"""
