"""Prints a Grafana dashboard of stream_dp; ``make dashboard`` writes both where Grafana finds them.

Without an argument it prints the one of operations, and with ``tiles`` that of standing queries.

Its queries use what docs/metrics.md lists. While a data set moves to another worker, two may show it: hence
the maximum by data set, not the sum.
"""

from __future__ import annotations

import json
import sys
from typing import TypeVar

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


def _lines(
    title: str, unit: str, text: str, *queries: tuple[str, str], width: int, stacked: bool = False
) -> timeseries.Panel:
    """What it was over time; a query comes with the name of its lines."""
    panel = timeseries.Panel().min(0).fill_opacity(30 if stacked else 8)
    panel.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    panel.legend(common.VizLegendOptions().show_legend(True).placement(LegendPlacement.BOTTOM))
    if stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    return _filled(panel, title, unit, text, queries, width)


def _number(
    title: str,
    unit: str,
    text: str,
    query: tuple[str, str],
    *,
    width: int,
    colors: dict[float, str] | None = None,
) -> stat.Panel:
    """What it is now; ``colors`` begin at their values."""
    panel = stat.Panel().graph_mode(BigValueGraphMode.NONE).thresholds(_from(colors or {}))
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return _filled(panel, title, unit, text, (query,), width)


def _share(
    title: str,
    text: str,
    query: tuple[str, str],
    *,
    width: int,
    colors: dict[float, str] | None = None,
) -> bargauge.Panel:
    """How much of a whole it is now."""
    panel = bargauge.Panel().min(0).max(1).thresholds(_from(colors or {}))
    panel.orientation(VizOrientation.HORIZONTAL)
    panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return _filled(panel, title, "percentunit", text, (query,), width)


def _filled(
    panel: Panel,
    title: str,
    unit: str,
    text: str,
    queries: tuple[tuple[str, str], ...],
    width: int,
) -> Panel:
    panel.title(title).description(text).unit(unit).datasource(_SOURCE).span(width).height(7)
    for name, (expression, legend) in zip("ABC", queries, strict=False):
        target = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(name)
        panel.with_target(target.datasource(_SOURCE))
    return panel


def _from(colors: dict[float, str]) -> dashboard.ThresholdsConfig:
    steps = [Threshold(None, _GREEN), *(Threshold(value, colors[value]) for value in colors)]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _of(metric: str) -> str:
    """A figure of the chosen data sets."""
    return f'max by (dataset) (stream_dp_{metric}{{dataset=~"$dataset"}})'


def _rate(counter: str, *labels: str) -> str:
    """Growth a second, by labels; of the chosen data sets where the counter knows them."""
    chosen = "" if counter in ("records_total", "rejected_total") else '{dataset=~"$dataset"}'
    return f"sum by ({', '.join(labels)}) (rate(stream_dp_{counter}{chosen}[$__rate_interval]))"


def _slowest(share: float) -> tuple[str, str]:
    buckets = "sum by (le) (rate(stream_dp_answer_latency_seconds_bucket[$__rate_interval]))"
    return f"histogram_quantile({share}, {buckets})", f"{share:.0%}"


_BURN = 'deriv(stream_dp_budget_spent_ratio{dataset=~"$dataset"}[1h])'

_ANSWERS = _rate("answers_total", "dataset")
_EASY = _ANSWERS.replace('$dataset"', '$dataset", difficulty="easy"')
_UNVERIFIED = _ANSWERS.replace('$dataset"', '$dataset", path="unverified"')

