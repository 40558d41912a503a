"""Written in C, and the same as what is written in Python."""

from penstock.protocol.pure_short import AnswerShape as AnswerShape
from penstock.protocol.pure_short import FetchShape as FetchShape
from penstock.protocol.pure_short import ProduceShape as ProduceShape
from penstock.protocol.pure_short import RecordsShape as RecordsShape
from penstock.protocol.pure_short import newest_delta as newest_delta
from penstock.protocol.pure_short import open_batch as open_batch
from penstock.protocol.pure_short import stamp as stamp
