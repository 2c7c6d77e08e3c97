from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

import pytest

from thence.collect import spec
from thence.collect.spec import FacetsAt, ListOf, MapOf, Named, Scalar, assemble, parse
from thence.core.errors import InvariantBroken


def tables(name: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("thence.collect") / "openlineage" / name).read_text("utf-8"))


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("string", Scalar("string")),
        ("always uuid", Scalar("string", format="uuid", always=True)),
        ("date-time", Scalar("string", format="date-time")),
        ("integer>=1", Scalar("integer", least=1)),
        ("A|B_C", Scalar("string", options=("A", "B_C"))),
        ("[{Owner}]", ListOf(MapOf(Named("Owner")))),
        ("facets(run)", FacetsAt("run")),
    ],
)
def test_the_notation(text: str, shape: object) -> None:
    assert parse(text) == shape


def test_a_facet_holds_what_every_facet_holds_and_its_own_fields() -> None:
    record = spec.load().records["SQLJobFacet"]

    assert list(record.fields) == ["_producer", "_schemaURL", "_deleted", "query", "dialect"]
    assert record.required == ("_producer", "_schemaURL", "query")


def test_every_table_is_used() -> None:
    known = spec.load()
    reached: set[str] = set()
    waiting = ["RunEvent", "DatasetEvent", "JobEvent", *(home.base for home in known.places.values())]
    waiting += [facet.name for home in known.places.values() for facet in home.facets.values()]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        if name in known.unions:
            waiting += known.unions[name].branches.values()
        else:
            waiting += [each for shape in known.records[name].fields.values() for each in spec._names(shape)]
        waiting = [each for each in waiting if not each.startswith("facets(")]

    assert (known.records.keys() | known.unions.keys()) - reached == {"Event"}


@pytest.mark.parametrize("text", ["Strin", "[integr]", "facets(jobs)", "uid!"])
def test_a_name_that_leads_nowhere_stops_the_start(text: str) -> None:
    facets = tables("facets.toml")
    facets["types"]["Owner"]["name"] = text

    with pytest.raises(InvariantBroken) as caught:
        assemble(tables("core.toml"), facets)
    assert caught.value.code == "collect.spec_incomplete"
