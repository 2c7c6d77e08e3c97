"""The published OpenLineage schemas of the shared folder, composed into an oracle for the validator's tests.

The core schema does not refer to the facet schemas: each facet is added to the map of its place, which the `$ref`
of its definition names. Nothing of the product is used here.
"""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema_rs
import pytest

Json = Any
MAPS = {
    "run": ("Run", "facets"),
    "job": ("Job", "facets"),
    "dataset": ("Dataset", "facets"),
    "input": ("InputDataset", "inputFacets"),
    "output": ("OutputDataset", "outputFacets"),
}
PLACE_OF = {
    "RunFacet": "run",
    "JobFacet": "job",
    "DatasetFacet": "dataset",
    "InputDatasetFacet": "input",
    "OutputDatasetFacet": "output",
}


class PublishedFacet(NamedTuple):
    place: str
    key: str
    name: str
    version: str
    ref: str


def shared_folder() -> Path:
    """The folder of cases beside the repository; tests that need it are skipped where it is not."""
    folder = Path(os.environ.get("THENCE_SHARED") or repository().parent / "shared") / "cases" / "openlineage"
    if not folder.is_dir():
        pytest.skip(f"the shared OpenLineage cases are not at {folder}; THENCE_SHARED names their folder")
    return folder


def repository() -> Path:
    """The root of the repository, also from a second working tree of it."""
    root = Path(__file__).resolve().parents[1]
    link = root / ".git"
    if link.is_file():
        return Path(link.read_text("utf-8").removeprefix("gitdir: ").strip()).parents[2]
    return root


class Published:
    """The schemas, what they say of facets, and verdicts by them."""

    def __init__(self, folder: Path) -> None:
        self.core = json.loads((folder / "schemas" / "OpenLineage.json").read_text("utf-8"))
        paths = sorted((folder / "schemas" / "facets").glob("*.json"))
        self.files = {doc["$id"]: doc for doc in (json.loads(path.read_text("utf-8")) for path in paths)}
        self.facets = [facet for doc in self.files.values() for facet in _facets(doc)]
        root = self.composed()
        registry = jsonschema_rs.Registry([*self.files.items(), (self.core["$id"], self.core)])
        self.with_formats = jsonschema_rs.Draft202012Validator(
            root, registry=registry, validate_formats=True, offline=True
        )
        self.without_formats = jsonschema_rs.Draft202012Validator(
            root, registry=registry, validate_formats=False, offline=True
        )

    def composed(self) -> Json:
        root = copy.deepcopy(self.core) | {"$id": "https://oracle.example/OpenLineage.json"}
        for facet in self.facets:
            record, name = MAPS[facet.place]
            parts = [root["$defs"][record], *root["$defs"][record].get("allOf", ())]
            home = next(part["properties"][name] for part in parts if name in part.get("properties", {}))
            home.setdefault("properties", {})[facet.key] = {"$ref": facet.ref}
        return root

    def resolve(self, ref: str, home: str) -> tuple[Json, str]:
        """The schema that a `$ref` in the document `home` means, and its own document."""
        document, _, pointer = ref.partition("#/")
        document = document or home
        schema = self.core if document == self.core["$id"] else self.files[document]
        for part in pointer.split("/"):
            schema = schema[part]
        return schema, document

    def example(self, facet: PublishedFacet, rng: random.Random, *, density: float = 0.6) -> Json:
        """A facet that is valid by its published schema, with formats, and with this share of optional fields."""
        return Examples(self, rng, density).make({"$ref": facet.ref}, facet.ref.partition("#")[0])


