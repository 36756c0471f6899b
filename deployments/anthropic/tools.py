"""Tools, the choice among them, thinking and the output's format, in Anthropic's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deployments.openai.checks import require_array, require_object
from deployments.openai.errors import ApiError, invalid, not_one_of, wrong_type
from deployments.openai.parameters import unsupported
from deployments.openai.structured import response_format
from deployments.openai.tools import Offer, check_other_fields, parse_offer
from models.request import MOST, Grammar

# Fields of a tool, and those that change nothing in how it is offered or called.
FIELDS = ("type", "name", "description", "input_schema", "strict")
HINTS = ("cache_control", "eager_input_streaming")
# There is no ``function`` around the fields, and another name for parameters.
SPELLED = ((".function.parameters", ".input_schema"), (".function", ""))
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
THINKING = ("enabled", "disabled", "adaptive")
DISPLAYS = ("summarized", "omitted")  # the first is in full here
EFFORTS = ("low", "medium", "high", "xhigh", "max")


def parse_tools(tools: Any, choice: Any) -> Offer:
    """From ``tools`` and ``tool_choice``. Raises ``ApiError``."""
    listed = [] if tools is None else require_array(tools, "tools")
    given = [_tool(tool, i) for i, tool in enumerate(listed)]
    chosen, parallel = _choice(choice)
    try:
        return parse_offer(given, chosen, parallel)
    except ApiError as error:
        raise error.respelled(*SPELLED) from None


def template_kwargs(thinking: Any, output_config: Any) -> dict[str, Any]:
    """What templates are told of thinking and effort. Raises ``ApiError``."""
    found: dict[str, Any] = {}
    if thinking is not None:
        found["enable_thinking"] = _thinks(require_object(thinking, "thinking"))
    effort = _config(output_config).get("effort")
    if effort is not None:
        if effort not in EFFORTS:
            raise not_one_of("output_config.effort", EFFORTS)
        found["reasoning_effort"] = effort
    return found


def thinking_budget(thinking: Any) -> int | None:
    """The most tokens to think; ``thinking`` was checked.

    Anthropic wants 1024 at least, and fewer than ``max_tokens``: here any number will do.
    """
    return None if thinking is None else thinking.get("budget_tokens")


def tells_thoughts(thinking: Any) -> bool:
    """Whether the answer shows what was thought; ``thinking`` was checked."""
    return thinking is None or thinking.get("display") != "omitted"


def parse_grammar(output_config: Any) -> Grammar | None:
    """What the answer must be, by ``output_config.format``. Raises ``ApiError``."""
    value = _config(output_config).get("format")
    if value is None:
        return None
    param = "output_config.format"
    if require_object(value, param).get("type") != "json_schema":
        raise not_one_of(f"{param}.type", ("json_schema",))
    if value.get("schema") is None:
        raise wrong_type("an object", None, f"{param}.schema")
    return response_format(value, param)


def _thinks(thinking: Mapping[str, Any]) -> bool:
    kind = thinking.get("type")
    if kind not in THINKING:
        raise not_one_of("thinking.type", THINKING)
    budget = thinking.get("budget_tokens")
    if type(budget) is not int and (kind == "enabled" or budget is not None):
        raise wrong_type("an integer", budget, "thinking.budget_tokens")
    if budget is not None and not 0 <= budget <= MOST:
        message = f"'thinking.budget_tokens' must be at least 0, and at most {MOST}."
        raise invalid(message, "thinking.budget_tokens", "invalid_value")
    if thinking.get("display") not in (None, *DISPLAYS):
        raise not_one_of("thinking.display", DISPLAYS)
    for key in thinking.keys() - {"type", "budget_tokens", "display"}:
        raise unsupported(f"thinking.{key}")
    return bool(kind != "disabled")


def _config(value: Any) -> Mapping[str, Any]:
    config = {} if value is None else require_object(value, "output_config")
    for key in config.keys() - {"effort", "format"}:
        raise unsupported(f"output_config.{key}")
    return config


def _tool(tool: Any, index: int) -> dict[str, Any]:
    at = f"tools[{index}]"
    require_object(tool, at)
    if tool.get("type") not in (None, "custom"):
        message = f"Tools of this type are not supported: '{at}.type'. Only 'custom' ones are."
        raise invalid(message, f"{at}.type", "unsupported_value")
    check_other_fields(tool, (*FIELDS, *HINTS), at)
    schema = require_object(tool.get("input_schema"), f"{at}.input_schema")
    function = {key: tool[key] for key in ("name", "description", "strict") if key in tool}
    return {"type": "function", "function": {**function, "parameters": schema}}


def _choice(value: Any) -> tuple[Any, bool]:
    """OpenAI's choice, and whether several calls are allowed."""
    if value is None:
        return None, True
    kind = require_object(value, "tool_choice").get("type")
    parallel = value.get("disable_parallel_tool_use")
    if not isinstance(parallel, bool | None):
        raise wrong_type("a boolean", parallel, "tool_choice.disable_parallel_tool_use")
    if kind == "tool":
        function = {"name": value.get("name")}
        return {"type": "function", "function": function}, not parallel
    if not isinstance(kind, str) or kind not in CHOICES:
        raise not_one_of("tool_choice.type", (*CHOICES, "tool"))
    return CHOICES[kind], not parallel