_GROUPS: dict[str, list[timeseries.Panel | stat.Panel | bargauge.Panel]] = {
    "Budget": [
        _share(
            "Budget spent",
            "The phase that has the least budget left.",
            (_of("budget_spent_ratio"), "{{dataset}}"),
            width=8,
            colors={0.8: _ORANGE, 0.95: _RED},
        ),
        _lines(
            "Epsilon spent, next to the promise",
            "none",
            "The phase that has the least budget left, at the promised delta.",
            (_of("privacy_spent_epsilon"), "{{dataset}} spent"),
            (_of("privacy_limit_epsilon"), "{{dataset}} promised"),
            width=8,
        ),
        _lines(
            "Budget spent per day",
            "percentunit",
            "At the pace of the last hour. A phase that opens pays for its tables at once.",
            (f"max by (dataset) ({_BURN}) * 86400", "{{dataset}}"),
            width=8,
        ),
        _number(
            "Epsilon left",
            "none",
            "",
            (f"{_of('privacy_limit_epsilon')} - {_of('privacy_spent_epsilon')}", "{{dataset}}"),
            width=8,
        ),
        _number(
            "Budget lasts",
            "s",
            "How long the budget lasts at the pace of the last hour. Empty while nothing is spent.",
            (
                f"(1 - {_of('budget_spent_ratio')}) / (max by (dataset) ({_BURN}) > 0)",
                "{{dataset}}",
            ),
            width=8,
        ),
        _number("Delta promised", "sci", "", (_of("privacy_delta"), "{{dataset}}"), width=8),
    ],
    "Answers": [
        _lines(
            "Answers, by path",
            "cps",
            "Measured answers are hard: they looked at rows and were charged.",
            (_rate("answers_total", "path"), "{{path}}"),
            width=8,
            stacked=True,
        ),
        _lines(
            "Easy answers",
            "percentunit",
            "Share of the answers that cost nothing.",
            (
                f"({_EASY} or 0 * {_ANSWERS}) / {_ANSWERS}",
                "{{dataset}}",
            ),
            width=8,
        ),
        _lines(
            "Refusals, by reason",
            "cps",
            "",
            (_rate("refusals_total", "reason"), "{{reason}}"),
            width=8,
            stacked=True,
        ),
        _lines(
            "Latency",
            "s",
            "From the timestamp of the query to the release of its reply: half, 95% and 99% were faster.",
            *map(_slowest, (0.5, 0.95, 0.99)),
            width=24,
        ),
    ],
    "The newest phase, and who may spend it": [
        _lines(
            "Budget that queries may take now",
            "percentunit",
            "Without what pacing keeps for later phases.",
            (_of("newest_free_ratio"), "{{dataset}}"),
            width=8,
        ),
        _lines(
            "Left of each share",
            "percentunit",
            "Names and patterns of the definition, and the owner. Empty where no analyst has a share.",
            (
                'min by (dataset, analyst) (stream_dp_share_left_ratio{dataset=~"$dataset"})',
                "{{dataset}} {{analyst}}",
            ),
            (_of("owner_share_left_ratio"), "{{dataset}}, its owner"),
            width=8,
        ),
        _lines(
            "Unverified answers",
            "percentunit",
            "Share of the answers without the promised error bar.",
            (f"({_UNVERIFIED} or 0 * {_ANSWERS}) / {_ANSWERS}", "{{dataset}}"),
            width=8,
        ),
    ],
    "Rows and phases": [
        _share(
            "Next phase",
            "Rows that wait, as a share of those that open the next phase.",
            (f"{_of('rows_waiting')} / {_of('phase_rows_needed')}", "{{dataset}}"),
            width=8,
        ),
        _lines("Phases opened", "none", "", (_of("phase"), "{{dataset}}"), width=8),
        _lines(
            "Rows accepted",
            "cps",
            "",
            (_rate("rows_accepted_total", "dataset"), "{{dataset}}"),
            width=8,
        ),
        _lines("Rows in phases", "short", "", (_of("rows_sealed"), "{{dataset}}"), width=12),
        _lines(
            "Batches",
            "cps",
            "Batches that were accepted or refused.",
            (_rate("batches_total", "dataset"), "{{dataset}}"),
            width=12,
        ),
    ],
    "Stream": [
        _number(
            "Workers that answer",
            "none",
            "",
            ("sum(stream_dp_ready)", ""),
            width=6,
        ),
        _number(
            "Alerts",
            "none",
            "Alerts that fire now.",
            ('count(ALERTS{alertstate="firing", alertname=~"StreamDP.+"}) or vector(0)', ""),
            width=6,
            colors={1: _RED},
        ),
        _lines(
            "Records not yet taken",
            "short",
            "Records between the read position and the end of the log.",
            (
                "max by (topic, partition) (stream_dp_cursor_lag_messages)",
                "{{topic}} {{partition}}",
            ),
            width=12,
        ),
        _lines(
            "Records taken", "cps", "", (_rate("records_total", "topic"), "{{topic}}"), width=12
        ),
        _lines(
            "Records rejected, by reason",
            "cps",
            "",
            (_rate("rejected_total", "reason"), "{{reason}}"),
            width=12,
            stacked=True,
        ),
    ],
    "Commits and Redis": [
        _number(
            "Redis is away",
            "s",
            "Since when it does not answer. Nothing waits for it but sources.",
            ("max(stream_dp_view_away_seconds)", ""),
            width=6,
            colors={1: _ORANGE, 600: _RED},
        ),
        _number(
            "In quarantine",
            "none",
            "Data sets that take no records, because workers died at one of their records.",
            ("sum(max by (dataset) (stream_dp_quarantined))", ""),
            width=6,
            colors={1: _RED},
        ),
        _lines("Commits", "cps", "", (_rate("commits_total", "dataset"), "{{dataset}}"), width=12),
        _lines(
            "Time since the last commit",
            "s",
            "",
            (f"time() - {_of('last_commit_timestamp_seconds')}", "{{dataset}}"),
            width=12,
        ),
        _lines(
            "Records not yet released",
            "short",
            "Records that are committed and have not reached the broker.",
            ("max by (instance) (stream_dp_outbox_records)", "{{instance}}"),
            width=12,
        ),
        _lines(
            "Commits that Redis lacks",
            "short",
            "A data set that is written anew counts as one.",
            ("max by (instance) (stream_dp_view_behind_commits)", "{{instance}}"),
            width=12,
        ),
        _lines(
            "Memory of Redis",
            "bytes",
            "Next to its limit. What Redis drops there is read from Kafka again.",
            ("max(stream_dp_store_memory_bytes)", "used"),
            ("max(stream_dp_store_memory_limit_bytes)", "limit"),
            width=12,
        ),
    ],
}


def _of_tile(metric: str, *labels: str) -> str:
    """A figure of the chosen tiles."""
    chosen = '{dataset=~"$dataset", tile=~"$tile"}'
    return f"max by ({', '.join(['dataset', 'tile', *labels])}) (stream_dp_{metric}{chosen})"


_TILE = "{{tile}} {{cell}}"

_TILES: dict[str, list[timeseries.Panel | stat.Panel | bargauge.Panel]] = {
    "Now": [
        _number(
            "Newest answers",
            "none",
            "The answer to each standing query, cell by cell. The panels below have the error bars.",
            (_of_tile("answer", "cell"), _TILE),
            width=16,
        ),
        _number(
            "Age",
            "s",
            "The time since the phase of the newest answer opened.",
            (f"time() - {_of_tile('answer_timestamp_seconds')}", "{{tile}}"),
            width=8,
        ),
    ],
    "Over time": [
        _lines(
            "$tile",
            "none",
            "Each cell with the ends of its error bar. A new answer comes with each phase.",
            (_of_tile("answer", "cell"), "{{cell}}"),
            (_of_tile("answer_low", "cell"), "{{cell}} at least"),
            (_of_tile("answer_high", "cell"), "{{cell}} at most"),
            width=24,
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
