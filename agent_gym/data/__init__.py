"""Data: the sample schema, loaders of published question-answering files, their metrics, and the generated worlds that need no download."""

if not __name__.startswith("agent_gym."):
    raise ImportError("the folder data/ at the repository's root is a link for people; import agent_gym.data instead")

from agent_gym.data.qa_loaders import Paragraph, QATask, load_qa, parse_qa
from agent_gym.data.samples import Sample, accepted_answers, parse_sample, read_rows, read_samples, write_rows

__all__ = [
    "Paragraph",
    "QATask",
    "Sample",
    "accepted_answers",
    "load_qa",
    "parse_qa",
    "parse_sample",
    "read_rows",
    "read_samples",
    "write_rows",
]
