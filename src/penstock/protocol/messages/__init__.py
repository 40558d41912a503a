"""The messages of Kafka's protocol, one module per API, each the declaration of its request and its response.

Declarations only: a module here says which fields each version carries, and never what a broker does with them.
"""
