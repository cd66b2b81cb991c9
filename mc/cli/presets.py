"""The command presets: libraries' documented defaults, for ``like`` in a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mc.cli import options
from mc.cli.formats import Facts, print_facts, print_frame

if TYPE_CHECKING:
    from mc.model.presets import Preset


def presets(form: options.Format = "table") -> None:
    """List libraries' documented defaults, for like in a policy.

    That is what like = "NAME" sets. What the policy sets itself replaces it, key by key. FORMAT csv
    and markdown have a line for each.
    """
    from mc.model.presets import PRESETS

    if form in ("csv", "markdown"):
        import polars as pl

        lines = [
            {"like": name, "sets": _sets(preset), "source": preset.source, "note": preset.note}
            for name, preset in PRESETS.items()
        ]
        print_frame(pl.DataFrame(lines), form)
        return
    print_facts(
        Facts(
            data={name: preset._asdict() for name, preset in PRESETS.items()},
            texts={
                name: "\n".join(filter(None, (_sets(preset), preset.note, preset.source)))
                for name, preset in PRESETS.items()
            },
            title='like = "NAME" in a [[policy]] begins with:',
            wrap=True,
        ),
        form,
    )


def _sets(preset: Preset) -> str:
    """What a preset sets, as an experiment file has it."""
    return ", ".join(f"{name} = {_toml(value)}" for name, value in preset.parameters.items())


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {_toml(entry)}' for name, entry in value.items())}}}"
    return f'"{value}"' if isinstance(value, str) else str(value)
