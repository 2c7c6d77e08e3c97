"""Events of our own for the validator's tests."""

from __future__ import annotations

from typing import Any

BY = {"_producer": "https://example.org/p", "_schemaURL": "https://example.org/schema.json"}
RUN_ID = "0190a3c1-7f1e-7cc3-98c2-0242ac120002"
START = {
    "eventTime": "2026-03-04T05:06:07.890Z",
    "producer": "https://example.org/producer",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
}


def run_event(**changes: Any) -> dict[str, Any]:
    """A RunEvent with facets at every place."""
    return (
        START
        | {
            "eventType": "COMPLETE",
            "run": {
                "runId": RUN_ID,
                "facets": {
                    "parent": BY | {"run": {"runId": RUN_ID}, "job": {"namespace": "airflow", "name": "dag"}},
                    "myShop_cost": BY | {"currency": "EUR"},
                },
            },
            "job": {"namespace": "shop", "name": "orders", "facets": {"sql": BY | {"query": "select 1"}}},
            "inputs": [
                {
                    "namespace": "s3://lake",
                    "name": "raw",
                    "facets": {"schema": BY | {"fields": [{"name": "id", "type": "long"}]}},
                    "inputFacets": {"inputStatistics": BY | {"rowCount": 10}},
                }
            ],
            "outputs": [
                {
                    "namespace": "postgres://db",
                    "name": "orders",
                    "facets": {"dataSource": BY | {"name": "db", "uri": "postgres://db:5432"}},
                    "outputFacets": {"outputStatistics": BY | {"rowCount": 2**70}},
                }
            ],
        }
        | changes
    )


def job_event(**changes: Any) -> dict[str, Any]:
    """A JobEvent."""
    return START | {"job": {"namespace": "shop", "name": "orders"}} | changes


def dataset_event(**changes: Any) -> dict[str, Any]:
    """A DatasetEvent."""
    return START | {"dataset": {"namespace": "s3://lake", "name": "raw"}} | changes


def with_facet(place: str, key: str, facet: Any) -> dict[str, Any]:
    """A RunEvent that carries this facet and no other; `place` is `run`, `job`, `inputs/facets`, ..."""
    dataset = {"namespace": "n", "name": "d"}
    plain: dict[str, Any] = START | {"run": {"runId": RUN_ID}, "job": {"namespace": "n", "name": "j"}}
    match place.split("/"):
        case ["run" | "job" as owner]:
            return plain | {owner: plain[owner] | {"facets": {key: facet}}}
        case [side, name]:
            return plain | {side: [dataset | {name: {key: facet}}]}
    raise AssertionError(place)
