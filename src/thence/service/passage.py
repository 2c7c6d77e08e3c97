"""Which destination answers what this process has no route for, so that a client needs one address only.

Where API keys are set, reading needs one that may read: the destination is asked in our name.
"""

from __future__ import annotations

from collections.abc import Mapping

from thence.collect.keys import Role
from thence.collect.lineage import UNAUTHORIZED
from thence.core.errors import ConfigError
from thence.forward.pass_through import PassThrough
from thence.forward.presets import PRESETS
from thence.http.exchange import Request, Response, Route, refusal
from thence.http.routes import Routes
from thence.service.collector import Collector
from thence.service.forward import base_of
from thence.service.settings import Settings

_BELOW = ("/api/v1/", "/api/v2/")


class Passage:
    """Routes to the destination that the settings name; none where they name none."""

    def __init__(self, settings: Settings, collector: Collector) -> None:
        self._collector = collector
        self._to = destination(settings)
        self._is_open = self._to is not None
        self._before: list[PassThrough] = []

    def beside(self, routes: Routes) -> Routes:
        """The routes, and for what they leave open those to the destination."""
        if self._to is None:
            return routes
        passing = {"GET": Route(self._pass)}
        joined: dict[str, Mapping[str, Route]] = {f"{beginning}{{path...}}": passing for beginning in _BELOW}
        for template, methods in routes.items():
            joined[template] = {**passing, **methods} if template.startswith(_BELOW) else methods
        return joined

    def lead_to(self, to: PassThrough | None) -> tuple[str, ...]:
        """Ask another from the next request on; returns the settings that count from the next start only."""
        if not self._is_open:
            return () if to is None else ("collect.lineage.pass_through",)
        self._before += [self._to] if self._to is not None else []
        self._to = to
        return ()

    async def close(self) -> None:
        """Let go of all connections."""
        for each in (*self._before, self._to):
            if each is not None:
                await each.close()

    async def _pass(self, request: Request) -> Response:
        if not self._collector.parts.door.admits(request, Role.READ):
            return UNAUTHORIZED
        if self._to is None:
            return refusal(
                404, "http.not_found", "nothing is passed through any more", "GET / lists what is."
            )
        while self._before:
            # What is under way there still comes to its end; only idle connections are closed.
            await self._before.pop().close()
        return await self._to.ask(request)


def destination(settings: Settings) -> PassThrough | None:
    """The one that the settings name."""
    name = settings.collect.lineage.pass_through
    if name is None:
        return None
    chosen = settings.forward.get(name)
    if chosen is None or chosen.type not in PRESETS:
        fitting = [each for each, found in settings.forward.items() if found.type in PRESETS]
        what = "no destination" if chosen is None else f"of type {chosen.type}, which answers no questions"
        raise ConfigError(
            "collect.pass_through",
            f"collect.lineage.pass_through: {name!r} is {what}",
            advice=f"Name one of: {', '.join(fitting)}." if fitting else "Add it below forward, with a url.",
        )
    return PassThrough(name, base_of(chosen), is_locked=bool(settings.collect.lineage.keys))
