"""Other people's clients and tools, as they come, against a Penstock broker.

Each check does what a user of that tool would do, and says what it expected to see. None of them knows anything of the
broker's inside; what they share is a broker that was started for them, and names of topics and groups nobody else uses.
"""
