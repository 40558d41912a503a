"""What tells the truth about a run: everything that was sent, answered and read is written down, and judged at the end.

events, writer     what happened, and how a process writes it down so that being killed loses nothing
load               the processes that make the load: `python -m tests.history.load -h`
judge              the verdict: `python -m tests.history.judge FILE...`
tally, pauses      what the judge remembers of messages and places; how long nothing went on
replicas           whether the brokers' folders hold the same bytes
"""
