"""Prints a Grafana dashboard of stream_dp; ``make dashboard`` writes both where Grafana finds them.

Without an argument it prints the one of operations, and with ``tiles`` that of standing queries.

Its queries use what docs/metrics.md lists. While a data set moves to another worker, two may show it: hence
the maximum by data set, not the sum.
"""

from __future__ import annotations

import json
import sys
from typing import TypeAlias, TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

Panel = TypeVar("Panel", timeseries.Panel, stat.Panel, bargauge.Panel)

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_GREEN, _ORANGE, _RED = "green", "orange", "red"


Query: TypeAlias = str | tuple[str, str]
"""An expression, with the name of its lines unless that is the data set."""


def _lines(
    width: int, title: str, unit: str, *queries: Query, stacked: bool = False
) -> timeseries.Panel:
    """What it was over time."""
    panel = timeseries.Panel().min(0).fill_opacity(30 if stacked else 8)
    panel.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    panel.legend(common.VizLegendOptions().show_legend(True).placement(LegendPlacement.BOTTOM))
    if stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    return _filled(panel, width, title, unit, queries)


def _number(
    width: int, title: str, unit: str, query: Query, colors: dict[float, str] | None = None
) -> stat.Panel:
    """What it is now; ``colors`` begin at their values."""
    panel = stat.Panel().graph_mode(BigValueGraphMode.NONE).thresholds(_from(colors or {}))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return _filled(panel, width, title, unit, (query,))


def _share(
    width: int, title: str, query: Query, colors: dict[float, str] | None = None
) -> bargauge.Panel:
    """How much of a whole it is now."""
    panel = bargauge.Panel().min(0).max(1).thresholds(_from(colors or {}))
    panel.orientation(VizOrientation.HORIZONTAL)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return _filled(panel, width, title, "percentunit", (query,))


def _filled(panel: Panel, width: int, title: str, unit: str, queries: tuple[Query, ...]) -> Panel:
    panel.title(title).description(_TEXTS.get(title, "")).unit(unit)
    panel.datasource(_SOURCE).span(width).height(7)
    for name, query in zip("ABC", queries, strict=False):
        expression, legend = (query, "{{dataset}}") if isinstance(query, str) else query
        target = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(name)
        panel.with_target(target.datasource(_SOURCE))
    return panel


