"""The HTTP API of a real worker, asked by a program that knows HTTP alone."""

from __future__ import annotations

import json
import threading
import urllib.request
from queue import SimpleQueue
from typing import Any

import pytest

from stream_dp.client.budget.odometer import Odometer
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.kafka

TOKEN = "analyst-token-of-this-test"


class Program:
    """What curl does."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/api/v1/datasets"

    def open(self, path: str, body: Any = None, timeout_s: float = 30.0) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, headers)
        return urllib.request.urlopen(request, timeout=timeout_s)

    def call(self, path: str, body: Any = None) -> Any:
        with self.open(path, body) as reply:
            return json.load(reply)


def test_from_the_list_of_data_sets_to_an_answer_and_back_to_it(
    module_deployment: Any,
) -> None:
    worker = module_deployment.worker(web_analyst_token=TOKEN)
    worker.wait_ready()
    program = Program(worker.url)
    with module_deployment.client() as client:
        client.define(
            {
                "dataset": "people",
                "attributes": [{"name": "smoker", "type": "boolean"}],
                "privacy": {"epsilon": 1.0, "delta": 1e-9},
                "accuracy": {"error": 0.1, "failure_probability": 0.01},
                "phase": {"min_rows": 1000},
            }
        )
        client.send(
            "people", cells=[{"smoker": True, "count": 250}, {"smoker": False, "count": 750}]
        )
    (found,) = program.call("")["datasets"]
    assert (found["dataset"], found["phases"], found["rows"]) == ("people", 1, 1000)
    assert program.call("/people")["phase"] == {"min_rows": 1000}
    heard: SimpleQueue[tuple[str, Any]] = SimpleQueue()

    def listen() -> None:
        with program.open("/people/stream") as stream:
            heard.put(("open", None))
            name = stream.readline().decode().strip()
            heard.put((name, json.loads(stream.readline().decode().removeprefix("data: "))))

    listener = threading.Thread(target=listen)
    listener.start()
    assert heard.get(timeout=PATIENCE_S)[0] == "open"
    quoted = program.call("/people/quotes", {"sql": "smoker"})
    assert quoted["status"] == "quoted"
    answer = program.call("/people/queries", {"sql": "smoker", "query_id": "q-1"})
    assert answer["value"] == pytest.approx(0.25, abs=0.1)
    name, told = heard.get(timeout=PATIENCE_S)
    listener.join(PATIENCE_S)
    assert (name, told) == ("event: answer", answer)
    assert program.call("/people/answers/q-1") == answer
    with module_deployment.client() as client:
        spent = Odometer.read(client.ledger("people")).most_spent
    until(
        lambda: program.call("/people/budget")["spent"] == spent,
        lambda: (program.call("/people/budget"), spent, answer),
    )
    bundle = {"queries": [{"sql": "smoker"}, {"where": {"attribute": "smoker", "eq": False}}]}
    assert len(program.call("/people/quotes/together", bundle)["queries"]) == 2
    assert worker.stop() == 0, worker.output
