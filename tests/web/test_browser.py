"""The pages of a real worker, whose topics a real broker keeps; ``test_pages.py`` has what they show."""

from __future__ import annotations

import re
import urllib.request
from typing import Any

import pytest

from stream_dp.embedded import ports
from tests.pipeline.world import definition
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

OPERATOR, ANALYST = "operator-token-of-this-test", "analyst-token-of-this-test"


@pytest.fixture(scope="module")
def worker(module_deployment: Any) -> Any:
    """Answers about people, whose first phase is open."""
    worker = module_deployment.worker(web_operator_token=OPERATOR, web_analyst_token=ANALYST)
    worker.wait_ready()
    with module_deployment.client() as client:
        smoker = {"name": "smoker", "type": "boolean"}
        accuracy = {"error": 0.1, "failure_probability": 0.01}
        phase = {"min_rows": 2000}
        client.define(definition("people", attributes=[smoker], accuracy=accuracy, phase=phase))
        client.send("people", columns={"smoker": [True, False] * 1000})
    return worker


def test_a_question_goes_through_the_topics_and_its_answer_is_published(
    browser: Any, worker: Any, module_deployment: Any
) -> None:
    page = browser.open(f"{worker.url}/ask#token={ANALYST}")
    page.until_text("Enter only if that is you", "#who")
    page.click("#enter")
    page.until("document.querySelector('#schema .attribute')")
    page.until_text("phase 1 opened with 2,000 rows", "#events")
    page.write("#question", "smoker")
    page.click("#price")
    page.until_text("of the budget left", "#says")
    page.click("#ask")
    page.until_text("of 2,000 rows", "#answer")
    assert re.search(r"[\d.]+% ± [\d.]+%", page.text("#answer .figure"))
    page.until_text("smoker = TRUE", "#answers")
    asked = [record.get("where") for record in module_deployment.replies("queries")]
    assert {"attribute": "smoker", "eq": True} in asked
    assert page.errors() == []
    page.close()


def test_the_worker_prints_where_to_enter_and_no_token_that_was_given(worker: Any) -> None:
    worker.until(lambda: f"analysts enter by {worker.url}/ with" in worker.output)
    assert OPERATOR not in worker.output
    assert ANALYST not in worker.output


def test_prometheus_needs_no_token_at_a_port_of_its_own(module_deployment: Any) -> None:
    port = ports.choose("metrics", None)
    bearer = {"Authorization": f"Bearer {OPERATOR}"}
    worker = module_deployment.worker(
        metrics_port=port, web_analyst_token=ANALYST, web_operator_token=OPERATOR
    )
    worker.wait_ready()
    assert worker.page("/metrics") is None
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as reply:
        assert b"stream_dp_ready 1.0" in reply.read()
    request = urllib.request.Request(f"{worker.url}/metrics", headers=bearer)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
        assert b"stream_dp_ready 1.0" in reply.read()
    assert worker.stop() == 0, worker.output