def _from(colors: dict[float, str]) -> dashboard.ThresholdsConfig:
    steps = [Threshold(None, _GREEN), *(Threshold(value, colors[value]) for value in colors)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _of(metric: str) -> str:
    """A figure of the chosen data sets."""
    return f'max by (dataset) (stream_dp_{metric}{{dataset=~"$dataset"}})'


def _rate(counter: str, label: str) -> tuple[str, str]:
    """Growth a second, by a label; of the chosen data sets where the counter knows them."""
    chosen = "" if counter in ("records_total", "rejected_total") else '{dataset=~"$dataset"}'
    growth = f"rate(stream_dp_{counter}{chosen}[$__rate_interval])"
    return f"sum by ({label}) ({growth})", f"{{{{{label}}}}}"


def _slowest(share: float) -> tuple[str, str]:
    buckets = "sum by (le) (rate(stream_dp_answer_latency_seconds_bucket[$__rate_interval]))"
    return f"histogram_quantile({share}, {buckets})", f"{share:.0%}"


_BURN = 'deriv(stream_dp_budget_spent_ratio{dataset=~"$dataset"}[1h])'

_ANSWERS, _ = _rate("answers_total", "dataset")
_EASY = _ANSWERS.replace('$dataset"', '$dataset", difficulty="easy"')
_UNVERIFIED = _ANSWERS.replace('$dataset"', '$dataset", path="unverified"')

_TEXTS = {
    "Budget spent": "The phase that has the least budget left.",
    "Epsilon spent, next to the promise": (
        "The phase that has the least budget left, at the promised delta."
    ),
    "Budget spent per day": (
        "At the pace of the last hour. A phase that opens pays for its tables at once."
    ),
    "Budget lasts": (
        "How long the budget lasts at the pace of the last hour. Empty while nothing is spent."
    ),
    "Answers, by path": "Measured answers are hard: they looked at rows and were charged.",
    "Easy answers": "Share of the answers that cost nothing.",
    "Latency": (
        "From the timestamp of the query to the release of its reply: half, 95% and 99% were faster."
    ),
    "Budget that queries may take now": "Without what pacing keeps for later phases.",
    "Left of each share": (
        "Names and patterns of the definition, and the owner. Empty where no analyst has a share."
    ),
    "Unverified answers": "Share of the answers without the promised error bar.",
    "Next phase": "Rows that wait, as a share of those that open the next phase.",
    "Batches": "Batches that were accepted or refused.",
    "Alerts": "Alerts that fire now.",
    "Records not yet taken": "Records between the read position and the end of the log.",
    "Redis is away": "Since when it does not answer. Nothing waits for it but sources.",
    "In quarantine": "Data sets that take no records, because workers died at one of their records.",
    "Records not yet released": "Records that are committed and have not reached the broker.",
    "Commits that Redis lacks": "A data set that is written anew counts as one.",
    "Memory of Redis": "Next to its limit. What Redis drops there is read from Kafka again.",
    "Newest answers": (
        "The answer to each standing query, cell by cell. The panels below have the error bars."
    ),
    "Age": "The time since the phase of the newest answer opened.",
    "$tile": "Each cell with the ends of its error bar. A new answer comes with each phase.",
}
"""The title of a panel -> what its reader should know."""

_SPENT, _PROMISED = _of("privacy_spent_epsilon"), _of("privacy_limit_epsilon")
_PART_SPENT = _of("budget_spent_ratio")
_LEFT = 'min by (dataset, analyst) (stream_dp_share_left_ratio{dataset=~"$dataset"})'
_LAG = "max by (topic, partition) (stream_dp_cursor_lag_messages)"
_FIRING = 'count(ALERTS{alertstate="firing", alertname=~"StreamDP.+"}) or vector(0)'
_OUTBOX, _BEHIND = (
    f"max by (instance) (stream_dp_{metric})"
    for metric in ("outbox_records", "view_behind_commits")
)
_USED, _LIMIT = (
    (f"max(stream_dp_store_memory_{metric})", name)
    for metric, name in (("bytes", "used"), ("limit_bytes", "limit"))
)

_GROUPS: dict[str, list[timeseries.Panel | stat.Panel | bargauge.Panel]] = {
    "Budget": [
        _share(8, "Budget spent", _PART_SPENT, {0.8: _ORANGE, 0.95: _RED}),
        _lines(
            8,
            "Epsilon spent, next to the promise",
            "none",
            (_SPENT, "{{dataset}} spent"),
            (_PROMISED, "{{dataset}} promised"),
        ),
        _lines(8, "Budget spent per day", "percentunit", f"max by (dataset) ({_BURN}) * 86400"),
        _number(8, "Epsilon left", "none", f"{_PROMISED} - {_SPENT}"),
        _number(8, "Budget lasts", "s", f"(1 - {_PART_SPENT}) / (max by (dataset) ({_BURN}) > 0)"),
        _number(8, "Delta promised", "sci", _of("privacy_delta")),
    ],
    "Answers": [
        _lines(8, "Answers, by path", "cps", _rate("answers_total", "path"), stacked=True),
        _lines(8, "Easy answers", "percentunit", f"({_EASY} or 0 * {_ANSWERS}) / {_ANSWERS}"),
        _lines(8, "Refusals, by reason", "cps", _rate("refusals_total", "reason"), stacked=True),
        _lines(24, "Latency", "s", *map(_slowest, (0.5, 0.95, 0.99))),
    ],
    "The newest phase, and who may spend it": [
        _lines(8, "Budget that queries may take now", "percentunit", _of("newest_free_ratio")),
        _lines(
            8,
            "Left of each share",
            "percentunit",
            (_LEFT, "{{dataset}} {{analyst}}"),
            (_of("owner_share_left_ratio"), "{{dataset}}, its owner"),
        ),
        _lines(
            8,
            "Unverified answers",
            "percentunit",
            f"({_UNVERIFIED} or 0 * {_ANSWERS}) / {_ANSWERS}",
        ),
    ],
    "Rows and phases": [
        _share(8, "Next phase", f"{_of('rows_waiting')} / {_of('phase_rows_needed')}"),
        _lines(8, "Phases opened", "none", _of("phase")),
        _lines(8, "Rows accepted", "cps", _rate("rows_accepted_total", "dataset")),
        _lines(12, "Rows in phases", "short", _of("rows_sealed")),
        _lines(12, "Batches", "cps", _rate("batches_total", "dataset")),
    ],
    "Stream": [
        _number(6, "Workers that answer", "none", ("sum(stream_dp_ready)", "")),
        _number(6, "Alerts", "none", (_FIRING, ""), {1: _RED}),
        _lines(12, "Records not yet taken", "short", (_LAG, "{{topic}} {{partition}}")),
        _lines(12, "Records taken", "cps", _rate("records_total", "topic")),
        _lines(
            12,
            "Records rejected, by reason",
            "cps",
            _rate("rejected_total", "reason"),
            stacked=True,
        ),
    ],
    "Commits and Redis": [
        _number(
            6,
            "Redis is away",
            "s",
            ("max(stream_dp_view_away_seconds)", ""),
            {1: _ORANGE, 600: _RED},
        ),
        _number(
            6,
            "In quarantine",
            "none",
            ("sum(max by (dataset) (stream_dp_quarantined))", ""),
            {1: _RED},
        ),
        _lines(12, "Commits", "cps", _rate("commits_total", "dataset")),
        _lines(
            12,
            "Time since the last commit",
            "s",
            f"time() - {_of('last_commit_timestamp_seconds')}",
        ),
        _lines(12, "Records not yet released", "short", (_OUTBOX, "{{instance}}")),
        _lines(12, "Commits that Redis lacks", "short", (_BEHIND, "{{instance}}")),
        _lines(12, "Memory of Redis", "bytes", _USED, _LIMIT),
    ],
}


def _of_tile(metric: str, *labels: str) -> str:
    """A figure of the chosen tiles."""
    chosen = '{dataset=~"$dataset", tile=~"$tile"}'
    return f"max by ({', '.join(['dataset', 'tile', *labels])}) (stream_dp_{metric}{chosen})"


_TILES: dict[str, list[timeseries.Panel | stat.Panel | bargauge.Panel]] = {
    "Now": [
        _number(16, "Newest answers", "none", (_of_tile("answer", "cell"), "{{tile}} {{cell}}")),
        _number(8, "Age", "s", (f"time() - {_of_tile('answer_timestamp_seconds')}", "{{tile}}")),
    ],
    "Over time": [
        _lines(
            24,
            "$tile",
            "none",
            (_of_tile("answer", "cell"), "{{cell}}"),
            (_of_tile("answer_low", "cell"), "{{cell}} at least"),
            (_of_tile("answer_high", "cell"), "{{cell}} at most"),
        ).repeat("tile"),
    ],
}


def main() -> None:
    """Prints a dashboard as JSON."""
    is_tiles = sys.argv[1:] == ["tiles"]
    board = dashboard.Dashboard("stream_dp: tiles" if is_tiles else "stream_dp")
    board.tags(["stream-dp"]).readonly().description(
        "The newest answers to standing queries, with their error bars."
        if is_tiles
        else "Budgets, answers and the health of workers. docs/metrics.md explains each figure."
    )
    board.tooltip(DashboardCursorSync.CROSSHAIR)
    board.time("now-30d" if is_tiles else "now-6h", "now")
    board.refresh("1m" if is_tiles else "10s").timezone("browser")
    board.with_variable(
        dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    )
    board.with_variable(_choice("dataset", "Data set", "label_values(stream_dp_phase, dataset)"))
    if is_tiles:
        tiles = 'label_values(stream_dp_answer_phase{dataset=~"$dataset"}, tile)'
        board.with_variable(_choice("tile", "Tile", tiles))
    number = 0
    for title, panels in (_TILES if is_tiles else _GROUPS).items():
        number += 1
        board.with_row(dashboard.Row(title).id(number))
        for panel in panels:
            number += 1
            board.with_panel(panel.id(number))
    print(json.dumps(board.build(), cls=JSONEncoder, indent=1, sort_keys=True))


def _choice(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """A variable of which the viewer chooses some values."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .current(VariableOption(text="All", value="$__all"))
    )


if __name__ == "__main__":
    main()
