"""Questions about traces, answered in one versioned form for people, scripts and agents (docs/reference/agents.md).

The names below are public; each is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...trace.lazy import lazy_names

if TYPE_CHECKING:
    from .answer import SCHEMA_VERSION, Answer, AskError
    from .asked_traces import AskedTraces
    from .questions import QUESTIONS, Question, QuestionOption, ask
    from .tokens import count_tokens

__all__ = [
    "QUESTIONS", "SCHEMA_VERSION", "Answer", "AskError", "AskedTraces", "Question", "QuestionOption", "ask",
    "count_tokens",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".answer": "Answer AskError SCHEMA_VERSION",
        ".asked_traces": "AskedTraces",
        ".questions": "QUESTIONS Question QuestionOption ask",
        ".tokens": "count_tokens",
    },
    __all__,
)
