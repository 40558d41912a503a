"""Exactly once under fire: brokers and applications are killed for as long as you like, and nothing is lost or doubled.

    make chaos ARGS="--minutes 30 --seed 7"

A feeder numbers messages, copiers read, transform and write them in transactions, an auditor reads the result as it
comes; meanwhile a seeded sequence of faults hits the broker and the copiers. What is checked is what users rely on:
the result, read with read_committed, is the input: each message once, in order within its partition.

    feeder, crew, auditor   the three parties
    faults                  what can happen to them
    campaign                a run from beginning to verdict
"""