class Examples:
    """Makes valid instances of published schemas."""

    def __init__(self, published: Published, rng: random.Random, density: float) -> None:
        self.published = published
        self.rng = rng
        self.density = density

    def make(self, schema: Json, home: str, depth: int = 0) -> Json:
        if "$ref" in schema:
            found, document = self.published.resolve(schema["$ref"], home)
            return self.make(found, document, depth)
        if "const" in schema or "enum" in schema:
            return self.rng.choice(schema.get("enum") or [schema["const"]])
        if "allOf" in schema:
            parts = [self.make(part, home, depth) for part in schema["allOf"]]
            return {key: value for part in parts for key, value in part.items()}
        if "oneOf" in schema:
            branches = schema["oneOf"]
            return self.make(branches[0] if depth > 6 else self.rng.choice(branches), home, depth)
        return self.by_type(schema, home, depth)

    def by_type(self, schema: Json, home: str, depth: int) -> Json:
        match schema.get("type"):
            case "string":
                return self.text(schema.get("format"))
            case "integer":
                return self.rng.choice([1, 7, 2.0, 2**63, 2**70])
            case "number":
                return self.rng.choice([0, -3, 1.5, 1e300, 2**64])
            case "boolean":
                return self.rng.random() < 0.5
            case "array":
                count = 0 if depth > 6 else self.rng.randint(int(self.density), 2)
                return [self.make(schema["items"], home, depth + 1) for _ in range(count)]
        return self.mapping(schema, home, depth)

    def text(self, form: str | None) -> str:
        match form:
            case "uuid":
                return "3f5e83fa-3480-44ff-99c5-ff943904e5e8"
            case "date-time":
                return self.rng.choice(["2024-01-01T00:00:00Z", "2024-12-31T23:59:59.999999999+01:00"])
            case "uri":
                return self.rng.choice(["https://example.org/x#y", "urn:x:y", "s3://bucket/key"])
        return self.rng.choice(["", "x", "ä/~ \u0000", "2024", "file"])

    def mapping(self, schema: Json, home: str, depth: int) -> Json:
        fields = schema.get("properties", {})
        required = schema.get("required", [])
        rest = schema.get("additionalProperties") or {}
        if "anyOf" in schema:  # the maps of facets
            rest = schema["anyOf"][0]["additionalProperties"]
        together = set(schema.get("dependentRequired", ())) if self.rng.random() < 0.5 else set()
        chosen = [
            name
            for name in fields
            if name in required
            or name in together
            or (
                name not in schema.get("dependentRequired", ())
                and depth < 7
                and self.rng.random() < self.density
            )
        ]
        made = {name: self.make(fields[name], home, depth + 1) for name in chosen}
        if rest and depth < 7:
            inner = rest if isinstance(rest, dict) else {"type": "integer"}
            made |= {
                f"k/{i}": self.make(inner, home, depth + 1)
                for i in range(self.rng.randint(int(self.density), 2))
            }
        return made


def _facets(doc: Json) -> Iterator[PublishedFacet]:
    (key,) = doc["properties"]
    version = doc["$id"].split("/")[-2]
    for name, definition in doc["$defs"].items():
        bases = [part["$ref"].rsplit("/", 1)[1] for part in definition.get("allOf", ()) if "$ref" in part]
        for base in bases:
            yield PublishedFacet(PLACE_OF[base], key, name, version, f"{doc['$id']}#/$defs/{name}")


ODDITIES: list[Json] = [
    None, True, False, 0, 1, -1, 1.0, 1.5, 2**64, "", "x", "file", "START", "start", "JOB", "DATASET",
    "not a uri", "http://[", "3f5e83fa348044ff99c5ff943904e5e8", "zz", "2024-01-01", "2024-01-01T00:00:00",
    "2024-02-30T00:00:00Z", "RENAME", "compare", "literal", [], [None], [{}], {}, {"x": 1}, {"type": "JOB"},
    {"type": "compare"}, {"_producer": "x:y", "_schemaURL": "x:y"},
]  # fmt: skip


def mutate(value: Json, rng: random.Random) -> Json:
    """A copy with one thing changed somewhere: dropped, replaced, added, renamed, nested or taken out."""
    box = [copy.deepcopy(value)]
    spots = list(spots_of(box))
    holder, key = rng.choice(spots)
    inner = holder[key]
    match rng.randrange(7):
        case 0 if holder is not box:
            del holder[key]
        case 1:
            holder[key] = [inner] if rng.random() < 0.5 else {rng.choice(["x", "type", "name"]): inner}
        case 2 if isinstance(inner, dict):
            inner[rng.choice(["x", "type", "name", "namespace", "field", "_deleted", "runId"])] = rng.choice(
                ODDITIES
            )
        case 3 if isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case 4 if isinstance(inner, dict | list) and inner:
            holder[key] = next(iter(inner.values())) if isinstance(inner, dict) else inner[0]
        case _:
            holder[key] = copy.deepcopy(rng.choice(ODDITIES))
    return box[0]


def spots_of(holder: Json) -> Iterator[tuple[Json, Any]]:
    """Every place in an object or array, as its container and key."""
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from spots_of(holder[key])


def event_with(place: str, key: str, facet: Json, rng: random.Random) -> tuple[Json, str]:
    """A valid event of a kind that can hold the facet there, and the path of the facet in it."""
    event: Json = {
        "eventTime": "2024-05-06T07:08:09.123Z",
        "producer": "https://example.org/producer",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }
    facets = {key: facet}
    if place == "dataset" and rng.random() < 0.3:
        event["dataset"] = {"namespace": "n", "name": "d", "facets": facets}
        return event, f"dataset/facets/{key}"
    event["job"] = {"namespace": "n", "name": "j"}
    if place == "run" or rng.random() < 0.6:
        event["run"] = {"runId": "3f5e83fa-3480-44ff-99c5-ff943904e5e8"}
    if place in ("run", "job"):
        event[place]["facets"] = facets
        return event, f"{place}/facets/{key}"
    side = {"input": "inputs", "output": "outputs"}.get(place) or rng.choice(["inputs", "outputs"])
    name = {"input": "inputFacets", "output": "outputFacets"}.get(place, "facets")
    event[side] = [{"namespace": "n", "name": "0"}, {"namespace": "n", "name": "d", name: facets}]
    return event, f"{side}/1/{name}/{key}"
