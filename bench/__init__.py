"""Measures the broker, beside Apache Kafka, on the machine it is run on.

Nothing here is part of the product, and nothing of the product's inside is used: brokers are started as a user starts
them, loaded over sockets by `load.c`, and watched from outside through /proc.
"""
