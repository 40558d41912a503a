"""Retry and dead letters: what a handler could not do is put aside, tried again when it is due, and at last laid down.

Owns: the policy, the topics that parked messages wait in, what travels with them, and the loop that handles messages.
Keeps: a message leaves its place only when it was handled, or when its copy elsewhere is acknowledged; so none is lost,
and none blocks those behind it. Never: settings of clients, serializers, or how a consumer joins its group.
"""
