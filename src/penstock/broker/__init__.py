"""The process: settings, wiring, start and stop.

Owns: app.py, the only place that builds the rooms and connects them.
"""
