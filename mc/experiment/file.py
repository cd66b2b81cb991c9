"""The experiment file as a whole, and its JSON schema."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from mc.experiment.axes import Grid, Named, Policy
from mc.experiment.cells import Exclude
from mc.experiment.claims import ClaimTable, PublishedTable, ThresholdsTable
from mc.experiment.experiment import Keep
from mc.experiment.keys import Parameters, Printable, key
from mc.experiment.messages import quote
from mc.experiment.precision import MAX_REPLICATIONS, PrecisionTable
from mc.experiment.quantities import NUMBERS_OF_METRICS, ROUND
from mc.experiment.spacing import Design
from mc.experiment.validation import FAULTY, Checked, Table
from mc.model import PARAMETERS, Generator, has_entries, units

SEEDS: Final[dict[Generator, tuple[int, int]]] = {
    "philox": (0, 2**64 - 1),
    "lesson": (1, 2**31 - 2),
}
"""Smallest and largest seed of each generator: a 64-bit key; the states of MINSTD."""

DEFAULT_SEED: Final = 20260802
"""The lesson's."""


def _tables(name: str) -> Any:
    return key(f"tables: [[{name}]]", [], json_schema_extra={"minItems": 1})


class File(Table):
    """An experiment file of retrystorm."""

    title: Printable
    generator: Generator = key('"philox" or "lesson"', "philox")
    seed: int = key("a whole number", DEFAULT_SEED)
    replications: int = key(
        f"a whole number >= 1 and <= {MAX_REPLICATIONS}", 10_000, ge=1, le=MAX_REPLICATIONS
    )
    seeds: list[int] | None = key("a list of one or more whole numbers", None, min_length=1)
    keep: Keep = key('"rows" or "histograms"', "rows")
    lesson_shares: bool = key("true or false", default=False)
    precision: PrecisionTable | None = key("a table: [precision]", None)
    layer_names: list[Printable] | None = key("a list of texts, one for each layer", None)
    baseline: str | None = key("the name of a policy", None)
    scenario: list[Named] = _tables("scenario")
    policy: list[Policy] = _tables("policy")
    grid: Grid = key("a table: [grid]", {}, validate_default=True)
    design: Design | None = key("a table: [design]", None)
    fixed: Parameters = key("a table: [fixed]", {}, validate_default=True)
    exclude: list[Exclude] = _tables("exclude")
    thresholds: ThresholdsTable | None = key("a table: [thresholds]", None)
    claim: list[ClaimTable] = _tables("claim")
    published: list[PublishedTable] = _tables("published")

    @classmethod
    def unknown(cls, key: str) -> str:
        """Report an unknown key."""
        if key in PARAMETERS:
            return f"unknown key {quote(key)}: write it under [fixed]"
        return super().unknown(key)

    def check(self) -> Checked[None]:
        """Check the range of the seeds, and that replications are asked for in one way."""
        given = [name for name in ("seeds", "replications", "precision") if name in self.contents]
        for name in given[1:]:
            yield f"{given[0]} and {name} are both given: keep one of them"
        if self.generator is FAULTY:
            return
        if self.seeds is not None and self.generator != "lesson":
            yield 'seeds need generator = "lesson": replace them by seed and replications'
            return
        low, high = SEEDS[self.generator]
        rule = f"a whole number >= {low} and <= {high} for generator {quote(self.generator)}"
        if self.seed is not FAULTY and not low <= self.seed <= high:
            yield f"seed must be {rule}, got {self.seed}"
        if self.lesson_shares is True and self.generator == "lesson":
            yield 'lesson_shares is for generator = "philox": here all is as the lesson draws'
        seeds = None if self.seeds is FAULTY else self.seeds
        for seed, n in Counter(seeds).items():
            if not low <= seed <= high:
                yield f"seeds must each be {rule}, got {seed}"
            if n > 1:
                yield f"seeds must differ, got {seed} {n} times"


class _Draft7(GenerateJsonSchema):
    """The dialect that editors of TOML know; TOML has no null."""

    schema_dialect = "http://json-schema.org/draft-07/schema#"

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        """Leave out null."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Leave out defaults that stand for "not given"."""
        with_default = super().default_schema(schema)
        if with_default.get("default", ...) in (None, {}, []):
            del with_default["default"]
        return with_default

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave out titles that repeat the key."""
        return False


def _add_texts_with_units(definitions: dict[str, Any]) -> None:
    """Let texts stand for numbers where `read` takes them: the models see numbers only."""
    for name, parameter in PARAMETERS.items():
        if parameter.dimension is not None:
            text = {"type": "string", "pattern": units.PATTERNS[parameter.dimension]}
            for kind in ("", "_range", "_span"):
                if f"{name}{kind}" in definitions:
                    definitions[f"{name}{kind}"] = _or_text(definitions[f"{name}{kind}"], text)
    time, rate, share = (
        {"type": "string", "pattern": units.PATTERNS[dimension]} for dimension in units.FORMS
    )
    definitions["Parameters"]["properties"][ROUND] = time | {"description": "length of a round"}
    definitions["Bounds"] = _or_text(definitions["Bounds"], {"anyOf": [time, rate, share]})
    for table, keys in NUMBERS_OF_METRICS.items():
        properties = definitions[table]["properties"]
        texts = {"anyOf": [time, rate, share]}
        properties |= {key: _or_text(properties[key], texts) for key in keys}


def _add_entries(definitions: dict[str, Any]) -> None:
    """Let a grid vary entries of tables, a policy change those of a preset, others name them."""
    of_cells = definitions["Parameters"]
    definitions["At"] = of_cells | {"properties": of_cells["properties"].copy()}
    for table in ("ClaimTable", "PublishedTable"):
        definitions[table]["properties"]["at"]["$ref"] = "#/definitions/At"
    for name in filter(has_entries, PARAMETERS):
        tables = PARAMETERS[name].kind.tables.values()
        entries: dict[str, Any] = {entry: {} for table in tables for entry in table.declared()}
        some = {
            "type": "object",
            "properties": {"kind": {}} | entries,
            "additionalProperties": False,
        }
        definitions["Grid"]["properties"][name]["oneOf"].append(some)
        excluded = definitions["Exclude"]["properties"][name]
        excluded["anyOf"] = [*excluded.pop("oneOf"), some]  # a whole table is both
        for table in ("Policy", "At"):
            one = definitions[table]["properties"]
            one[name] = {"anyOf": [one[name], some]}


def _or_text(schema: Any, text: dict[str, Any]) -> Any:
    """Allow a text in place of each number in a schema, but for how many there are."""
    if isinstance(schema, list):
        return [_or_text(entry, text) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {k: v if k == "steps" else _or_text(v, text) for k, v in schema.items()}
    if schema.get("type") not in ("number", "integer"):
        return changed
    about = {key: changed.pop(key) for key in ("description", "default") if key in changed}
    return about | {"anyOf": [changed, text]}


def json_schema() -> dict[str, Any]:
    """Make the JSON schema of an experiment file, for editors that complete and check TOML.

    It says which keys and parameters there are, of which type, in which range, and what they
    mean. What holds between tables (names that must exist, axes that exclude each other) it cannot
    say: `read` does.

    Returns
    -------
    dict
        Draft 7, to be written as JSON.
    """
    schema = File.model_json_schema(ref_template="#/definitions/{model}", schema_generator=_Draft7)
    definitions = schema.pop("$defs")
    _add_texts_with_units(definitions)
    _add_entries(definitions)
    head = {"$schema": _Draft7.schema_dialect, "title": "retrystorm experiment"}
    return schema | head | {"definitions": definitions}
