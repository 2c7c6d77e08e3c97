"""A thread with an event loop of its own, in which one coroutine runs until it ends or its time is over."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

_log = logging.getLogger(__name__)


class LoopThread:
    """`failed` is told when the coroutine ends by an exception."""

    def __init__(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], failed: Callable[[Exception], None]
    ) -> None:
        self._name = name
        self._main = main
        self._failed = failed
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._work, name=f"forward-{name}", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin. Once."""
        self._thread.start()

    def end(self, seconds: float) -> None:
        """Wait for the end; after so many seconds, bring it about."""
        self._thread.join(seconds)
        task = self._task
        if self._thread.is_alive() and task is not None:
            about = {"action": "forward_cut_off", "destination": self._name}
            _log.warning("cut off in mid-send", extra=about)
            task.get_loop().call_soon_threadsafe(task.cancel)
        self._thread.join()

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except asyncio.CancelledError:
            pass
        except Exception as error:  # boundary: of a thread; the rest of the process goes on
            self._failed(error)

    async def _run(self) -> None:
        self._task = asyncio.current_task()
        await self._main()
