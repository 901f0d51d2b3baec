"""Search engines over fixed corpora: the Lucene-compatible BM25 index, a client and a server of the `/retrieve` contract, tantivy."""

from agent_gym.search.bm25 import LuceneBM25
from agent_gym.search.corpus import Corpus, open_searcher
from agent_gym.search.http import HttpSearcher
from agent_gym.search.server import SearchServer, serve
from agent_gym.search.tantivy import TantivySearcher
from agent_gym.search.types import Document, Hit, Searcher

__all__ = [
    "Corpus",
    "Document",
    "Hit",
    "HttpSearcher",
    "LuceneBM25",
    "SearchServer",
    "Searcher",
    "TantivySearcher",
    "open_searcher",
    "serve",
]
