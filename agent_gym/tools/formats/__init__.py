"""Formats of tool calls: how a model family writes a call, read from text and written to text.

Every format reads a reply in linear time, reads each call on its own (a broken call costs only itself), and never raises. What they share
stands in `base`; `docs/tool-formats.md` has the table of families.
"""

from __future__ import annotations

from agent_gym.tools.formats.base import ToolCallFormat
from agent_gym.tools.formats.fields import DeepSeekV32Format, GlmFormat, Qwen3CoderFormat
from agent_gym.tools.formats.gemma import FunctionGemmaFormat, GemmaFormat
from agent_gym.tools.formats.harmony import GptOssFormat
from agent_gym.tools.formats.llama3 import Llama3JsonFormat
from agent_gym.tools.formats.pythonic import PythonicFormat
from agent_gym.tools.formats.response_templates import RESPONSE_TEMPLATES
from agent_gym.tools.formats.sections import DeepSeekFormat, DeepSeekV3Format, KimiFormat, MistralFormat, MistralListFormat
from agent_gym.tools.formats.tags import HermesFormat, SearchTagsFormat, TagFormat
from agent_gym.tools.formats.template import TemplateFormat

__all__ = [
    "RESPONSE_TEMPLATES",
    "DeepSeekFormat",
    "DeepSeekV3Format",
    "DeepSeekV32Format",
    "FunctionGemmaFormat",
    "GemmaFormat",
    "GlmFormat",
    "GptOssFormat",
    "HermesFormat",
    "KimiFormat",
    "Llama3JsonFormat",
    "MistralFormat",
    "MistralListFormat",
    "PythonicFormat",
    "Qwen3CoderFormat",
    "SearchTagsFormat",
    "TagFormat",
    "TemplateFormat",
    "ToolCallFormat",
]
