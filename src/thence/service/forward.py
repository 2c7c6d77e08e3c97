"""The forwarders as the settings want them: one for each destination, started and stopped as one service.

Each has a cursor of its own in the journal, by the name of the destination. A cursor without a destination holds the
journal back within its limits, so it is named in the log.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from types import ModuleType
from typing import TypeVar

from thence.core.errors import ConfigError, ThenceError
from thence.core.ports import Backend
from thence.forward import presets
from thence.forward.file import FileBackend, StreamBackend
from thence.forward.http import HttpBackend, HttpTarget
from thence.forward.loop import Forwarder
from thence.forward.policy import Policy
from thence.forward.rewrite import Change, RedactFacet, RedactField, RenameNamespace
from thence.forward.rules import Drop, Rules, Takes
from thence.forward.webhook import webhook
from thence.forward.wire import Tls
from thence.service.collector import Collector
from thence.service.forward_settings import ForwardSettings
from thence.service.section import Secret

_log = logging.getLogger(__name__)
_STOP_SECONDS = 4.0

T = TypeVar("T")


class Forwarding:
    """All forwarders of one process."""

    name = "forwarders"

    def __init__(self, settings: Mapping[str, ForwardSettings], collector: Collector) -> None:
        self._settings = settings
        self._collector = collector
        self._running: dict[str, Forwarder] = {}

    @property
    def forwarders(self) -> tuple[Forwarder, ...]:
        """Those that run now."""
        return tuple(self._running.values())

    def start(self) -> str:
        """Open the cursors and start to send."""
        parts = self._collector.parts
        unknown = sorted(set(parts.journal.cursors()) - set(self._settings))
        if unknown:
            about = {"action": "cursor_without_destination", "cursors": unknown}
            _log.warning("cursors without a destination hold the journal back", extra=about)
        made = {name: self._make(name, each) for name, each in self._settings.items()}
        for forwarder in made.values():
            forwarder.start()
        self._running = made
        return ", ".join(f"{name} ({each.type})" for name, each in self._settings.items()) or "no destination"

    def notify(self) -> None:
        """Something was appended."""
        for forwarder in self.forwarders:
            forwarder.notify()

    def stop(self) -> None:
        """Let what is on its way arrive, for a moment."""
        for forwarder in self.forwarders:
            forwarder.stop(seconds=_STOP_SECONDS)
        self._running = {}

    def reconfigure(self, settings: Mapping[str, ForwardSettings]) -> None:
        """Stop what was taken out, start what is new, and replace what was changed; all others go on untouched.

        What is new is made before anything is stopped, so that a mistake in it changes nothing.
        """
        changed = [name for name in settings if settings[name] != self._settings.get(name)]
        fresh = {name: self._make(name, settings[name]) for name in changed}
        ended = [name for name in self._running if name in fresh or name not in settings]
        for name in ended:
            self._running[name].stop(seconds=_STOP_SECONDS)
        for forwarder in fresh.values():
            forwarder.start()
        kept = {name: each for name, each in self._running.items() if name not in ended}
        self._running, self._settings = {**kept, **fresh}, settings

    def trouble(self) -> str:
        """Nothing: a destination that is down is what the journal is for. Metrics and logs tell of it."""
        return ""

    def _make(self, name: str, settings: ForwardSettings) -> Forwarder:
        parts = self._collector.parts
        try:
            backend = backend_of(settings)
        except ThenceError as error:
            error.message = f"forward.{name}: {error.message}"
            raise
        cursor = parts.journal.cursor(name, start=settings.start)
        policy = Policy(on_refusal=settings.on_reject)
        return Forwarder(name, cursor, backend, policy, parked=parts.letters, rules=rules_of(settings))


def rules_of(settings: ForwardSettings) -> Rules:
    """What the destination is spared, and what is changed on the way."""
    changes: tuple[Change, ...] = (
        *(RenameNamespace(prefix, becomes) for prefix, becomes in settings.rename_namespaces.items()),
        *(RedactFacet(key) for key in settings.redact_facets),
        *(RedactField(pointer) for pointer in settings.redact_fields),
    )
    drops = tuple(Drop(each.field, each.pattern, each.match) for each in settings.drop)
    takes = Takes(max_bytes=settings.max_bytes) if settings.max_bytes is not None else Takes()
    given = Rules(drops, changes, takes)
    return presets.rules(settings.type, given) if settings.type in presets.PRESETS else given


def backend_of(settings: ForwardSettings) -> Backend:
    """What sends to a destination of this type."""
    match settings.type:
        case "file":
            return FileBackend(_needed(settings.path, "path"))
        case "stdout":
            return StreamBackend()
        case "kafka":
            return _kafka(settings)
        case "amqp":
            return _amqp(settings)
        case "webhook":
            key = _needed(settings.signing_key, "signing_key").reveal().encode()
            return webhook(_target(settings, _needed(settings.url, "url")), key)
    url = _needed(settings.url, "url")
    return HttpBackend(presets.target(settings.type, url, _target(settings, url), **settings.names))


def base_of(settings: ForwardSettings) -> HttpTarget:
    """Where a destination that speaks HTTP begins, without the path that events are sent to."""
    return _target(settings, _needed(settings.url, "url"))


def _target(settings: ForwardSettings, url: str) -> HttpTarget:
    return HttpTarget(
        url,
        batch_url=url.rstrip("/") + settings.batch_path if settings.batch_path else None,
        bearer=settings.token.reveal() if settings.token else None,
        bearer_file=settings.token_file,
        headers=_revealed(settings.headers),
        tls=Tls(settings.ca_file, settings.certificate_file, settings.key_file),
    )


def _kafka(settings: ForwardSettings) -> Backend:
    module = _extra("thence.forward.kafka", "kafka")
    brokers, topic = _needed(settings.brokers, "brokers"), _needed(settings.topic, "topic")
    target = module.KafkaTarget(brokers, topic, settings.partition_by, options=_revealed(settings.options))
    backend: Backend = module.KafkaBackend(target)
    return backend


def _amqp(settings: ForwardSettings) -> Backend:
    module = _extra("thence.forward.amqp", "amqp")
    url, exchange = _needed(settings.url, "url"), _needed(settings.exchange, "exchange")
    backend: Backend = module.AmqpBackend(module.AmqpTarget(url, exchange, settings.routing_key))
    return backend


def _extra(module: str, extra: str) -> ModuleType:
    # Clients of brokers are heavy and are loaded only where a destination needs them.
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            "forward.extra_missing",
            f"the client for {extra} is not installed",
            advice=f"Install it: pip install 'thence[{extra}]'",
        ) from error


def _revealed(secrets: Mapping[str, Secret]) -> dict[str, str]:
    return {name: secret.reveal() for name, secret in secrets.items()}


def _needed(value: T | None, key: str) -> T:
    if value is None:
        raise ConfigError("forward.incomplete", f"this type needs {key}", advice=f"Add {key} to it.")
    return value
