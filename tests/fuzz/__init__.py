"""Garbage with structure: valid requests and batches, damaged at random, against everything that reads bytes.

    make fuzz ARGS="--seconds 600 --seed 7"

All inputs follow from the seed. One that breaks something is printed as hex and kept in `corpus/`, which is tried first
in every run.
"""
