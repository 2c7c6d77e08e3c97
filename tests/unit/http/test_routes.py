"""The route of a path and a method."""

from __future__ import annotations

import pytest

from thence.core.errors import InvariantBroken
from thence.http.exchange import Refused, Request, Response, Route
from thence.http.routes import OTHER, RouteTable


def say(_: Request) -> Response:
    return Response()


GET = {"GET": Route(say)}
TABLE = RouteTable(
    {
        "/": GET,
        "/api/v1/lineage": {"POST": Route(say, "whole"), "GET": Route(say)},
        "/api/v1/namespaces": GET,
        "/api/v1/namespaces/{namespace}": {**GET, "PUT": Route(say, "whole")},
        "/api/v1/namespaces/{namespace}/jobs": GET,
        "/api/v1/namespaces/{namespace}/jobs/{job}": GET,
        "/api/v1/namespaces/default/jobs": GET,
        "/files/{path...}": GET,
        "/files/index": GET,
    }
)


@pytest.mark.parametrize(
    ("path", "template", "params"),
    [
        ("/", "/", {}),
        ("/api/v1/lineage", "/api/v1/lineage", {}),
        ("/api/v1/line%61ge", "/api/v1/lineage", {}),
        ("/api/v1/namespaces/a", "/api/v1/namespaces/{namespace}", {"namespace": "a"}),
        (
            "/api/v1/namespaces/s3%3A%2F%2Fb/jobs",
            "/api/v1/namespaces/{namespace}/jobs",
            {"namespace": "s3://b"},
        ),
        (
            "/api/v1/namespaces/%C3%A9/jobs/j",
            "/api/v1/namespaces/{namespace}/jobs/{job}",
            {"namespace": "é", "job": "j"},
        ),
        ("/api/v1/namespaces/default/jobs", "/api/v1/namespaces/default/jobs", {}),
        (
            "/api/v1/namespaces/default/jobs/j",
            "/api/v1/namespaces/{namespace}/jobs/{job}",
            {"namespace": "default", "job": "j"},
        ),
        ("/files/a/b/c", "/files/{path...}", {"path": "a/b/c"}),
        ("/files/", "/files/{path...}", {"path": ""}),
        ("/files/index", "/files/index", {}),
        ("/files/index/x", "/files/{path...}", {"path": "index/x"}),
    ],
)
def test_a_path_finds_its_template(path: str, template: str, params: dict[str, str]) -> None:
    match = TABLE.find("GET", path)
    assert (match.template, match.params, match.method) == (template, params, "GET")
    assert match.route.handler is say


@pytest.mark.parametrize(
    "path",
    [
        "",
        "*",
        "/nope",
        "/api",
        "/api/v1/lineage/",
        "//",
        "/files",
        "/api/v1/namespaces/",
        "/api/v1/namespaces//jobs",
    ],
)
def test_other_paths_find_nothing(path: str) -> None:
    match = TABLE.find("GET", path)
    assert match.template == OTHER
    assert answered(match.route).status == 404


def test_head_comes_from_get_and_is_counted_as_head() -> None:
    match = TABLE.find("HEAD", "/api/v1/namespaces/a")
    assert (match.method, match.route.handler) == ("HEAD", say)


@pytest.mark.parametrize(
    ("path", "allowed"), [("/api/v1/lineage", "GET, HEAD, POST"), ("/api/v1/namespaces/a", "GET, HEAD, PUT")]
)
def test_other_methods_are_told_which_are_taken(path: str, allowed: str) -> None:
    match = TABLE.find("DELETE", path)
    response = answered(match.route)
    assert (response.status, response.headers) == (405, (("allow", allowed),))
    assert match.template in ("/api/v1/lineage", "/api/v1/namespaces/{namespace}")


def test_labels_of_methods_are_few() -> None:
    assert TABLE.find("UNLINK", "/").method == OTHER


@pytest.mark.parametrize("path", ["/files/%ff", "/files/%00", "/api/v1/namespaces/%c3"])
def test_paths_that_are_no_text_are_refused(path: str) -> None:
    with pytest.raises(Refused):
        TABLE.find("GET", path)


def test_the_same_template_twice_is_refused() -> None:
    with pytest.raises(InvariantBroken):
        RouteTable({"/a/{b}": GET, "/a/{c}": GET})


def answered(route: Route) -> Response:
    response = route.handler(Request("GET", "/", "", {}, "", ""))
    assert isinstance(response, Response)
    return response
