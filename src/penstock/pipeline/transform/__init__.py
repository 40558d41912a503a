"""Pipelines that a file describes: from topics, through SQL, to topics or tables.

Owns: what such a file may say, how records become rows and rows become records, and the queries that run.
Never: a record that is dropped in silence. What can't be decoded goes to a topic of dead letters, and says why.
"""
