"""Written in C, and the same as what is written in Python."""

from penstock.client.pure_messages import DecodedMessage as DecodedMessage
from penstock.client.pure_messages import Grant as Grant
from penstock.client.pure_messages import Hand as Hand
from penstock.client.pure_messages import Message as Message
from penstock.client.pure_messages import Steps as Steps
from penstock.client.pure_messages import has_errors as has_errors
from penstock.client.pure_messages import last_of as last_of
