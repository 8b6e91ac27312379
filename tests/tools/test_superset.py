"""Superset lists a data set, and draws a band, a table and a filter in a browser."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from stream_dp.embedded import ports
from tests.tools.conftest import ROOT, Port
from tests.tools.superset_server import PASSWORD, SupersetServer
from tests.web.conftest import Browser, Page

PICTURES = ROOT / "build/tools"
_BAND = """
(() => {
  const canvas = document.querySelector(".chart-container canvas");
  const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let tinted = 0;
  for (let at = 0; at < data.length; at += 4) {
    const parts = [...data.subarray(at, at + 3)];
    tinted += data[at + 3] > 0 && Math.max(...parts) - Math.min(...parts) > 8;
  }
  return tinted / (data.length / 4);
})()
"""
"""The part of a drawing that has a colour."""


def _metric(sql: str, label: str) -> dict[str, Any]:
    return {"expressionType": "SQL", "sqlExpression": sql, "label": label, "hasCustomLabel": True}


COUNT = _metric("COUNT(*)", "n")
BAND = [
    COUNT,
    _metric("LOWER_BOUND(COUNT(*))", "n__yhat_lower"),
    _metric("UPPER_BOUND(COUNT(*))", "n__yhat_upper"),
]
TABLE = [COUNT, _metric("ERROR_BAR(COUNT(*))", "n ±"), _metric("AVG(amount)", "mean")]
BY_DAY = {"x_axis": "sold", "time_grain_sqla": "P1D", "groupby": [], "row_limit": 1000}


@pytest.fixture(scope="module")
def superset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupersetServer]:
    """A Superset that knows nothing yet."""
    running = SupersetServer(tmp_path_factory.mktemp("superset"), ports.choose("Superset", None))
    yield running
    running.close()


@pytest.fixture(scope="module")
def dataset(superset: SupersetServer, port: Port) -> int:
    """The data set in Superset, by the address that the page says."""
    address = f"postgresql+psycopg2://ann@127.0.0.1:{port.number}/stream_dp"
    database = superset.call(
        "database/", {"database_name": "stream_dp", "sqlalchemy_uri": address}
    )["id"]
    tables = superset.call(f"database/{database}/tables/?q=(schema_name:public)")["result"]
    assert [table["value"] for table in tables] == ["sales"]
    made = superset.call(
        "dataset/", {"database": database, "schema": "public", "table_name": "sales"}
    )
    return int(made["id"])


@pytest.fixture
def page(browser: Browser, superset: SupersetServer) -> Iterator[Page]:
    """A page on which Ann is signed in."""
    opened = browser.open(f"{superset.url}/login/")
    opened.resize(1280, 720)
    opened.until("document.querySelector('#username')")
    opened.write("#username", "ann")
    opened.write("#password", PASSWORD)
    opened.press("Enter")
    opened.until("!location.pathname.startsWith('/login')")
    yield opened
    opened.close()


def _picture(page: Page, name: str) -> None:
    data = page.call("Page.captureScreenshot", format="png")["data"]
    (PICTURES / name).write_bytes(base64.b64decode(data))


def _drawn(page: Page, superset: SupersetServer, chart: int) -> float:
    """Opens a chart; the part of it that has a colour, when it does not change any more."""
    page.go(f"{superset.url}/explore/?slice_id={chart}")
    page.until_text("62 rows")
    page.until("document.querySelector('.chart-container canvas')")
    page.evaluate("new Promise((done) => setTimeout(done, 3000))")  # lines are drawn slowly
    return float(page.evaluate(_BAND))


def _click(page: Page, script: str) -> None:
    """Clicks as a mouse does on what an expression finds."""
    page.until(script)
    middle = "((r) => [r.x + r.width / 2, r.y + r.height / 2])"
    x, y = page.evaluate(f"{middle}({script}.getBoundingClientRect())")
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def _table(page: Page) -> dict[str, list[str]]:
    """The cells that a table shows, by the first one."""
    rows = page.evaluate(
        "[...document.querySelectorAll('.chart-container tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )
    return {first: others for first, *others in rows}


def test_columns_are_synced_with_types_and_comments(superset: SupersetServer, dataset: int) -> None:
    columns = superset.call(f"dataset/{dataset}")["result"]["columns"]
    assert {one["column_name"]: (one["type"], one["is_dttm"]) for one in columns} == {
        "sold": ("DATE", True),
        "country": ("TEXT", False),
        "channel": ("TEXT", False),
        "amount": ("DOUBLE PRECISION", False),
        "paid": ("BOOLEAN", False),
    }
    assert "One of: BE, DE, FR, IT" in [one["description"] for one in columns]


def test_a_line_has_a_band_if_its_ends_are_asked(
    superset: SupersetServer, dataset: int, page: Page
) -> None:
    kind = "echarts_timeseries_line"
    bare = superset.chart(dataset, "Bare", kind, metrics=[COUNT], **BY_DAY)
    band = superset.chart(dataset, "Sales a day", kind, metrics=BAND, **BY_DAY)
    without = _drawn(page, superset, bare)
    within = _drawn(page, superset, band)
    _picture(page, "superset-band.png")
    assert 0.0 < without < within / 3
    assert within > 0.05


def test_a_filter_of_a_dashboard_chooses_among_the_declared_values(
    superset: SupersetServer, dataset: int, port: Port, page: Page
) -> None:
    charts = [
        superset.chart(dataset, "Sales a day", "echarts_timeseries_line", metrics=BAND, **BY_DAY),
        superset.chart(
            dataset,
            "By country",
            "table",
            query_mode="aggregate",
            groupby=["country"],
            metrics=TABLE,
            row_limit=1000,
        ),
    ]
    number = superset.dashboard("Sales", charts, dataset, "country")
    page.go(f"{superset.url}/superset/dashboard/{number}/")
    page.until("document.querySelectorAll('.chart-container tbody tr').length === 5")
    assert set(_table(page)) == {*port.sales, "other"}
    _click(page, "document.querySelector('[data-test=form-item-value] .ant-select-selector')")
    options = "[...document.querySelectorAll('.ant-select-item-option')]"
    page.until(f"{options}.length === 4")
    assert page.evaluate(f"{options}.map((one) => one.innerText.trim())") == sorted(port.sales)
    _click(page, f"{options}[1]")
    _click(page, f"{options}[2]")
    _click(page, "document.querySelector('.dashboard-header-container, header')")
    page.until("!document.querySelector('[data-test=filter-bar__apply-button]').disabled")
    page.click("[data-test=filter-bar__apply-button]")
    page.until("document.querySelectorAll('.chart-container tbody tr').length === 2")
    table = _table(page)
    assert set(table) == {"DE", "FR"}
    for country, (n, bar, _) in table.items():
        assert abs(_read(n) - port.sales[country]) < 2 * _read(bar) < 10_000
    page.evaluate("new Promise((done) => setTimeout(done, 3000))")
    _picture(page, "superset-filter.png")


def _read(shown: str) -> float:
    """Reads a number as Superset shows it: ``89.9k``."""
    return float(shown.removesuffix("k")) * (1000 if shown.endswith("k") else 1)
