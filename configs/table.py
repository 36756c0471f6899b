"""The settings as Markdown tables, from their own descriptions: ``python -m configs.table``."""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from configs.settings import (
    AdapterSettings,
    AppSettings,
    BatchSettings,
    EmbedSettings,
    EngineSettings,
    ModelSettings,
    NamedKeyLimits,
    RateLimits,
    Settings,
)

SECTIONS: dict[str, type[Settings]] = {
    "args": AppSettings,
    "args.rate_limits": RateLimits,
    "args.rate_limits.keys[]": NamedKeyLimits,
    "args.models[]": ModelSettings,
    "args.models[].adapters[]": AdapterSettings,
    "args.models[].engine": EngineSettings,
    "args.models[].embed": EmbedSettings,
    "args.batches": BatchSettings,
}


def tables() -> str:
    """One table for each group of settings."""
    return "\n\n".join("\n".join(_table(path, kind)) for path, kind in SECTIONS.items())


def _table(path: str, settings: type[Settings]) -> Iterator[str]:
    yield f"| `{path}` | type | default | what it is |"
    yield "|---|---|---|---|"
    for name, field in settings.model_fields.items():
        cells = (f"`{name}`", _type(field.annotation), _default(field), str(field.description))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_type(part) for part in arguments if part is not NoneType)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is list:
        return f"list of {_type(arguments[0])}"
    return _plain(origin or annotation)


def _plain(kind: type) -> str:
    return "settings" if issubclass(kind, Settings) else kind.__name__


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None:
        return "null"
    if isinstance(default, Settings):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    print(tables())
