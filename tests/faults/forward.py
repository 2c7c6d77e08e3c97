"""kill -9 of a process that forwards to two destinations, while events come and links break.

The oracle is what the destinations got, which live outside: every event that was appended, in order, and repeated only
around a kill or a cut. Run as a script, this file is that process (`run JOURNAL URL URL LOG`).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from tests.receiver import Receiver
from thence.forward.http import HttpBackend, HttpTarget
from thence.forward.loop import Forwarder
from thence.forward.policy import Policy
from thence.forward.wire import Timeouts
from thence.journal.log import FileJournal
from thence.testing.contracts.samples import event
from thence.testing.faults import FaultProxy

LONG = {"rounds": 200}
SHORT = {"rounds": 20}
PATIENCE_SECONDS = 60.0
NAMES = ("single", "batch")


def run(*, rounds: int, seed: int) -> dict[str, object]:
    """Kill it `rounds` times; afterwards let it finish."""
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="thence-faults-"))
    try:
        with (
            Receiver() as one,
            Receiver() as two,
            FaultProxy(one.address) as first,
            FaultProxy(two.address) as second,
        ):
            urls = ["http://{}:{}/api/v1/lineage".format(*proxy.address) for proxy in (first, second)]
            for _ in range(rounds):
                process = _start(directory, urls)
                try:
                    _wait_for_more(process, one, chance.randint(0, 40))
                    if chance.random() < 0.5:
                        first.drop(reset=chance.random() < 0.5)
                    if chance.random() < 0.3:
                        with second.lost_answers(1):
                            time.sleep(chance.random() * 0.05)
                finally:
                    process.kill()
                    process.wait()
            appended = _appended(directory)
            process = _start(directory, urls)
            try:
                _wait(
                    lambda: process.poll() is not None or len(set(one.arrived)) >= appended,
                    "the appended events",
                )
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE_SECONDS) == 0
            finally:
                process.kill()
                process.wait()
            appended = _appended(directory)
            figures: dict[str, object] = {"kills": rounds, "appended": appended}
            for name, receiver in zip(NAMES, (one, two), strict=True):
                figures |= _judge(name, [bytes(each) for each in receiver.arrived], appended)
            return figures
    finally:
        shutil.rmtree(directory)


def _judge(name: str, arrived: list[bytes], appended: int) -> dict[str, object]:
    wanted = [event(number).payload for number in range(1, appended + 1)]
    place = {payload: number for number, payload in enumerate(wanted)}
    first_times = list(dict.fromkeys(arrived))
    assert first_times == wanted, f"{name}: {len(first_times)} of {appended}, or not in order"
    numbers = [place[payload] for payload in arrived]
    backwards = sum(after <= before for before, after in pairwise(numbers))
    return {f"{name}_duplicates": len(arrived) - appended, f"{name}_went_back": backwards}


def _appended(directory: Path) -> int:
    journal = FileJournal(directory / "journal")
    last = journal.last
    journal.close()
    return last


def _start(directory: Path, urls: list[str]) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root}
    return subprocess.Popen([sys.executable, __file__, str(directory / "journal"), *urls], env=environment)


def _wait_for_more(process: subprocess.Popen[bytes], receiver: Receiver, more: int) -> None:
    before = len(receiver.arrived)
    _wait(lambda: process.poll() is not None or len(receiver.arrived) >= before + more, "some events")
    assert process.poll() is None, "the process ended by itself"


def _wait(check: object, what: str) -> None:
    assert callable(check)
    until = time.monotonic() + PATIENCE_SECONDS
    while not check():
        assert time.monotonic() < until, f"waited {PATIENCE_SECONDS} seconds for {what}"
        time.sleep(0.002)


def forward(directory: Path, urls: list[str]) -> None:
    """Append for ever, and forward, until somebody ends this."""
    journal = FileJournal(directory)
    policy = Policy(
        first_delay_seconds=0.01, longest_delay_seconds=0.05, settle_events=25, settle_seconds=0.2
    )
    quick = Timeouts(connect_seconds=2.0, answer_seconds=2.0)
    forwarders = []
    for name, url in zip(NAMES, urls, strict=True):
        target = HttpTarget(url, url + "/batch" if name == "batch" else None, timeouts=quick)
        backend = HttpBackend(target)
        forwarders.append(Forwarder(name, journal.cursor(name), backend, policy, parked=_nothing_is_parked))
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    for each in forwarders:
        each.start()
    while not ended:
        first = journal.last + 1
        journal.append([event(number) for number in range(first, first + 3)])
        for each in forwarders:
            each.notify()
        time.sleep(0.002)
    for each in forwarders:
        each.stop(seconds=30.0, drain=True)
    journal.close()


def _nothing_is_parked(letters: object) -> None:
    raise AssertionError(letters)


if __name__ == "__main__":
    forward(Path(sys.argv[1]), sys.argv[2:])
