"""The engine that drives a pure state machine over one partition of an internal topic.

Owns: loading a machine from its log, appending what it decides, holding replies until that is committed, timers.
Never: a rule of groups or transactions. Those are machines, and machines do no I/O.
"""
